package fold_test

import (
	"time"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
)

var dstEvicts = kvtest.Limits{Evicts: true}

// Writes of the stories on an evicting log: the fold has seen three messages, five more followed. At 4 is a write that only
// an artifact has by then, at 5 a delete whose marker is gone.
var (
	dstSeen   = []string{"n.old", "n.dead", "n.both"}
	dstUnseen = []string{"n.gap", "-n.dead", "n.both", "n.new", "n.later"}
)

// dstAway lets the fold have the first messages and miss the rest, of which an artifact has all but the last.
func dstAway(w *dstWorld) {
	w.write(dstSeen...)
	w.follow()
	w.write(dstUnseen[:4]...)
	w.export("a", 3, -1)
	w.write(dstUnseen[4:]...)
}

// dstRelisted lets the fold miss deletes whose markers were purged, on a log that keeps values. Its first revision is 8.
func dstRelisted(w *dstWorld) {
	w.write("n.a", "n.dead", "n.k")
	w.follow()
	dstPurged(w)
}

func dstPurged(w *dstWorld) {
	w.write("n.a", "-n.dead", "n.c", "-n.c", "n.k", "n.a")
	w.log.PurgeMarkers()
}

// dstCut loses the watch, for longer than what follows counts as its continuation.
func dstCut(w *dstWorld, meanwhile func(l *kvtest.Log)) {
	w.deliver(2, func(l *kvtest.Log) {
		meanwhile(l)
		l.Inject(kvtest.Fault{At: kvtest.PointOpen, Delay: 20 * time.Minute, Fail: true})
		l.LoseWatches()
	})
}

// dstStories are those that the Rust library slipstream is tested with.
var dstStories = []*dstStory{
	{
		name: "expired at a start, restored", limits: dstEvicts, plans: "restore",
		before: func(w *dstWorld) {
			dstAway(w)
			w.log.EvictTo(6)
		},
	},
	{
		name: "expired while it watched, restored", limits: dstEvicts, plans: "restore", before: dstAway,
		during: func(w *dstWorld) { w.deliver(2, func(l *kvtest.Log) { l.EvictTo(7) }) },
	},
	{
		name: "a prefix expired while it watched, restored", limits: dstEvicts, scope: []string{"n."}, plans: "restore",
		before: func(w *dstWorld) {
			w.write("n.old", "x.1", "n.dead", "n.both")
			w.follow()
			w.seedForeign("x.foreign")
			w.write("n.gap", "x.1", "-n.dead", "n.both", "x.2", "n.new")
			w.export("a", 4, -1)
			w.write("x.3", "n.later", "x.4")
		},
		during: func(w *dstWorld) { w.deliver(1, func(l *kvtest.Log) { l.EvictTo(9) }) },
	},
	{
		name: "a first start on an evicting log, restored", limits: dstEvicts, plans: "restore",
		before: func(w *dstWorld) {
			w.write(dstSeen...)
			w.write(dstUnseen[:4]...)
			w.export("a", 7, -1)
			w.write(dstUnseen[4:]...)
			w.log.EvictTo(6)
		},
	},
	{
		name: "data without a cursor on an evicting log, restored", limits: dstEvicts, plans: "restore",
		before: func(w *dstWorld) {
			w.write(dstSeen...)
			w.seedTorn(3)
			w.write(dstUnseen[:4]...)
			w.export("a", 7, -1)
			w.write(dstUnseen[4:]...)
			w.log.EvictTo(6)
		},
	},
	{
		name: "two prefixes expired while they were watched, restored", limits: dstEvicts, scope: []string{"n.", "m."}, plans: "restore",
		before: func(w *dstWorld) {
			w.write("n.old", "x.1", "m.dead", "n.both")
			w.follow()
			w.seedForeign("x.foreign")
			w.write("m.gap", "x.1", "-m.dead", "n.both", "-x.1", "m.new")
			w.export("a", 4, -1)
			w.write("x.3", "n.later", "m.later")
		},
		during: func(w *dstWorld) { w.deliver(1, func(l *kvtest.Log) { l.EvictTo(9) }) },
	},
	{
		name: "restored from a fold that was hydrating", limits: dstEvicts, plans: "restore",
		before: func(w *dstWorld) {
			w.write(dstSeen...)
			w.follow()
			w.write(dstUnseen...)
			w.export("a", 0, 4) // up to 6
		},
		during: func(w *dstWorld) { w.deliver(1, func(l *kvtest.Log) { l.EvictTo(6) }) },
	},
	{
		name: "restored from a fold that was catching up", limits: dstEvicts, plans: "restore",
		before: func(w *dstWorld) {
			w.write("n.old", "n.dead", "n.straddles")
			w.follow()
			w.write("n.gap", "-n.dead", "n.straddles", "n.new", "n.straddles")
			w.export("a", 2, 3) // up to 7, without the key that was written again at 8
			w.log.EvictTo(6)
		},
	},
	{
		name: "expired at a start, re-listed", repair: fold.RepairOptions{Mode: fold.RepairRelist}, plans: "relist", before: dstRelisted,
	},
	{
		name: "cut off for long, re-listed", repair: fold.RepairOptions{Mode: fold.RepairRelist}, plans: "relist",
		before: func(w *dstWorld) {
			w.write("n.a", "n.dead", "n.k")
			w.follow()
			w.write("n.b", "n.d")
		},
		during: func(w *dstWorld) {
			dstCut(w, func(l *kvtest.Log) {
				w.write("n.a", "-n.dead", "n.c", "-n.c", "n.k", "n.a", "n.b", "n.d")
				l.PurgeMarkers()
			})
		},
	},
	{
		name: "expired while it watched, re-listed by its own choice", plans: "relist",
		before: func(w *dstWorld) {
			w.write("n.a", "n.dead", "n.k")
			w.follow()
			w.write("n.b", "n.d")
		},
		during: func(w *dstWorld) {
			expired := &kv.ExpiredError{Bucket: "test", Cursor: kv.CursorAt(4), First: 10}
			w.arm(kvtest.Fault{At: kvtest.PointNext, Limit: 1}, kvtest.Fault{At: kvtest.PointNext, Skip: 1, Err: expired, Do: func(l *kvtest.Log) {
				w.write("n.a", "-n.dead", "n.c", "-n.c", "n.k", "n.a", "n.b", "n.d")
				l.PurgeMarkers()
			}})
		},
	},
	{
		name: "data without a cursor, re-listed", plans: "relist",
		before: func(w *dstWorld) {
			w.write("n.a", "n.dead", "n.k")
			w.seedTorn(3)
			dstPurged(w)
		},
	},
	{
		name: "overlapping prefixes, re-listed", scope: []string{"n.", "n.k"}, plans: "relist",
		before: func(w *dstWorld) {
			w.write("n.a", "n.k1", "x.1", "n.k2")
			w.follow()
			w.seedForeign("x.foreign")
			w.write("n.a", "-n.k1", "x.1", "n.k3", "-n.k3", "n.k2", "n.k2")
			w.log.PurgeMarkers()
			w.write("n.a")
		},
	},
	{
		name: "a resume over churn",
		before: func(w *dstWorld) {
			w.write("n.keep", "n.a", "n.dead", "n.again")
			w.follow()
			w.write("n.a", "-n.dead", "-n.again", "n.again", "n.brief", "-n.brief")
		},
	},
	{
		name: "a resume keeps what aged out", limits: dstEvicts,
		before: func(w *dstWorld) {
			w.write("n.old", "n.dead", "n.both")
			w.follow()
			w.write("-n.dead", "n.both", "n.new")
			w.log.EvictTo(4)
		},
	},
	{name: "a first start", before: func(w *dstWorld) { w.write("n.a", "n.b", "n.c", "-n.b", "n.a", "n.d") }},
	{
		name: "a resume of two prefixes", scope: []string{"n.", "m."},
		before: func(w *dstWorld) {
			w.write("n.keep", "x.1", "m.a", "n.dead")
			w.follow()
			w.seedForeign("x.foreign")
			w.write("m.a", "x.2", "-n.dead", "m.b", "-x.1")
		},
	},
}
