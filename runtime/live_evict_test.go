package fold_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
	"github.com/typedfold/fold/runtime/repair"
)

// retentions are the ways in which a bucket loses current values: how an operator turns each on, makes it take nothing
// more while it still can, and turns it off.
var retentions = map[string]struct{ on, relax, off func(*jetstream.StreamConfig) }{
	"discard old": {
		on:    func(c *jetstream.StreamConfig) { c.Discard, c.MaxMsgs = jetstream.DiscardOld, 2 },
		relax: func(c *jetstream.StreamConfig) { c.MaxMsgs = 1000 },
		off:   func(c *jetstream.StreamConfig) { c.Discard, c.MaxMsgs = jetstream.DiscardNew, -1 },
	},
	"max_age": {
		on:    func(c *jetstream.StreamConfig) { c.MaxAge, c.Duplicates = 200*time.Millisecond, 200*time.Millisecond },
		relax: func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
		off:   func(c *jetstream.StreamConfig) { c.MaxAge = 0 },
	},
}

func eachRetention(t *testing.T, f func(t *testing.T, l *live, retention string)) {
	for name := range retentions {
		t.Run(name, func(t *testing.T) {
			eachBackend(t, func(t *testing.T, b backend) { f(t, newLive(t, b, natskv.BucketConfig{}), name) })
		})
	}
}

// evict has retention take what the log holds up to a revision.
func (l *live) evict(t *testing.T, retention string, through uint64) {
	t.Helper()
	l.edit(t, retentions[retention].on)
	l.until(t, "retention", func(i kv.LogInfo) bool { return i.First > through })
}

// overtaken is a bucket that retention emptied while the node was away: of what the node held, a key has aged out and
// another one was deleted, and a write came and aged out. The exporter saw it all.
type overtaken struct {
	*live
	exporter *tables
	was      fold.Digest // the node's
}

func overtake(t *testing.T, l *live, retention string) overtaken {
	t.Helper()
	o := overtaken{live: l, exporter: l.node(t, "exporter", startOptions{})}
	o.exporter.hydrated(t)
	for _, domain := range []string{"aged", "gone", "kept"} {
		l.put(t, domain, "1")
	}
	o.was, _ = l.visit(t, "node", startOptions{})
	l.caughtUp(t, o.exporter)
	l.export(t, o.exporter, "same")
	l.put(t, "early", "1")
	l.caughtUp(t, o.exporter)
	l.export(t, o.exporter, "stale")
	l.put(t, "gap", "1")
	through := l.del(t, "gone")
	l.put(t, "filler", "1")
	l.put(t, "kept", "2")
	l.caughtUp(t, o.exporter)
	l.evict(t, retention, through)
	return o
}

func TestLiveAgedOutKeyKeptAndGapWriteRecoveredByRestore(t *testing.T) {
	eachRetention(t, func(t *testing.T, l *live, retention string) {
		o := overtake(t, l, retention)
		o.export(t, o.exporter, "good")
		tb := o.node(t, "node", startOptions{fold: fold.Options{Repair: fold.RepairOptions{Source: o.source(), Scratch: o.dir}}})
		tb.hydrated(t)
		o.caughtUp(t, tb)
		for domain, node := range map[string]string{"aged": "1", "gone": "", "kept": "2", "gap": "1", "early": "1"} {
			wantRoute(t, tb, "t", domain, node)
		}
		if digestOf(t, tb) != digestOf(t, o.exporter) {
			t.Error("the node is not what the exporter is")
		}
		st := tb.f.Status()
		if r := st.Repair; r == nil || r.Plan != "restore" || r.Artifact != "good" || r.Deleted != 1 || !tb.f.Cursor().SeenEvicting {
			t.Errorf("repair %+v, cursor %v", r, tb.f.Cursor())
		}
		l.edit(t, retentions[retention].relax)
		for _, f := range []*tables{tb, o.exporter} { // both go on
			applied(t, f, fold.Seq(o.put(t, "later", "1")))
			wantRoute(t, f, "t", "later", "1")
		}
	})
}

func TestLiveRelistRefusedOnAnEvictingBucket(t *testing.T) {
	eachRetention(t, func(t *testing.T, l *live, retention string) {
		o := overtake(t, l, retention)
		o.export(t, o.exporter, "good")
		tb := o.node(t, "node", startOptions{fold: fold.Options{Repair: fold.RepairOptions{Mode: fold.RepairRelist, Source: o.source()}}})
		wantRefused(t, tb, "refuse relist", fold.ErrCursorExpired, o.was)
		wantRoute(t, tb, "t", "aged", "1")
		tb.close(t)
		tb = o.node(t, "node", startOptions{}) // by itself, and without a source
		wantRefused(t, tb, "no restore source", fold.ErrCursorExpired, o.was)
	})
}

func TestLiveStaleArtifactRefused(t *testing.T) {
	eachRetention(t, func(t *testing.T, l *live, retention string) {
		o := overtake(t, l, retention)
		tb := o.node(t, "node", startOptions{fold: fold.Options{Repair: fold.RepairOptions{Source: o.source(), Scratch: o.dir}}})
		wantRefused(t, tb, "restore", fold.ErrCursorExpired, o.was)
		var no *repair.RestoreRefusedError
		if !errors.As(tb.f.Err(), &no) || len(no.Candidates) != 2 {
			t.Fatalf("stopped with %v", tb.f.Err())
		}
		for i, want := range []struct{ id, why string }{{"stale", "log"}, {"same", "not ahead"}} {
			if c := no.Candidates[i]; c.ID != want.id || !strings.Contains(c.Why, want.why) {
				t.Errorf("candidate %+v", c)
			}
		}
		if !strings.Contains(no.Hint(), "export") {
			t.Errorf("hint %q", no.Hint())
		}
	})
}

// TestLiveEvictionTurnedOffNeverTrustsTheListing: what a listing lacks may have aged out while the bucket still evicted,
// whatever its settings say by now.
func TestLiveEvictionTurnedOffNeverTrustsTheListing(t *testing.T) {
	// wantNoTrust has the head pass the node's cursor on a bucket that evicts nothing any more, and starts it.
	wantNoTrust := func(t *testing.T, l *live, was fold.Digest) {
		t.Helper()
		for range 2 {
			l.put(t, "hot", "1")
			l.put(t, "filler", "2")
			l.put(t, "kept", "2")
		}
		if info := l.info(t); info.Retention.EvictsCurrentValues {
			t.Fatalf("log %+v", info)
		}
		for mode, plan := range map[repair.Mode]string{fold.RepairRelist: "refuse relist", fold.RepairAuto: "no restore source"} {
			tb := l.node(t, "node", startOptions{fold: fold.Options{Repair: fold.RepairOptions{Mode: mode}}})
			wantRefused(t, tb, plan, fold.ErrCursorExpired, was)
			wantRoute(t, tb, "t", "aged", "1")
			if !tb.f.Cursor().SeenEvicting {
				t.Errorf("cursor %v", tb.f.Cursor())
			}
			tb.close(t)
		}
	}
	t.Run("seen while it ran", func(t *testing.T) {
		eachRetention(t, func(t *testing.T, l *live, retention string) {
			aged := l.put(t, "aged", "1")
			l.put(t, "filler", "1")
			l.put(t, "kept", "1")
			l.visit(t, "node", startOptions{})
			l.evict(t, retention, aged)
			was, cursor := l.visit(t, "node", startOptions{})
			if !cursor.SeenEvicting {
				t.Fatalf("cursor %v", cursor)
			}
			l.edit(t, retentions[retention].off)
			wantNoTrust(t, l, was)
		})
	})
	t.Run("refused once and down since", func(t *testing.T) {
		eachRetention(t, func(t *testing.T, l *live, retention string) {
			o := overtake(t, l, retention)
			tb := o.node(t, "node", startOptions{})
			wantRefused(t, tb, "no restore source", fold.ErrCursorExpired, o.was)
			tb.close(t)
			l.caughtUp(t, o.exporter)
			l.edit(t, retentions[retention].off)
			wantNoTrust(t, l, o.was)

			l.caughtUp(t, o.exporter)
			l.export(t, o.exporter, "good")
			tb = l.node(t, "node", startOptions{fold: fold.Options{Repair: fold.RepairOptions{Source: l.source(), Scratch: l.dir}}})
			tb.hydrated(t)
			if digestOf(t, tb) != digestOf(t, o.exporter) {
				t.Error("the node is not what the exporter is")
			}
		})
	})
}

// TestLiveBurstTripsTheGuard: 20 MB run through a bucket of 4 MiB while a live node is stalled. It is told so in process,
// and ends as the exporter.
func TestLiveBurstTripsTheGuard(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		l := newLive(t, b, natskv.BucketConfig{MaxBytes: 4 << 20, DiscardOld: true})
		exporter := l.node(t, "exporter", startOptions{})
		exporter.hydrated(t)
		l.put(t, "aged", "1")
		l.put(t, "gone", "1")

		r := newReports()
		slow, err := natskv.Bind(bounded(t), l.js, "test", natskv.BucketConfig{Watch: natskv.WatchConfig{Batch: 16, MaxBytes: 128 << 10}})
		if err != nil {
			t.Fatal(err)
		}
		st := newStall(t, l.store(t, "node"))
		tb := start(t, slow, st, startOptions{fold: fold.Options{
			Events: r.events(), Batch: fold.BatchOptions{Max: 4, MaxBytes: 128 << 10, Queue: 4},
			Repair: fold.RepairOptions{Source: l.source(), Scratch: l.dir},
		}})
		tb.hydrated(t)
		st.hold()
		l.del(t, "gone")
		value := strings.Repeat("x", 64<<10)
		const chunk = 16
		for i := 0; i < 20<<20/len(value); i += chunk {
			l.burst(t, i, chunk, value)
			l.caughtUp(t, exporter)
		}
		l.export(t, exporter, "good")
		if info := l.info(t); tb.f.Cursor().Revision() >= info.First-1 || info.Messages > 64 {
			t.Fatalf("cursor %v, log %+v", tb.f.Cursor(), info)
		}
		st.release()
		l.caughtUp(t, tb)
		wantRoute(t, tb, "t", "aged", "1")
		wantRoute(t, tb, "t", "gone", "")
		if digestOf(t, tb) != digestOf(t, exporter) {
			t.Error("the node is not what the exporter is")
		}
		if why := r.started(); len(why) != 1 || !errors.Is(why[0], fold.ErrCursorExpired) {
			t.Errorf("repairs began because of %v", why)
		}
		if s := tb.f.Status(); s.Repair == nil || s.Repair.Plan != "restore" {
			t.Errorf("repair %+v", s.Repair)
		}
	})
}
