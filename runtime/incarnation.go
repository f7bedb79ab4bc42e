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
func (l *incarnation) appendOps(ops []store.Op, segs []*segment) []store.Op {
	l.sample(segs)
	return append(ops, store.Op{Key: store.MetaKey(store.MetaLog), Value: l.get().AppendBytes(nil)})
}

// sample notes the last message of a batch, one that was passed over too: the cursor may stand at it.
func (l *incarnation) sample(segs []*segment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(segs) - 1; i >= 0; i-- {
		if last := segs[i].last(); last.Revision > 0 {
			l.note(last)
			return
		}
	}
}

// last is the segment's last message of a known revision and time; Revision 0 for none.
func (s *segment) last() kv.Sample {
	for i := len(s.updates) - 1; i >= 0; i-- {
		u := &s.updates[i]
		if rev, ok := u.Version.Uint64(); ok && u.UnixNano > 0 {
			if rev < s.passed.Revision {
				break
			}
			return kv.Sample{Revision: rev, UnixNano: u.UnixNano}
		}
	}
	return s.passed
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
