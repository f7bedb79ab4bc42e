package dst

import (
	"time"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
)

var evicts = kvtest.Limits{Evicts: true}

// Writes of the stories on an evicting log: the fold has seen three messages, five more followed. At 4 is a write that only
// an artifact has by then, at 5 a delete whose marker is gone.
var (
	seen   = []string{"n.old", "n.dead", "n.both"}
	unseen = []string{"n.gap", "-n.dead", "n.both", "n.new", "n.later"}
)

// away lets the fold have the first messages and miss the rest, of which an artifact has all but the last.
func away(w *world) {
	w.write(seen...)
	w.follow()
	w.write(unseen[:4]...)
	w.exporter("a", 3, -1)
	w.write(unseen[4:]...)
}

// relisted lets the fold miss deletes whose markers were purged, on a log that keeps values. Its first revision is 8.
func relisted(w *world) {
	w.write("n.a", "n.dead", "n.k")
	w.follow()
	purged(w)
}

func purged(w *world) {
	w.write("n.a", "-n.dead", "n.c", "-n.c", "n.k", "n.a")
	w.log.PurgeMarkers()
}

// cutOff loses the watch, for longer than what follows counts as its continuation.
func cutOff(w *world, meanwhile func(l *kvtest.Log)) {
	w.deliver(2, func(l *kvtest.Log) {
		meanwhile(l)
		l.Inject(kvtest.Fault{At: kvtest.PointOpen, Times: 2, Delay: 20 * time.Minute, Fail: true})
		l.LoseWatches()
	})
}

// seedStories are those that the Rust library slipstream is tested with.
var seedStories = []*story{
	{
		name: "expired at a start, restored", owes: kv.OwesIdentity, limits: evicts, plans: "restore",
		before: func(w *world) {
			away(w)
			w.log.EvictTo(6)
		},
	},
	{
		name: "expired while it watched, restored", owes: kv.OwesIdentity, limits: evicts, plans: "restore", before: away,
		during: func(w *world) { w.deliver(2, func(l *kvtest.Log) { l.EvictTo(7) }) },
	},
	{
		name: "a prefix expired while it watched, restored", owes: kv.OwesIdentity | kv.OwesMarkers, limits: evicts, scope: []string{"n."}, plans: "restore",
		before: func(w *world) {
			w.write("n.old", "x.1", "n.dead", "n.both")
			w.follow()
			w.seedForeign("x.foreign")
			w.write("n.gap", "x.1", "-n.dead", "n.both", "x.2", "n.new")
			w.exporter("a", 4, -1)
			w.write("x.3", "n.later", "x.4")
		},
		during: func(w *world) { w.deliver(1, func(l *kvtest.Log) { l.EvictTo(9) }) },
	},
	{
		name: "a first start on an evicting log, restored", owes: kv.OwesIdentity, limits: evicts, plans: "restore",
		before: func(w *world) {
			w.write(seen...)
			w.write(unseen[:4]...)
			w.exporter("a", 7, -1)
			w.write(unseen[4:]...)
			w.log.EvictTo(6)
		},
	},
	{
		name: "data without a cursor on an evicting log, restored", owes: kv.OwesIdentity, limits: evicts, plans: "restore",
		before: func(w *world) {
			w.write(seen...)
			w.seedTorn(3)
			w.write(unseen[:4]...)
			w.exporter("a", 7, -1)
			w.write(unseen[4:]...)
			w.log.EvictTo(6)
		},
	},
	{
		name: "two prefixes expired while they were watched, restored", owes: kv.OwesIdentity | kv.OwesMarkers, limits: evicts, scope: []string{"n.", "m."}, plans: "restore",
		before: func(w *world) {
			w.write("n.old", "x.1", "m.dead", "n.both")
			w.follow()
			w.seedForeign("x.foreign")
			w.write("m.gap", "x.1", "-m.dead", "n.both", "-x.1", "m.new")
			w.exporter("a", 4, -1)
			w.write("x.3", "n.later", "m.later")
		},
		during: func(w *world) { w.deliver(1, func(l *kvtest.Log) { l.EvictTo(9) }) },
	},
	{
		name: "restored from a fold that was hydrating", owes: kv.OwesListing, limits: evicts, plans: "restore",
		before: func(w *world) {
			w.write(seen...)
			w.follow()
			w.write(unseen...)
			w.exporter("a", 0, 4) // up to 6
		},
		during: func(w *world) { w.deliver(1, func(l *kvtest.Log) { l.EvictTo(6) }) },
	},
	{
		name: "restored from a fold that was catching up", owes: kv.OwesIdentity | kv.OwesMarkers, limits: evicts, plans: "restore",
		before: func(w *world) {
			w.write("n.old", "n.dead", "n.straddles")
			w.follow()
			w.write("n.gap", "-n.dead", "n.straddles", "n.new", "n.straddles")
			w.exporter("a", 2, 3) // up to 7, without the key that was written again at 8
			w.log.EvictTo(6)
		},
	},
	{
		name: "expired at a start, re-listed", repair: fold.RepairOptions{Mode: fold.RepairRelist}, plans: "relist", before: relisted,
	},
	{
		name: "cut off for long, re-listed", repair: fold.RepairOptions{Mode: fold.RepairRelist}, plans: "relist",
		before: func(w *world) {
			w.write("n.a", "n.dead", "n.k")
			w.follow()
			w.write("n.b", "n.d")
		},
		during: func(w *world) {
			cutOff(w, func(l *kvtest.Log) {
				w.write("n.a", "-n.dead", "n.c", "-n.c", "n.k", "n.a", "n.b", "n.d")
				l.PurgeMarkers()
			})
		},
	},
	{
		name: "expired while it watched, re-listed by its own choice", plans: "relist", saidOnce: true,
		before: func(w *world) {
			w.write("n.a", "n.dead", "n.k")
			w.follow()
			w.write("n.b", "n.d")
		},
		during: func(w *world) {
			expired := &kv.ExpiredError{Bucket: "test", Cursor: kv.CursorAt(4), First: 10}
			w.arm(kvtest.Fault{At: kvtest.PointNext, Limit: 1}, kvtest.Fault{At: kvtest.PointNext, Skip: 1, Err: expired, Do: func(l *kvtest.Log) {
				w.write("n.a", "-n.dead", "n.c", "-n.c", "n.k", "n.a", "n.b", "n.d")
				l.PurgeMarkers()
			}})
		},
	},
	{
		name: "data without a cursor, re-listed", plans: "relist",
		before: func(w *world) {
			w.write("n.a", "n.dead", "n.k")
			w.seedTorn(3)
			purged(w)
		},
	},
	{
		name: "overlapping prefixes, re-listed", scope: []string{"n.", "n.k"}, plans: "relist",
		before: func(w *world) {
			w.write("n.a", "n.k1", "x.1", "n.k2")
			w.follow()
			w.seedForeign("x.foreign")
			w.write("n.a", "-n.k1", "x.1", "n.k3", "-n.k3", "n.k2", "n.k2")
			w.log.PurgeMarkers()
			w.write("n.a")
		},
	},
	{
		name: "a resume over churn", owes: kv.OwesIdentity | kv.OwesMarkers,
		before: func(w *world) {
			w.write("n.keep", "n.a", "n.dead", "n.again")
			w.follow()
			w.write("n.a", "-n.dead", "-n.again", "n.again", "n.brief", "-n.brief")
		},
	},
	{
		name: "a resume keeps what aged out", owes: kv.OwesIdentity, limits: evicts,
		before: func(w *world) {
			w.write("n.old", "n.dead", "n.both")
			w.follow()
			w.write("-n.dead", "n.both", "n.new")
			w.log.EvictTo(4)
		},
	},
	{name: "a first start", before: func(w *world) { w.write("n.a", "n.b", "n.c", "-n.b", "n.a", "n.d") }},
	{
		name: "a resume of two prefixes", owes: kv.OwesIdentity | kv.OwesMarkers, scope: []string{"n.", "m."},
		before: func(w *world) {
			w.write("n.keep", "x.1", "m.a", "n.dead")
			w.follow()
			w.seedForeign("x.foreign")
			w.write("m.a", "x.2", "-n.dead", "m.b", "-x.1")
		},
	},
}
