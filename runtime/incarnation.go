package fold

import (
	"slices"
	"sync"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

const (
	maxSamples = 4
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
	l.known.AgeLimit = i.Retention.AgeLimit.Nanoseconds()
}

// read notes the settings of the log that a watch was opened on. A limit that was raised since is for the next watch to
// note: what the lower one took may be what is to come next.
func (l *incarnation) read(i kv.LogInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known.CreatedUnixNano == i.Created.UnixNano() {
		l.known.AgeLimit = min(l.known.AgeLimit, i.Retention.AgeLimit.Nanoseconds())
	}
}

// appendOps notes the batch's last message and appends the record to commit. A retry of the same batch notes it once.
func (l *incarnation) appendOps(ops []store.Op, updates []kv.Update) []store.Op {
	l.sample(updates)
	return append(ops, store.Op{Key: store.MetaKey(store.MetaLog), Value: l.get().AppendBytes(nil)})
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
