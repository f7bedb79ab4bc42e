package dst

import (
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"

	fold "github.com/typedfold/fold/runtime"
)

// moreStories are of scopes whose keys are rare, of settings that are edited, and of a real age limit.
var moreStories = []*story{
	{
		name: "rare keys of a scope, whose cursor moves with the head", owes: kv.OwesIdentity | kv.OwesMarkers, limits: evicts, scope: []string{"n."},
		before: func(w *world) {
			w.write("n.a", "n.dead", "x.1", "x.2")
			w.follow()
			w.seedForeign("x.foreign")
			w.write("x.1", "x.2", "x.1", "x.2")
			w.follow() // nothing in scope
			w.log.EvictTo(9)
			w.write("x.3", "-n.dead", "x.4", "n.b", "x.5")
		},
	},
	{
		name: "rare keys of a scope expired while it was away, restored", owes: kv.OwesIdentity | kv.OwesMarkers, limits: evicts, scope: []string{"n."}, plans: "restore",
		before: func(w *world) {
			w.write("n.a", "n.dead", "x.1", "x.2")
			w.follow()
			w.seedForeign("x.foreign")
			w.write("-n.dead", "x.1", "n.gap", "x.2")
			w.exporter("a", 4, -1)
			w.write("x.3", "n.later", "x.4", "x.5")
			w.log.EvictTo(9)
		},
	},
	{
		name: "eviction was turned off before, restored all the same", owes: kv.OwesIdentity, limits: evicts, plans: "restore",
		before: func(w *world) {
			w.write("n.old", "n.dead", "n.both")
			w.follow()
			w.log.EvictTo(2)
			w.follow() // sees it
			w.log.SetLimits(kvtest.Limits{})
			w.write("n.both", "-n.dead", "n.new")
			w.exporter("a", 6, -1)
			w.log.PurgeMarkers()
			w.write("n.both", "n.new")
		},
	},
	{
		name: "eviction is turned on while it watches, restored", owes: kv.OwesIdentity, plans: "restore", before: away,
		during: func(w *world) {
			w.deliver(2, func(l *kvtest.Log) {
				l.SetLimits(evicts)
				l.EvictTo(7)
			})
		},
	},
	{
		name: "aged out by the log's age limit, restored", owes: kv.OwesIdentity, limits: kvtest.Limits{MaxAge: time.Hour}, plans: "restore",
		before: func(w *world) {
			w.write(seen...)
			w.follow()
			time.Sleep(50 * time.Minute) // virtual, as are all here
			w.write(unseen[0])
			time.Sleep(30 * time.Minute)
			w.write(unseen[1:4]...)
			w.exporter("a", 4, -1)
			w.write(unseen[4:]...)
			time.Sleep(35 * time.Minute)
		},
	},
	{
		name:   "a log whose markers stay owes no audit for its gaps",
		limits: kvtest.Limits{Sealed: true}, repair: fold.RepairOptions{AuditEvery: time.Second}, settlesOwed: true,
		before: func(w *world) {
			w.write("n.a", "n.dead", "n.again", "n.keep") // the last one tells that it is the same log
			w.follow()
			w.write("n.a", "-n.dead", "-n.again", "n.again", "n.brief", "-n.brief")
		},
	},
}
