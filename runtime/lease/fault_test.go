package lease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/lease"
)

// step is one of a lease's writes: what comes before it, the write itself, and what is stored after it.
type step struct {
	prepare func(t *testing.T, log *kvtest.Log, c *clock) *lease.Guard
	// write reports whether it was recorded.
	write func(ctx context.Context, l *lease.Lease, g *lease.Guard) (recorded bool, err error)
	reads bool   // first
	want  string // "" is a tombstone
}

const held = `{"holder_id":"mine","acquired_at_unix":1718000000,"expires_at_unix":1718000300`

func steps() map[string]step {
	acquired := func(ctx context.Context, l *lease.Lease, _ *lease.Guard) (bool, error) {
		g, won, err := l.TryAcquire(ctx, ttl)
		if won != (g != nil) {
			return false, errors.New("a guard that was not won, or none that was")
		}
		return won, err
	}
	guarded := func(t *testing.T, log *kvtest.Log, c *clock) *lease.Guard {
		return acquire(t, leaseOf(t, log, "mine", c))
	}
	return map[string]step{
		"create": {
			prepare: func(*testing.T, *kvtest.Log, *clock) *lease.Guard { return nil },
			write:   acquired, reads: true, want: held + "}",
		},
		"create over a tombstone": {
			prepare: func(_ *testing.T, log *kvtest.Log, _ *clock) *lease.Guard {
				log.Set(key, "x")
				log.Remove(key)
				return nil
			},
			write: acquired, reads: true, want: held + "}",
		},
		"steal": {
			prepare: func(_ *testing.T, log *kvtest.Log, _ *clock) *lease.Guard { log.Set(key, "corrupt"); return nil },
			write:   acquired, reads: true, want: held + "}",
		},
		"complete": {
			prepare: guarded,
			write: func(ctx context.Context, _ *lease.Lease, g *lease.Guard) (bool, error) {
				o, err := g.Complete(ctx, kv.CursorAt(5))
				return o == lease.OutcomeRecorded, err
			},
			want: held + `,"completed_cursor_hex":"0000000000000005","completed_at_unix":1718000000}`,
		},
		"abandon": {
			prepare: guarded,
			write: func(ctx context.Context, _ *lease.Lease, g *lease.Guard) (bool, error) {
				o, err := g.Abandon(ctx)
				return o == lease.OutcomeRecorded, err
			},
		},
	}
}

const others = `{"holder_id":"other","acquired_at_unix":1718000000,"expires_at_unix":1718009999}`

type lossWant struct {
	recorded, unknown, failed bool
	others                    bool // what is stored is the other's
	writes                    uint64
}

type loss struct {
	faults []kvtest.Fault
	want   lossWant
}

// losses are the ways in which a write's answer is lost. reads is how many reads come before the write.
func losses(reads int) map[string]loss {
	interloper := func(l *kvtest.Log) { l.Set(key, others) }
	unknown := func(skip, times int) kvtest.Fault {
		return kvtest.Fault{At: kvtest.PointWrite, Skip: skip, Times: times, Err: kv.ErrOutcomeUnknown}
	}
	stored := func(skip int) kvtest.Fault {
		return kvtest.Fault{At: kvtest.PointWrite, Skip: skip, AnswerLost: true}
	}
	unread := func(skip int) kvtest.Fault {
		return kvtest.Fault{At: kvtest.PointRead, Skip: reads + skip, Fail: true}
	}
	faster := func(p kvtest.Point, skip int) kvtest.Fault { return kvtest.Fault{At: p, Skip: skip, Do: interloper} }
	refused := func(skip int) kvtest.Fault { return kvtest.Fault{At: kvtest.PointWrite, Skip: skip, Fail: true} }
	return map[string]loss{
		"none":                      {nil, lossWant{recorded: true, writes: 1}},
		"stored":                    {[]kvtest.Fault{stored(0)}, lossWant{recorded: true, writes: 1}},
		"not stored":                {[]kvtest.Fault{unknown(0, 1)}, lossWant{recorded: true, writes: 1}},
		"not stored twice":          {[]kvtest.Fault{unknown(0, 2)}, lossWant{recorded: true, writes: 1}},
		"not stored, then stored":   {[]kvtest.Fault{unknown(0, 1), stored(1)}, lossWant{recorded: true, writes: 1}},
		"never stored":              {[]kvtest.Fault{unknown(0, 9)}, lossWant{unknown: true}},
		"stored and unread":         {[]kvtest.Fault{stored(0), unread(0)}, lossWant{unknown: true, writes: 1}},
		"stored in the end, unread": {[]kvtest.Fault{unknown(0, 1), stored(1), unread(1)}, lossWant{unknown: true, writes: 1}},
		"another is faster":         {[]kvtest.Fault{faster(kvtest.PointWrite, 0)}, lossWant{others: true, writes: 1}},
		"not stored, another then":  {[]kvtest.Fault{unknown(0, 1), faster(kvtest.PointRead, reads)}, lossWant{others: true, writes: 1}},
		"another before the retry":  {[]kvtest.Fault{unknown(0, 1), faster(kvtest.PointWrite, 1)}, lossWant{others: true, writes: 1}},
		"refused":                   {[]kvtest.Fault{refused(0)}, lossWant{failed: true}},
		"not stored, then refused":  {[]kvtest.Fault{unknown(0, 1), refused(1)}, lossWant{unknown: true}},
	}
}

// Every write of a lease under every loss of its answer.
func TestLostAnswers(t *testing.T) {
	for stepName, s := range steps() {
		reads := 0
		if s.reads {
			reads = 1
		}
		for name, c := range losses(reads) {
			t.Run(stepName+"/"+name, func(t *testing.T) {
				log, clk := kvtest.NewLog(kvtest.Options{}), newClock()
				g := s.prepare(t, log, clk)
				l := leaseOf(t, log, "mine", clk)
				head := last(t, log)
				log.Inject(c.faults...)
				recorded, err := s.write(bounded(t), l, g)
				log.ClearFaults()
				if recorded != c.want.recorded || errors.Is(err, kv.ErrOutcomeUnknown) != c.want.unknown || (err != nil) != (c.want.unknown || c.want.failed) {
					t.Fatalf("recorded %v, %v", recorded, err)
				}
				if n := last(t, log) - head; n != c.want.writes {
					t.Errorf("%d messages were written", n)
				}
				switch {
				case c.want.others:
					wantValue(t, log, others)
				case c.want.recorded && s.want == "":
					if e, err := log.Entry(bounded(t), key); err != nil || !e.IsTombstone() {
						t.Errorf("%+v %v", e, err)
					}
				case c.want.recorded:
					wantValue(t, log, s.want)
				}
			})
		}
	}
}

// A write without an answer may be stored after its key was read again: then the second one is refused, and it is ours.
func TestStoredWhileAskedAgain(t *testing.T) {
	for name, s := range steps() {
		log, clk := kvtest.NewLog(kvtest.Options{}), newClock()
		g := s.prepare(t, log, clk)
		arrives := func(l *kvtest.Log) {
			if s.want == "" {
				l.Remove(key)
			} else {
				l.Set(key, s.want)
			}
		}
		head := last(t, log)
		log.Inject(kvtest.Fault{At: kvtest.PointWrite, Err: kv.ErrOutcomeUnknown}, kvtest.Fault{At: kvtest.PointWrite, Skip: 1, Do: arrives})
		if recorded, err := s.write(bounded(t), leaseOf(t, log, "mine", clk), g); !recorded || err != nil || last(t, log) != head+1 {
			t.Errorf("%s: %v %v", name, recorded, err)
		}
	}
}

// What a failed read or write left open can be tried again.
func TestResolveIsTriedAgain(t *testing.T) {
	for name, s := range steps() {
		log, clk := kvtest.NewLog(kvtest.Options{}), newClock()
		g := s.prepare(t, log, clk)
		l := leaseOf(t, log, "mine", clk)
		for _, f := range []kvtest.Fault{{At: kvtest.PointWrite, Fail: true}, {At: kvtest.PointWrite, Err: kv.ErrOutcomeUnknown, Times: 3}} {
			log.Inject(f)
			if recorded, err := s.write(bounded(t), l, g); recorded || err == nil {
				t.Fatalf("%s: %v %v", name, recorded, err)
			}
		}
		if recorded, err := s.write(bounded(t), l, g); !recorded || err != nil {
			t.Errorf("%s: %v %v", name, recorded, err)
		}
	}
}

// A key that vanishes between the read and the write was not won: nobody knows who else saw it.
func TestKeyGoneBetweenReadAndWrite(t *testing.T) {
	log, c := kvtest.NewLog(kvtest.Options{}), newClock()
	log.Set(key, "corrupt")
	log.Inject(kvtest.Fault{At: kvtest.PointWrite, Do: func(l *kvtest.Log) { l.AgeOut(key, false) }})
	wantHeld(t, leaseOf(t, log, "mine", c))
	acquire(t, leaseOf(t, log, "mine", c))
}

func TestUnreadableLease(t *testing.T) {
	log, c := kvtest.NewLog(kvtest.Options{}), newClock()
	l := leaseOf(t, log, "mine", c)
	log.Inject(kvtest.Fault{At: kvtest.PointRead, Times: 2, Fail: true})
	if _, won, err := l.TryAcquire(bounded(t), ttl); won || !errors.Is(err, kvtest.ErrInjected) || errors.Is(err, kv.ErrOutcomeUnknown) {
		t.Error(won, err)
	}
	if _, ok, err := l.Current(bounded(t)); ok || !errors.Is(err, kvtest.ErrInjected) {
		t.Error(ok, err)
	}
	if log.Calls(kvtest.PointWrite) != 0 {
		t.Error("something was written unseen")
	}
}

// Every call ends with its context, and says that it left the outcome open.
func TestContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, s := range steps() {
			log, clk := kvtest.NewLog(kvtest.Options{}), newClock()
			g := s.prepare(t, log, clk)
			l := leaseOf(t, log, "mine", clk)
			log.Inject(kvtest.Fault{At: kvtest.PointWrite, Delay: -1})
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			began := time.Now()
			recorded, err := s.write(ctx, l, g)
			cancel()
			if recorded || !errors.Is(err, kv.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
				t.Errorf("%s: %v %v after %v", name, recorded, err, time.Since(began))
			}
			if recorded, err := s.write(ctx, l, g); recorded || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, kv.ErrOutcomeUnknown) {
				t.Errorf("%s, ended: %v %v", name, recorded, err)
			}
		}
	})
}
