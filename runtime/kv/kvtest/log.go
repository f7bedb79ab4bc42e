// Package kvtest is for tests of what follows a bucket: a simulated evicting log that behaves as a JetStream KV
// bucket does, its traps included (Log); a watcher that hands out exactly what a test wrote down (Script); and the
// conformance suite of the port, which every adapter passes (RunConformance).
package kvtest

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// Limits are a log's retention settings. They can be edited while it is in use (Log.SetLimits).
type Limits struct {
	// MaxAge is how long a message is kept; 0 is for good.
	MaxAge time.Duration
	// MaxMessages discards the oldest messages beyond this many; 0 is no limit.
	MaxMessages int
	// AllowTTL lets a put name a TTL.
	AllowTTL bool
	// MarkerTTL, when not 0, writes a marker for a key whose last value ages out, and keeps it that long.
	MarkerTTL time.Duration
	// Evicts says that the settings can evict current values though none of the above is set: for tests that evict by
	// hand (Log.EvictTo, Log.AgeOut).
	Evicts bool
	// Sealed says that nothing can take a delete marker out of the log's inside, and refuses purges. A test still can
	// (Log.PurgeMarkers).
	Sealed bool
}

func (s Limits) markers() protocol.MarkerRules {
	return protocol.MarkerRules{Purge: !s.Sealed, Delete: !s.Sealed, Rollup: !s.Sealed, MessageTTL: s.AllowTTL || s.MarkerTTL > 0, MarkerTTL: int64(s.MarkerTTL)}
}

func (s Limits) evictsCurrentValues() bool {
	return s.Evicts || s.MaxAge > 0 || s.MaxMessages > 0 || s.AllowTTL
}

// Options make a Log. The zero value is a bucket "sim" with history 1 that never evicts.
type Options struct {
	// Bucket is the bucket's name; default "sim".
	Bucket string
	// History is how many messages of a key are kept; default 1.
	History int
	// Now is the server's clock; default time.Now, which is virtual inside a synctest bubble. With another clock a
	// blocked Next does not wake by itself when something ages out: call Log.Tick.
	Now func() time.Time
	// EmptyPutIsTombstone reads a put without bytes as a delete, for buckets that the Rust library slipstream writes.
	EmptyPutIsTombstone bool
	// Limits are the first retention settings.
	Limits Limits
	// Prefetch is how many messages a watch takes from the log ahead of its reader, as a pull consumer with requests in
	// flight does. 0 reads the log only inside Next, so whatever is superseded or evicted before is never seen.
	Prefetch int
}

type fate uint8

const (
	alive fate = iota
	superseded
	removed // by retention or an administrator: nothing brings it back
)

type message struct {
	update  kv.Update
	rev     uint64
	expires int64 // Unix nanoseconds; 0 is never
	ttl     bool  // the expiry is the message's own, not MaxAge's
	forever bool
	fate    fate
}

// Log is a simulated JetStream KV bucket in memory. It implements kv.Bucket, is safe for concurrent use, has no
// goroutine of its own, and gives the same answers for the same calls. Every message has its own time: a clock that
// stands still moves by a nanosecond a message.
type Log struct {
	opts Options

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	limits  Limits
	created int64
	stamp   int64      // the newest time handed out
	due     int64      // when not 0, the time at which what is being done should have been done
	msgs    []*message // by revision-1, dead ones too
	first   uint64
	live    int
	byKey   map[string][]uint64 // live revisions, oldest first
	soonest int64               // no message ages out before
	watches []*watch

	faults   []*armedFault
	calls    [pointCount]int
	lastInfo kv.LogInfo
}

var _ kv.Bucket = (*Log)(nil)

// NewLog makes an empty log.
func NewLog(o Options) *Log {
	if o.Bucket == "" {
		o.Bucket = "sim"
	}
	if o.History < 1 {
		o.History = 1
	}
	l := &Log{opts: o, limits: o.Limits, changed: make(chan struct{})}
	l.reset()
	return l
}

// Name is the bucket's name.
func (l *Log) Name() string { return l.opts.Bucket }

func (l *Log) now() time.Time {
	if l.opts.Now != nil {
		return l.opts.Now()
	}
	return time.Now()
}

// tick hands out a server time that nobody had before.
func (l *Log) tick() int64 {
	now := l.due
	if now == 0 {
		now = l.now().UnixNano()
	}
	l.stamp = max(now, l.stamp+1)
	return l.stamp
}

func (l *Log) reset() {
	l.created = l.tick()
	l.msgs, l.first, l.live = nil, 0, 0
	l.byKey = map[string][]uint64{}
	l.soonest = math.MaxInt64
}

func (l *Log) last() uint64 { return uint64(len(l.msgs)) }

func (l *Log) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Log) info() kv.LogInfo {
	return kv.LogInfo{
		Bucket:     l.opts.Bucket,
		Created:    time.Unix(0, l.created),
		First:      l.first,
		Last:       l.last(),
		Messages:   uint64(l.live),
		Subjects:   uint64(len(l.byKey)),
		ServerTime: l.now(),
		Retention:  kv.Retention{EvictsCurrentValues: l.limits.evictsCurrentValues(), EvictsInside: l.limits.AllowTTL, First: l.first},
		Markers:    l.limits.markers(),
	}
}

// lastOf is the key's newest message, nil when the log holds none.
func (l *Log) lastOf(key string) *message {
	revs := l.byKey[key]
	if len(revs) == 0 {
		return nil
	}
	return l.msgs[revs[len(revs)-1]-1]
}

type header struct {
	op          protocol.KVOperation
	marker      protocol.MarkerReason
	rollup      bool
	ttl         time.Duration
	forever     bool // a TTL of never: MaxAge does not count
	contentType string
}

// write appends one message and applies the limits, as the stream's leader does in one step.
func (l *Log) write(key string, value []byte, h header) uint64 {
	u := kv.Update{Key: key, Value: slices.Clone(value), ContentType: h.contentType, Version: kv.Revision(l.last() + 1), UnixNano: l.tick()}
	u.Op, u.Reason = meaning(h, len(value) == 0, l.opts.EmptyPutIsTombstone)
	m := &message{update: u, rev: l.last() + 1, forever: h.forever}
	l.msgs = append(l.msgs, m)
	if l.live++; l.first == 0 {
		l.first = 1
	}
	l.setExpiry(m, h.ttl)
	l.byKey[key] = append(l.byKey[key], m.rev)
	keep := l.opts.History
	if h.rollup {
		keep = 1
	}
	for len(l.byKey[key]) > keep {
		l.drop(l.msgs[l.byKey[key][0]-1], superseded)
	}
	for l.limits.MaxMessages > 0 && l.live > l.limits.MaxMessages {
		l.drop(l.msgs[l.first-1], removed)
	}
	l.prefetch()
	l.wake()
	return m.rev
}

func meaning(h header, empty, emptyIsTombstone bool) (kv.Op, kv.Reason) {
	reason := kv.ReasonUser
	switch h.marker {
	case protocol.MarkerMaxAge:
		reason = kv.ReasonMaxAge
	case protocol.MarkerPurge:
		reason = kv.ReasonPurge
	case protocol.MarkerRemove:
		reason = kv.ReasonRemove
	}
	switch protocol.EventKindOf(h.op, h.marker, empty, emptyIsTombstone) {
	case protocol.EventDelete:
		return kv.OpDelete, reason
	case protocol.EventPurge:
		return kv.OpPurge, reason
	case protocol.EventAgedOut:
		return kv.OpAgedOut, reason
	default:
		return kv.OpPut, reason
	}
}

// drop takes a message out of the log; the revisions of the others stay.
func (l *Log) drop(m *message, how fate) {
	if m.fate != alive {
		return
	}
	m.fate = how
	l.live--
	key := m.update.Key
	revs := l.byKey[key]
	if i := slices.Index(revs, m.rev); i == 0 && len(revs) == 1 {
		delete(l.byKey, key)
	} else {
		l.byKey[key] = slices.Delete(revs, i, i+1)
	}
	for l.first <= l.last() && l.msgs[l.first-1].fate != alive {
		l.first++
	}
}

func (l *Log) setExpiry(m *message, ttl time.Duration) {
	m.expires, m.ttl = 0, ttl > 0
	if l.limits.MaxAge > 0 && !m.forever {
		m.expires = m.update.UnixNano + int64(l.limits.MaxAge)
	}
	if at := m.update.UnixNano + int64(ttl); ttl > 0 && (m.expires == 0 || at < m.expires) {
		m.expires = at
	}
	if m.expires != 0 {
		l.soonest = min(l.soonest, m.expires)
	}
}

// expire ages out what is due, oldest deadline first, and writes the markers for it.
func (l *Log) expire() {
	now := l.now().UnixNano()
	defer func() { l.due = 0 }()
	for now >= l.soonest {
		m := l.nextExpiry()
		if m == nil || m.expires > now {
			return
		}
		l.due = m.expires
		l.ageOut(m, l.limits.MarkerTTL > 0 && l.lastOf(m.update.Key) == m)
	}
}

// ageOut removes a message as its age does. The server leaves a marker for any last message but its own markers and a
// KV purge, so for a KV delete too: a reader that missed the delete is then told of an aged-out value.
func (l *Log) ageOut(m *message, marker bool) {
	isMarker := m.update.Reason != kv.ReasonUser || m.update.Op == kv.OpPurge
	l.drop(m, removed)
	if marker && !isMarker {
		l.write(m.update.Key, nil, header{marker: protocol.MarkerMaxAge, rollup: true, ttl: l.limits.MarkerTTL})
		return
	}
	l.wake()
}

// nextExpiry is the live message that ages out first; nil when none will.
func (l *Log) nextExpiry() *message {
	var next *message
	l.soonest = math.MaxInt64
	for i := max(l.first, 1); i <= l.last(); i++ {
		if m := l.msgs[i-1]; m.fate == alive && m.expires != 0 && m.expires < l.soonest {
			next, l.soonest = m, m.expires
		}
	}
	return next
}
