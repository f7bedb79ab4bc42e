package logstore

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/storetest"
)

const testPath = "d/log"

// written is a log, the fold at the end of each of its groups, and where these ends are.
type written struct {
	data   []byte
	states []*storetest.Model
	ends   []int
}

func fsWith(data []byte) *memFS {
	m := newMemFS()
	m.names[testPath] = &memNode{data: slices.Clone(data), synced: slices.Clone(data)}
	m.onDisk[testPath] = m.names[testPath]
	return m
}

func mustOpen(t *testing.T, m *memFS, o Options) *Store {
	t.Helper()
	o.FS = m
	s, err := Open(testPath, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, store.ErrClosed) && !errors.Is(err, store.ErrPoisoned) {
			t.Error(err)
		}
	})
	return s
}

func put(key, value string, rev uint64) kv.Update {
	return kv.Update{Key: key, Value: []byte(value), Version: kv.Revision(rev), Op: kv.OpPut}
}

// write makes a log of a base with one key and of the batches, each of which is synced.
func write(t *testing.T, batches ...*store.Batch) written {
	t.Helper()
	return writeAs(t, Sync, batches...)
}

func writeAs(t *testing.T, d Durability, batches ...*store.Batch) written {
	t.Helper()
	m := newMemFS()
	s := mustOpen(t, m, Options{Durability: d})
	model := storetest.NewModel()
	first := &store.Batch{Updates: []kv.Update{put("base", "b", 1)}}
	var w written
	for i, b := range append([]*store.Batch{first}, batches...) {
		c := kv.CursorAt(uint64(i + 1))
		if err := s.Apply(t.Context(), b, c); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if err := s.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		model.Apply(b, c)
		w.states = append(w.states, model.Clone())
		w.ends = append(w.ends, len(m.names[testPath].data))
	}
	w.data = m.names[testPath].data
	return w
}

func smallBatches() []*store.Batch {
	full := put("a.b", "value", 2)
	full.ContentType, full.UnixNano, full.Rejected = "t/x", 12345, true
	return []*store.Batch{
		{Updates: []kv.Update{full, put("a.c", "", 2)}, Ops: []store.Op{{Key: []byte("M.x"), Value: []byte{0, 0, 0}}}},
		{Updates: []kv.Update{{Key: "a.c", Op: kv.OpDelete}}, Ops: []store.Op{{Key: []byte("M.x"), Delete: true}}},
		{},
		{Updates: []kv.Update{put("a.b", "other", 5), put("zero", strings.Repeat("\x00", 30), 5)}},
	}
}

// state is the index of the group at whose end the store is, by everything it shows.
func (w *written) state(t *testing.T, s *Store) int {
	t.Helper()
	i := slices.IndexFunc(w.states, func(m *storetest.Model) bool { return m.Cursor == s.Cursor() })
	if i < 0 {
		t.Fatalf("opened at cursor %v, which no batch had", s.Cursor())
	}
	if err := w.states[i].Check(s); err != nil {
		t.Fatalf("at cursor %v: %v", s.Cursor(), err)
	}
	return i
}

// refused checks that the file does not open, by a typed error that names a place, and is as it was.
func refused(t *testing.T, m *memFS, data []byte) {
	t.Helper()
	s, err := Open(testPath, Options{FS: m})
	if err == nil {
		t.Fatalf("it opened, at cursor %v", s.Cursor())
	}
	var fe *FileError
	if !errors.As(err, &fe) || !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrFormat) || fe.Hint() == "" || fe.Offset > int64(len(data)) {
		t.Fatalf("refused with %v", err)
	}
	if !bytes.Equal(m.names[testPath].data, data) {
		t.Fatal("a refused file was changed")
	}
	if len(m.locked) != 0 {
		t.Fatal("the lock was kept")
	}
}

func TestCutAtEveryByte(t *testing.T) {
	w := write(t, smallBatches()...)
	for n := range len(w.data) + 1 {
		data := w.data[:n]
		m := fsWith(data)
		if n < w.ends[0] {
			refused(t, m, data)
			continue
		}
		want := 0
		for want+1 < len(w.ends) && w.ends[want+1] <= n {
			want++
		}
		s := mustOpen(t, m, Options{})
		if got := w.state(t, s); got != want {
			t.Fatalf("cut at %d: opened after group %d, want %d", n, got, want)
		}
		if got := len(m.names[testPath].data); got != w.ends[want] {
			t.Fatalf("cut at %d: the file has %d bytes, want %d", n, got, w.ends[want])
		}
		if got := s.Recovery().TornBytes; got != int64(n-w.ends[want]) {
			t.Fatalf("cut at %d: %d torn bytes are reported", n, got)
		}
		after := w.states[want].Clone()
		b, c := &store.Batch{Updates: []kv.Update{put("after", "x", 9)}}, kv.CursorAt(9)
		after.Apply(b, c)
		if err := errors.Join(s.Apply(t.Context(), b, c), s.Close()); err != nil {
			t.Fatal(err)
		}
		if err := after.Check(mustOpen(t, m, Options{})); err != nil {
			t.Fatalf("cut at %d, then written to: %v", n, err)
		}
	}
}

// TestEveryBit holds what the package says of a single damaged byte: only in the last group can it pass for a torn write,
// and then the last batch is gone as a whole.
func TestEveryBit(t *testing.T) {
	w := write(t, smallBatches()...)
	last := len(w.ends) - 1
	for i := range w.data {
		for bit := range 8 {
			data := slices.Clone(w.data)
			data[i] ^= 1 << bit
			m := fsWith(data)
			if i < w.ends[last-1] {
				refused(t, m, data)
				continue
			}
			if got := w.state(t, mustOpen(t, m, Options{})); got != last-1 {
				t.Fatalf("bit %d of byte %d: opened after group %d, want %d", bit, i, got, last-1)
			}
		}
	}
}

// TestEveryByteReplaced is the same with whole bytes, over the header and over the frame headers.
func TestEveryByteReplaced(t *testing.T) {
	w := write(t, smallBatches()...)
	last := len(w.ends) - 1
	places := []int{0, headerV3Len}
	places = append(places, w.ends[:last]...)
	for _, p := range places {
		for i := p; i < p+headerV3Len; i++ {
			for c := range 256 {
				data := slices.Clone(w.data)
				if data[i] == byte(c) {
					continue
				}
				data[i] = byte(c)
				if i < w.ends[last-1] {
					refused(t, fsWith(data), data)
				} else if got := w.state(t, mustOpen(t, fsWith(data), Options{})); got != last-1 {
					t.Fatalf("byte %d replaced by %d: opened after group %d", i, c, got)
				}
			}
		}
	}
}

func TestZeros(t *testing.T) {
	w := write(t, smallBatches()...)
	last := len(w.ends) - 1
	for n := 1; n < 100; n++ {
		if got := w.state(t, mustOpen(t, fsWith(append(slices.Clone(w.data), make([]byte, n)...)), Options{})); got != last {
			t.Fatalf("with %d zeros after it: opened after group %d, want %d", n, got, last)
		}
	}
	for from := w.ends[last-1] + 1; from < w.ends[last]; from++ { // the last group's end became zeros
		data := slices.Clone(w.data)
		clear(data[from:])
		if bytes.Equal(data, w.data) {
			continue
		}
		if got := w.state(t, mustOpen(t, fsWith(data), Options{})); got != last-1 {
			t.Fatalf("zeros from %d on: opened after group %d, want %d", from, got, last-1)
		}
	}
	for i := range last { // a group in the middle became a hole
		from := headerV3Len
		if i > 0 {
			from = w.ends[i-1]
		}
		data := slices.Clone(w.data)
		clear(data[from:w.ends[i]])
		refused(t, fsWith(data), data)
	}
}

func TestGarbage(t *testing.T) {
	w := write(t, smallBatches()...)
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		data := slices.Clone(w.data)
		from := r.IntN(len(data))
		for i := from; i < min(len(data), from+1+r.IntN(40)); i++ {
			data[i] = byte(r.Uint32())
		}
		m := fsWith(data)
		s, err := Open(testPath, Options{FS: m})
		if err != nil {
			refused(t, m, data)
			continue
		}
		if got := w.state(t, s); got+1 < len(w.ends) && w.ends[got+1] <= from {
			t.Fatalf("garbage at %d: opened after group %d", from, got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMovedFrame: a whole frame in another frame's place is no frame, and says nothing of what is before it.
func TestMovedFrame(t *testing.T) {
	w := write(t, smallBatches()...)
	for want, data := range map[int][]byte{
		len(w.ends) - 1: slices.Concat(w.data, w.data[w.ends[3]:w.ends[4]]),
		1:               slices.Concat(w.data[:w.ends[1]], w.data[w.ends[2]:]),
	} {
		if got := w.state(t, mustOpen(t, fsWith(data), Options{})); got != want {
			t.Errorf("opened after group %d, want %d", got, want)
		}
	}
}

// TestLostPages: of what was not synced a loss of power may keep what was written later and lose what was before. Then
// the log opens without both; where a sync came in between it is damage.
func TestLostPages(t *testing.T) {
	for _, d := range []Durability{None, Sync} {
		w := writeAs(t, d, smallBatches()...)
		for lost := 1; lost < len(w.ends)-1; lost++ {
			data := slices.Clone(w.data)
			clear(data[w.ends[lost-1]:w.ends[lost]])
			if d == Sync {
				refused(t, fsWith(data), data)
			} else if got := w.state(t, mustOpen(t, fsWith(data), Options{})); got != lost-1 {
				t.Errorf("group %d is lost: opened after group %d", lost, got)
			}
		}
	}
}

// TestLostPagesOfOneGroup: the later frames of a group say nothing of its first.
func TestLostPagesOfOneGroup(t *testing.T) {
	value := strings.Repeat("v", frameTarget)
	w := write(t, &store.Batch{Updates: []kv.Update{put("a", value, 2), put("b", value, 2), put("c", value, 2)}})
	data := slices.Clone(w.data)
	clear(data[w.ends[0] : w.ends[0]+4096])
	if got := w.state(t, mustOpen(t, fsWith(data), Options{})); got != 0 {
		t.Errorf("opened after group %d", got)
	}
}

func TestGroupOfManyFrames(t *testing.T) {
	value := strings.Repeat("v", frameTarget/2)
	big := &store.Batch{Bulk: true}
	for i := range 7 {
		big.Updates = append(big.Updates, put("big."+string(rune('a'+i)), value, 2))
	}
	w := write(t, big, &store.Batch{Updates: []kv.Update{put("small", "x", 3)}}, big)
	if w.ends[1]-w.ends[0] < 3*frameTarget {
		t.Fatalf("the group has %d bytes, want some frames", w.ends[1]-w.ends[0])
	}
	var cuts []int
	for off := w.ends[0]; off < w.ends[1]; { // around each frame's ends
		h, ok := parseFrameHead(w.data[off:off+frameHeadLen], int64(off))
		if !ok {
			t.Fatalf("no frame at %d", off)
		}
		cuts = append(cuts, off, off+1, off+frameHeadLen, off+frameHeadLen+int(h.length)/2)
		off += frameHeadLen + int(h.length)
	}
	for _, n := range cuts {
		if got := w.state(t, mustOpen(t, fsWith(w.data[:n]), Options{})); got != 0 {
			t.Fatalf("cut at %d: opened after group %d, want none of the large one", n, got)
		}
		data := slices.Clone(w.data)
		data[n+3] ^= 4
		refused(t, fsWith(data), data)
	}
	m := fsWith(w.data)
	s := mustOpen(t, m, Options{})
	if got := w.state(t, s); got != 3 {
		t.Fatalf("opened after group %d", got)
	}
	if err := errors.Join(s.Settle(t.Context()), s.Close()); err != nil { // a base of many frames
		t.Fatal(err)
	}
	if got := w.state(t, mustOpen(t, m, Options{})); got != 3 {
		t.Fatalf("rewritten and opened after group %d", got)
	}
	for _, n := range []int{frameTarget, 2 * frameTarget, len(m.names[testPath].data) - 1} {
		data := m.names[testPath].data[:n]
		refused(t, fsWith(data), data)
	}
}
