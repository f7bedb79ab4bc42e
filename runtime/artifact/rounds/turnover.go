package rounds

import (
	"math"
	"time"

	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/artifact/transport"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// maxLooks is how many readings of a log are kept. When there are more, every other one goes, so that they reach far back.
const maxLooks = 64

// shortest is the least time that a rate is taken over: one write between two readings a moment apart is no turnover.
const shortest = 10 * time.Second

// look is one reading of a log.
type look struct {
	at          time.Time // by the server's clock, where it says so
	first, last uint64
	bytes       uint64
}

// looks are readings of one log, the latest last.
type looks struct {
	log int64
	all []look
}

// timeOf is the time of a reading.
func timeOf(i kv.LogInfo) time.Time {
	if i.ServerTime.IsZero() {
		return time.Now()
	}
	return i.ServerTime
}

func (l *looks) add(i kv.LogInfo) {
	now, log := look{at: timeOf(i), first: i.First, last: i.Last, bytes: i.Bytes}, transport.End(i).Log
	n := len(l.all)
	switch {
	case log != l.log, n > 0 && (now.last < l.all[n-1].last || now.at.Before(l.all[n-1].at)):
		*l = looks{log: log} // another log, or one that went back, or a clock that did
	case n > 0 && now.at.Equal(l.all[n-1].at):
		l.all = l.all[:n-1]
	}
	l.all = append(l.all, now)
	if len(l.all) > maxLooks {
		kept := l.all[:0]
		for i, one := range l.all {
			if i%2 == 0 || i == len(l.all)-1 {
				kept = append(kept, one)
			}
		}
		l.all = kept
	}
}

// turnover is how fast the log loses its oldest revisions, at its fastest so far, of what ends now. A log that loses them
// by age alone says after how long. Any other one that can evict loses as many as are written, once it is full, or more,
// where an age that it does not tell takes them; the larger figure counts.
func (l *looks) turnover(r kv.Retention) protocol.Turnover {
	switch {
	case r.AgeLimit > 0:
		return protocol.Turnover{MaxAge: r.AgeLimit.Nanoseconds()}
	case !evicts(r) || len(l.all) < 2:
		return protocol.Turnover{}
	}
	var t protocol.Turnover
	now := l.all[len(l.all)-1]
	for _, then := range l.all[:len(l.all)-1] {
		n, over := now.last-then.last, max(shortest, now.at.Sub(then.at)).Nanoseconds()
		if now.first > then.first {
			n = max(n, now.first-then.first)
		}
		if t.Over == 0 || float64(n)/float64(over) > float64(t.Revisions)/float64(t.Over) {
			t.Revisions, t.Over = n, over
		}
	}
	return t
}

// room is how many more messages the log takes before it evicts one by a limit, if each takes as much as those that it
// holds do, or as those that were written between two readings, and none takes the place of an older one. 0 is unknown.
func (l *looks) room(i kv.LogInfo) uint64 {
	if i.Messages == 0 || i.MaxBytes == 0 && i.MaxMessages == 0 {
		return 0
	}
	room := uint64(math.MaxUint64)
	if i.MaxMessages > 0 {
		room = i.MaxMessages - min(i.Messages, i.MaxMessages)
	}
	if i.MaxBytes > 0 {
		each := max(1, up(i.Bytes, i.Messages))
		for _, then := range l.all {
			if i.Last > then.last && i.Bytes > then.bytes {
				each = max(each, up(i.Bytes-then.bytes, i.Last-then.last))
			}
		}
		room = min(room, (i.MaxBytes-min(i.Bytes, i.MaxBytes))/each)
	}
	return room
}

// up is a/b, rounded up.
func up(a, b uint64) uint64 { return a/b + min(a%b, 1) }

// evicts reports whether a restore may be the only way to repair a fold of the log.
func evicts(r kv.Retention) bool { return r.EvictsCurrentValues || r.Unknown }

// whole is a time before which nothing was written that the artifact does not have: that of its last message, or of the
// latest reading in which the log ended at or before its cursor. For one that says nothing and that no reading is old
// enough for, it is the time of its export, which is too late where the exporter was behind.
func (l *looks) whole(m *artifact.Manifest) int64 {
	at := int64(0)
	if w := m.Cursor.Written(); !w.IsZero() {
		at = w.UnixNano()
	}
	for _, s := range m.Log.Samples {
		if s.Revision <= m.Rank() {
			at = max(at, s.UnixNano)
		}
	}
	if m.Log.CreatedUnixNano == l.log {
		for _, one := range l.all {
			if one.last <= m.Rank() {
				at = max(at, one.at.UnixNano())
			}
		}
	}
	if at == 0 {
		at = m.Created.UnixNano()
	}
	return at
}
