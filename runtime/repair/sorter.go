package repair

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

const (
	// maxFanIn is how many runs are merged at a time; more are merged into fewer first.
	maxFanIn = 64
	// entryBytes is the size of a sortEntry.
	entryBytes = 32
	// checkEvery is how many keys pass between two looks at the context.
	checkEvery = 4096
)

// sorter sorts listed keys in the order of the store. runBytes bounds the keys and the index that it holds while keys are
// added; what is more goes to a file of the scratch folder as sorted runs, which are merged as they are read. Of
// equal keys the one with the highest revision is left, and of those the last added. Close it.
type sorter struct {
	dir      string
	runBytes int
	fanIn    int

	blocks [][]byte // keys in ordered form; their capacity is fixed
	used   int      // blocks in use; the last one is being filled
	index  []sortEntry
	held   int // bytes of blocks and index, by capacity
	peak   int // the most that held ever was, growth counted

	file *scratchFile
	ends []int64 // where each run ends in file
	out  []byte
	n    uint64
}

// sortEntry is one key. Of two equal ones that were added in turn, the later is further on in the blocks.
type sortEntry struct {
	rank       uint64
	nano       int64
	block, off uint32
	size       uint32
	op         kv.Op
}

func newSorter(dir string, runBytes int) *sorter {
	return &sorter{dir: dir, runBytes: runBytes, fanIn: maxFanIn}
}

// added is how many keys were added, equal ones each.
func (s *sorter) added() uint64 { return s.n }

func (s *sorter) blockBytes() int { return min(max(s.runBytes/16, 256), 1<<20) }

// add takes one listed key. A single key is taken whatever runBytes is.
func (s *sorter) add(k kv.KeyVersion) error {
	fits := s.growIndex() && s.growKeys(len(k.Key))
	if !fits {
		if err := s.spillRun(); err != nil {
			return err
		}
		s.force(len(k.Key))
	}
	at := s.used - 1
	b := s.blocks[at]
	from := len(b)
	b = append(b, k.Key...)
	store.Ordered(b[from:])
	s.blocks[at] = b
	s.index = append(s.index, sortEntry{rank: k.Version.Rank(), nano: k.UnixNano, block: uint32(at), off: uint32(from), size: uint32(len(k.Key)), op: k.Op})
	s.n++
	return nil
}

// growIndex makes room for one more entry, unless that is past the bound: while it grows, both the old and the new index
// are held.
func (s *sorter) growIndex() bool {
	if len(s.index) < cap(s.index) {
		return true
	}
	n := max(2*cap(s.index), 8)
	if s.held+n*entryBytes > s.runBytes {
		return false
	}
	s.setIndex(n)
	return true
}

func (s *sorter) setIndex(n int) {
	s.peak = max(s.peak, s.held+n*entryBytes)
	grown := make([]sortEntry, len(s.index), n)
	copy(grown, s.index)
	s.held += (n - cap(s.index)) * entryBytes
	s.index = grown
}

// growKeys makes room for one more key, unless that is past the bound.
func (s *sorter) growKeys(size int) bool {
	if s.used > 0 && s.free(s.used-1) >= size {
		return true
	}
	if s.used < len(s.blocks) && s.free(s.used) >= size {
		s.used++
		return true
	}
	if s.held+max(s.blockBytes(), size) > s.runBytes {
		return false
	}
	s.addBlock(size)
	return true
}

func (s *sorter) free(block int) int { return cap(s.blocks[block]) - len(s.blocks[block]) }

func (s *sorter) addBlock(size int) {
	n := max(s.blockBytes(), size)
	s.blocks = append(s.blocks[:s.used], make([]byte, 0, n))
	s.used++
	s.account()
}

func (s *sorter) account() {
	s.held = cap(s.index) * entryBytes
	for _, b := range s.blocks {
		s.held += cap(b)
	}
	s.peak = max(s.peak, s.held)
}

// force makes room for one key in an empty sorter.
func (s *sorter) force(size int) {
	if cap(s.index) == 0 {
		s.setIndex(1)
	}
	if s.used < len(s.blocks) && s.free(s.used) >= size {
		s.used++
		return
	}
	if s.held+max(s.blockBytes(), size) > s.runBytes {
		s.blocks = nil // a key that no block can hold beside the others
	}
	s.addBlock(size)
}

func (s *sorter) key(e sortEntry) []byte { return s.blocks[e.block][e.off : e.off+e.size] }

// sortRun sorts what is held: keys up, and of equal ones first the one that counts.
func (s *sorter) sortRun() {
	slices.SortFunc(s.index, func(a, b sortEntry) int {
		if c := bytes.Compare(s.key(a), s.key(b)); c != 0 {
			return c
		}
		return cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(b.block, a.block), cmp.Compare(b.off, a.off))
	})
}

// spillRun writes what is held as one run.
func (s *sorter) spillRun() error {
	if len(s.index) == 0 {
		return nil
	}
	if s.file == nil {
		f, err := newScratchFile(s.dir)
		if err != nil {
			return err
		}
		s.file = f
	}
	s.sortRun()
	w := runWriter{f: s.file, out: s.out[:0]}
	for i, e := range s.index {
		if i > 0 && bytes.Equal(s.key(e), s.key(s.index[i-1])) {
			continue
		}
		if err := w.add(s.key(e), e.rank, e.nano, e.op); err != nil {
			return err
		}
	}
	if err := w.flush(); err != nil {
		return err
	}
	s.ends, s.out = append(s.ends, s.file.size), w.out
	s.index = s.index[:0]
	for i := range s.blocks {
		s.blocks[i] = s.blocks[i][:0]
	}
	s.used = 0
	return nil
}

// runWriter writes one run.
type runWriter struct {
	f   *scratchFile
	out []byte
}

func (w *runWriter) add(key []byte, rank uint64, nano int64, op kv.Op) error {
	w.out = appendScratch(w.out, key, kv.Revision(rank), nano, byte(op))
	if len(w.out) < spillBytes {
		return nil
	}
	return w.flush()
}

func (w *runWriter) flush() error {
	err := w.f.write(w.out)
	w.out = w.out[:0]
	return err
}

// sorted ends the adding, and begins to read at the first key. It is called once. The reading ends with an error when ctx
// does.
func (s *sorter) sorted(ctx context.Context) (*sortedKeys, error) {
	if s.file == nil {
		s.sortRun()
		return &sortedKeys{ctx: ctx, mem: s, at: -1}, nil
	}
	if err := s.spillRun(); err != nil {
		return nil, err
	}
	s.blocks, s.index, s.used, s.held = nil, nil, 0, 0
	for len(s.ends) > s.fanIn {
		if err := s.mergePass(ctx); err != nil {
			return nil, fmt.Errorf("merge %d runs of a listing: %w", len(s.ends), err)
		}
	}
	m, err := s.merge(0, len(s.ends))
	return &sortedKeys{ctx: ctx, merge: m}, err
}

// mergePass merges neighbouring runs, so that their order stays the one in which they were added.
func (s *sorter) mergePass(ctx context.Context) error {
	to, err := newScratchFile(s.dir)
	if err != nil {
		return err
	}
	var ends []int64
	for from := 0; from < len(s.ends); from += s.fanIn {
		if err := s.mergeRuns(ctx, from, min(from+s.fanIn, len(s.ends)), to); err != nil {
			return errors.Join(err, to.close())
		}
		ends = append(ends, to.size)
	}
	old := s.file
	s.file, s.ends = to, ends
	return old.close()
}

func (s *sorter) mergeRuns(ctx context.Context, from, to int, into *scratchFile) error {
	m, err := s.merge(from, to)
	if err != nil {
		return err
	}
	keys := &sortedKeys{ctx: ctx, merge: m}
	w := runWriter{f: into, out: s.out[:0]}
	for keys.next() {
		if err := w.add(keys.key, keys.rank, keys.nano, keys.op); err != nil {
			return err
		}
	}
	s.out = w.out
	return errors.Join(keys.err, w.flush())
}

// merge reads runs from and up to to, of which each gets its part of runBytes as a buffer.
func (s *sorter) merge(from, to int) (*merger, error) {
	buffer := min(max(s.runBytes/s.fanIn, 512), spillBytes)
	m := &merger{}
	for i := from; i < to; i++ {
		begin := int64(0)
		if i > 0 {
			begin = s.ends[i-1]
		}
		m.push(&run{scratchReader: newScratchReader(s.file.f, begin, s.ends[i], buffer), at: i})
	}
	return m, m.err
}

// close removes the files. It may be called more than once; what reads the sorter ends with it.
func (s *sorter) close() error {
	f := s.file
	s.file, s.ends, s.blocks, s.index, s.out = nil, nil, nil, nil, nil
	return f.close()
}

// sortedKeys walks a sorter's keys. key is in ordered form, without a space byte, and valid until the next call.
type sortedKeys struct {
	ctx   context.Context
	mem   *sorter
	at    int
	merge *merger

	key  []byte
	rank uint64
	nano int64 // the server's time of the message; 0 is not known
	op   kv.Op
	n    uint64 // keys so far, the current one included
	err  error
}

// hasValue reports whether the key's last message is a value.
func (k *sortedKeys) hasValue() bool { return k.op == kv.OpPut }

// next moves to the next key; false at the end or on an error.
func (k *sortedKeys) next() bool {
	if k.err == nil && k.n%checkEvery == 0 {
		k.err = k.ctx.Err()
	}
	more := k.err == nil && (k.mem != nil && k.nextHeld() || k.merge != nil && k.nextMerged())
	if more {
		k.n++
	}
	return more
}

func (k *sortedKeys) nextHeld() bool {
	index := k.mem.index
	for k.at++; k.at < len(index); k.at++ {
		e := index[k.at]
		key := k.mem.key(e)
		if k.n > 0 && bytes.Equal(key, k.key) {
			continue
		}
		k.key, k.rank, k.nano, k.op = key, e.rank, e.nano, e.op
		return true
	}
	return false
}

func (k *sortedKeys) nextMerged() bool {
	for {
		r := k.merge.top()
		if r == nil {
			k.err = k.merge.err
			return false
		}
		same := k.n > 0 && bytes.Equal(r.key, k.key)
		if !same {
			k.key = append(k.key[:0], r.key...)
			k.rank, k.nano, k.op = r.version.Rank(), r.nano, kv.Op(r.flags)
		}
		k.merge.advance()
		if !same {
			return true
		}
	}
}

// run is one sorted run as it is read.
type run struct {
	*scratchReader
	at int
}

// before is the order of sortRun.
func (r *run) before(o *run) bool {
	if c := bytes.Compare(r.key, o.key); c != 0 {
		return c < 0
	}
	return cmp.Or(cmp.Compare(o.version.Rank(), r.version.Rank()), cmp.Compare(o.at, r.at)) < 0
}

// merger is a heap of runs by their current keys.
type merger struct {
	runs []*run
	err  error
}

// push adds a run, unless it is empty.
func (m *merger) push(r *run) {
	if !r.next() {
		m.err = errors.Join(m.err, r.err)
		return
	}
	m.runs = append(m.runs, r)
	for i := len(m.runs) - 1; i > 0; {
		up := (i - 1) / 2
		if !m.runs[i].before(m.runs[up]) {
			return
		}
		m.runs[i], m.runs[up] = m.runs[up], m.runs[i]
		i = up
	}
}

// top is the run with the first key; nil at the end or on an error.
func (m *merger) top() *run {
	if m.err != nil || len(m.runs) == 0 {
		return nil
	}
	return m.runs[0]
}

// advance moves the top run on.
func (m *merger) advance() {
	if r := m.runs[0]; !r.next() {
		m.err = r.err
		last := len(m.runs) - 1
		m.runs[0] = m.runs[last]
		m.runs = m.runs[:last]
	}
	for i := 0; ; {
		first := i
		for _, down := range []int{2*i + 1, 2*i + 2} {
			if down < len(m.runs) && m.runs[down].before(m.runs[first]) {
				first = down
			}
		}
		if first == i {
			return
		}
		m.runs[i], m.runs[first] = m.runs[first], m.runs[i]
		i = first
	}
}
