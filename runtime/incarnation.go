package fold

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

const (
	maxSamples   = 4
	metaLog      = "log"
	logRecordGen = 1
	// sampleEvery is how many flushes lie between samples that are kept beside the newest one.
	sampleEvery = 64
)

// incarnation is what the fold remembers of the log that its cursor belongs to. It is committed with each batch.
type incarnation struct {
	mu      sync.Mutex
	known   kv.Incarnation // its slice is replaced, never written to
	flushes int
}

func (l *incarnation) get() kv.Incarnation {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known
}

func (l *incarnation) set(i kv.Incarnation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known = i
}

// opened notes a log that has passed the identity kernel.
func (l *incarnation) opened(i kv.LogInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known.CreatedUnixNano == 0 {
		l.known.CreatedUnixNano = i.Created.UnixNano()
	}
}

// appendOps notes the batch's last message and appends the record to commit. A retry of the same batch notes it once.
func (l *incarnation) appendOps(ops []store.Op, updates []kv.Update) []store.Op {
	l.sample(updates)
	return append(ops, store.Op{Key: store.MetaKey(metaLog), Value: encodeIncarnation(l.get())})
}

// sample notes the last message of a batch.
func (l *incarnation) sample(updates []kv.Update) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(updates) - 1; i >= 0; i-- {
		u := &updates[i]
		if rev, ok := u.Version.Uint64(); ok && u.UnixNano > 0 {
			l.note(kv.Sample{Revision: rev, UnixNano: u.UnixNano})
			return
		}
	}
}

func (l *incarnation) note(s kv.Sample) {
	samples := slices.Clone(l.known.Samples)
	n := len(samples)
	if n > 0 && samples[n-1].Revision >= s.Revision {
		return
	}
	if l.flushes++; n > 0 && l.flushes%sampleEvery != 0 {
		samples[n-1] = s
	} else {
		samples = append(samples, s)
	}
	l.known.Samples = samples[max(0, len(samples)-maxSamples):]
}

func encodeIncarnation(i kv.Incarnation) []byte {
	b := []byte{logRecordGen}
	b = binary.AppendVarint(b, i.CreatedUnixNano)
	b = binary.AppendUvarint(b, uint64(len(i.Samples)))
	for _, s := range i.Samples {
		b = binary.AppendUvarint(b, s.Revision)
		b = binary.AppendVarint(b, s.UnixNano)
	}
	return b
}

func decodeIncarnation(b []byte) (kv.Incarnation, error) {
	bad := fmt.Errorf("%w: log identity record", store.ErrCorrupt)
	if len(b) == 0 || b[0] != logRecordGen {
		return kv.Incarnation{}, bad
	}
	r := varints{b: b[1:]}
	i := kv.Incarnation{CreatedUnixNano: r.signed()}
	n := r.unsigned()
	if n > 64 {
		return kv.Incarnation{}, bad
	}
	for range n {
		i.Samples = append(i.Samples, kv.Sample{Revision: r.unsigned(), UnixNano: r.signed()})
	}
	if r.bad || len(r.b) != 0 {
		return kv.Incarnation{}, bad
	}
	return i, nil
}

// varints reads varints one after the other; bad is set by the first that is not there.
type varints struct {
	b   []byte
	bad bool
}

func (r *varints) unsigned() uint64 {
	v, n := binary.Uvarint(r.b)
	return r.took(v, n)
}

func (r *varints) signed() int64 {
	v, n := binary.Varint(r.b)
	return int64(r.took(uint64(v), n))
}

func (r *varints) took(v uint64, n int) uint64 {
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func loadIncarnation(g store.Getter) (kv.Incarnation, error) {
	b, err := getMeta(g, metaLog)
	if err != nil || b == nil {
		return kv.Incarnation{}, err
	}
	return decodeIncarnation(b)
}

// getMeta is a copy of one of the fold's own records; nil when there is none.
func getMeta(g store.Getter, name string) ([]byte, error) {
	var v store.Value
	ok, err := g.Get(store.MetaKey(name), &v)
	if err != nil || !ok {
		return nil, err
	}
	defer v.Release()
	return append([]byte{}, v.Bytes...), nil
}
