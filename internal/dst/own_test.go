package dst

import (
	"errors"
	"fmt"
	"time"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
)

var errListing = errors.New("the listing was cut off")

// many are n keys of one tenant.
func many(tenant string, n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("%s.%d", tenant, i))
	}
	return keys
}

var adopts = fold.RepairOptions{AdoptNewLog: true}

// ownStories are those that the Rust library does not have: other logs, markers that vanish, and a log that changes
// or misleads while it is listed.
var ownStories = []*story{
	{
		name: "re-created with fewer messages, adopted", repair: adopts, anyRevision: true, plans: "adopt",
		before: func(w *world) {
			w.write("n.a", "n.b", "n.c", "-n.b", "n.d")
			w.follow()
			w.log.Recreate()
			w.write("n.a", "n.e")
		},
	},
	{
		name: "re-created with more messages while it watched, adopted", repair: adopts, anyRevision: true, plans: "adopt",
		before: func(w *world) {
			w.write("n.a", "n.b", "n.c")
			w.follow()
			w.write("n.d", "n.e")
		},
		during: func(w *world) {
			w.deliver(1, func(l *kvtest.Log) {
				l.Recreate()
				w.write("n.p", "n.b", "n.q", "n.r", "-n.q", "n.s", "n.t", "n.u")
			})
		},
	},
	{
		name: "re-created and nearly empty, adopted under the brake", repair: adopts, anyRevision: true, plans: "adopt",
		before: func(w *world) {
			w.write(many("n", 15)...)
			w.follow()
			w.log.Recreate()
			w.write("n.1")
		},
	},
	{
		name: "re-created and empty, adopted", repair: adopts, anyRevision: true, plans: "adopt",
		before: func(w *world) {
			w.write("n.a", "n.b")
			w.follow()
			w.log.Recreate()
		},
	},
	{
		name: "a scope of a log that was re-created, adopted", repair: adopts, scope: []string{"n."}, anyRevision: true, plans: "adopt",
		before: func(w *world) {
			w.write("n.a", "x.1", "n.b")
			w.follow()
			w.seedForeign("x.foreign")
			w.log.Recreate()
			w.write("x.1", "x.2", "n.a", "x.3")
		},
	},
	{
		name: "rewound, adopted", repair: adopts, anyRevision: true, plans: "adopt",
		before: func(w *world) {
			w.write("n.a", "n.b", "n.c", "n.a", "-n.b", "n.d")
			w.follow()
			w.log.Rewind(3)
			w.write("n.e")
		},
	},
	{
		name: "rewound while it watched and grown past the cursor, adopted", repair: adopts, anyRevision: true, plans: "adopt",
		before: func(w *world) {
			w.write("n.a", "n.b", "n.c")
			w.follow()
			w.write("n.d")
		},
		during: func(w *world) {
			w.deliver(1, func(l *kvtest.Log) {
				l.Rewind(2)
				w.write("n.r", "n.s", "n.t")
			})
		},
	},
	{
		name:   "rewound without a trace, found by an audit and adopted",
		repair: fold.RepairOptions{AdoptNewLog: true, AuditEvery: time.Minute}, anyRevision: true, settlesOwed: true, plans: "audit: list, adopt",
		before: func(w *world) {
			w.write("n.a", "n.b", "n.c")
			w.follow()
			w.log.Rewind(1)
			w.write("n.d", "n.e", "n.e", "n.f")
		},
	},
	{
		name:   "a delete marker vanished while it was away, audited",
		repair: fold.RepairOptions{AuditEvery: time.Minute}, markersGo: true, settlesOwed: true, plans: "audit: list",
		before: func(w *world) {
			w.write("n.keep", "n.a", "n.dead")
			w.follow()
			w.write("-n.dead", "n.a")
			w.log.PurgeMarkers()
		},
	},
	{
		name:   "a delete marker vanished behind a watch that lagged, audited",
		repair: fold.RepairOptions{AuditEvery: time.Minute}, markersGo: true, settlesOwed: true, plans: "audit: list",
		before: func(w *world) {
			w.write("n.keep", "n.a", "n.dead")
			w.follow()
			w.write("n.b")
		},
		during: func(w *world) {
			w.deliver(1, func(l *kvtest.Log) {
				w.write("-n.dead", "n.a")
				l.PurgeMarkers()
			})
		},
	},
	{
		name:   "delete markers vanished from a scope, audited under the brake",
		repair: fold.RepairOptions{AuditEvery: time.Minute}, scope: []string{"n."}, markersGo: true, settlesOwed: true, plans: "audit: list",
		before: func(w *world) {
			w.write("n.keep", "x.1")
			w.write(many("n", 12)...)
			w.follow()
			w.seedForeign("x.foreign")
			for _, k := range many("n", 12) {
				w.del(k)
			}
			w.log.PurgeMarkers()
			w.write("x.1", "n.new")
		},
	},
	{
		name:   "a key comes back while it is about to be deleted by an audit",
		repair: fold.RepairOptions{AuditEvery: time.Minute}, markersGo: true, settlesOwed: true, plans: "audit: list",
		before: func(w *world) {
			w.write("n.keep")
			w.write(many("n", 12)...)
			w.follow()
			for _, k := range many("n", 12) {
				w.del(k)
			}
			w.log.PurgeMarkers()
			w.write("n.new")
		},
		list: func(n int, keys []kv.KeyVersion, w *world) ([]kv.KeyVersion, error) {
			if n == 2 { // the brake's: the keys are as they were before
				w.write("n.0")
				time.Sleep(time.Second) // virtual: the fold takes it
			}
			return keys, nil
		},
	},
	{
		name: "an age-out marker is no delete", limits: evicts,
		before: func(w *world) {
			w.write("n.old", "n.a", "n.b")
			w.follow()
			w.log.AgeOut("route.n.old", true)
			w.write("-n.a", "n.c")
		},
	},
	{
		name: "a listed age-out marker forbids a re-list, restored", owes: kv.OwesIdentity, plans: "restore",
		before: func(w *world) {
			w.write("n.old", "n.dead", "n.k")
			w.follow()
			w.write("n.k", "-n.dead")
			w.exporter("a", 5, -1)
			w.log.PurgeMarkers()
			w.write("n.k")
			w.log.AgeOut("route.n.old", true)
		},
	},
	{
		name: "the log begins to evict while it is listed, restored", owes: kv.OwesIdentity, plans: "restore",
		before: func(w *world) {
			w.write("n.a", "n.dead", "n.k")
			w.follow()
			w.write("n.a", "-n.dead", "n.c", "-n.c", "n.k", "n.old", "n.a")
			w.exporter("a", 10, -1)
			w.log.PurgeMarkers()
			w.write("n.new")
		},
		during: func(w *world) {
			w.arm(kvtest.Fault{At: kvtest.PointList, Do: func(l *kvtest.Log) {
				l.SetLimits(evicts)
				l.EvictTo(10)
			}})
		},
	},
	{
		name: "settings from before the eviction, restored after the listing", owes: kv.OwesIdentity, limits: evicts, plans: "restore",
		before: func(w *world) {
			away(w)
			w.log.EvictTo(6)
		},
		info: func(n int, i kv.LogInfo, w *world) kv.LogInfo {
			if n == 1 {
				i.First, i.Retention.First, i.Last = 1, 1, 3
			}
			return i
		},
	},
	{
		name: "settings from before the eviction around a listing, restored at the next try", owes: kv.OwesIdentity, limits: evicts, plans: "restore",
		before: func(w *world) {
			away(w)
			w.log.EvictTo(6)
		},
		info: func(n int, i kv.LogInfo, w *world) kv.LogInfo {
			if n <= 2 {
				i.First, i.Retention.First, i.Last = 1, 1, 3
			}
			return i
		},
	},
	{
		name: "listings cut short, re-listed once one is whole", plans: "relist", before: relisted,
		list: func(n int, keys []kv.KeyVersion, w *world) ([]kv.KeyVersion, error) {
			switch n {
			case 1:
				return keys[:max(len(keys), 1)-1], nil
			case 2:
				return keys[:min(1, len(keys))], errListing
			case 3:
				return nil, nil
			}
			return keys, nil
		},
	},
	{
		name: "a listing of a scope cut short, held by the brake", scope: []string{"n."}, plans: "relist",
		before: func(w *world) {
			w.write(many("n", 15)...)
			w.write("x.1", "n.dead")
			w.follow()
			w.seedForeign("x.foreign")
			w.write(many("n", 15)...)
			w.write("-n.dead", "x.1")
			w.log.PurgeMarkers()
			w.write("n.0")
		},
		list: func(n int, keys []kv.KeyVersion, w *world) ([]kv.KeyVersion, error) {
			if n == 1 {
				return keys[:min(2, len(keys))], nil
			}
			return keys, nil
		},
	},
	{
		name: "a deleted key comes back after the listing, re-listed", owes: kv.OwesMarkers, plans: "relist", before: relisted,
		list: func(n int, keys []kv.KeyVersion, w *world) ([]kv.KeyVersion, error) {
			if n == 1 {
				w.write("n.dead")
			}
			return keys, nil
		},
	},
	{
		name: "asked to end within a listing, re-listed at the next start", quits: true, plans: "relist", before: relisted,
		during: func(w *world) {
			w.arm(kvtest.Fault{At: kvtest.PointList, Delay: 30 * time.Second, Do: func(*kvtest.Log) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.quit()
			}})
		},
	},
	{
		name: "the server is away when a repair begins, re-listed", plans: "relist", before: relisted,
		during: func(w *world) {
			w.arm(kvtest.Fault{At: kvtest.PointList, Fail: true, Times: 5})
		},
	},
}
