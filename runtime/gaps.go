package fold

import (
	"time"

	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// gaps notes which revisions a watch left out, on its receive goroutine. In a filtered watch every other key is a gap,
// so there only a lag counts: a watch that has all that came was given each message as the log's last one.
type gaps struct {
	filtered bool
	floor    uint64 // a re-list has gaps up to here by its nature
	next     uint64 // the revision that is due
	behind   bool   // a filtered watch resumed behind the head, and has told nothing yet
	lastNano int64  // the time of the last message before a gap, as far as it is known
	markers  func() protocol.MarkerRules
}

func newGaps(req kv.OpenRequest, info kv.LogInfo, markers func() protocol.MarkerRules) gaps {
	g := gaps{filtered: !req.Scope.IsAll(), next: req.After.Revision() + 1, markers: markers}
	if req.After.IsNone() {
		g.floor, g.next = info.Last, info.Last+1
		return g
	}
	g.behind = g.filtered && req.After.Revision() < info.Last
	for _, s := range req.Known.Samples {
		if s.Revision <= req.After.Revision() {
			g.lastNano = max(g.lastNano, s.UnixNano)
		}
	}
	return g
}

// note says what a delivery, and the updates that it appended, has the fold owe.
func (g *gaps) note(updates []kv.Update, d *kv.Delivery) kv.Owes {
	missing, agedOut := false, false
	owes := kv.Owes(0)
	since := g.lastNano
	for i := range updates {
		u := &updates[i]
		rev, known := u.Version.Uint64()
		if known && rev <= g.floor {
			if u.Op == kv.OpAgedOut { // a value that this re-list does not have
				owes |= kv.OwesListing
			}
			continue
		}
		missing = missing || !known || !g.filtered && rev != g.next
		agedOut = agedOut || u.Op == kv.OpAgedOut
		if known {
			g.next, g.lastNano = rev+1, u.UnixNano
		}
	}
	if d.Frontier >= g.next {
		missing = missing || !g.filtered
		g.next = d.Frontier + 1
	}
	if g.filtered && d.Frontier > g.floor {
		missing = missing || g.behind || d.Behind || d.Pending > 0
		g.behind = false
	}
	if !missing {
		return owes
	}
	gap := protocol.Gap{Missing: true, Markers: protocol.MarkersCanVanish(g.markers(), sinceNano(since)), AgedOut: agedOut}
	if protocol.GapNeedsAudit(gap) {
		owes |= kv.OwesMarkers
	}
	return owes
}

// sinceNano is how long ago a server's time was by this machine's clock; 0 when it is not known.
func sinceNano(t int64) int64 {
	if t == 0 {
		return 0
	}
	return max(time.Now().UnixNano()-t, 1)
}

// openedWith is what a watch's beginning means to the machine. listed is where the listing began that a repair compared
// the fold with before this re-list; 0 when there was none. A marker written since may have vanished before the re-list:
// the seed takes it as an axiom that none does (axiom 6), here it is a gap like any other.
func openedWith(info kv.LogInfo, after kv.Cursor, listed uint64) machine.Opened {
	o := machine.Opened{Head: info.Last, Evicted: protocol.HasEvicted(info.Retention.Kernel())}
	switch {
	case after.IsNone():
		o.Backlog = info.Subjects
		if !listingIsWhole(info) || info.Retention.EvictsCurrentValues {
			// What retention takes before it is delivered shows in nothing else once the watch is lost, or the process.
			o.Owes = kv.OwesListing
		}
		gap := protocol.Gap{Missing: listed != 0 && info.Last > listed, Markers: protocol.MarkersCanVanish(info.Markers, 0)}
		if protocol.GapNeedsAudit(gap) {
			o.Owes |= kv.OwesMarkers
		}
	default:
		o.Backlog = info.Last - min(info.Last, after.Revision())
		if info.Identity != protocol.LogSame {
			o.Owes = kv.OwesIdentity
		}
	}
	return o
}

// owesListing is what a re-list leaves owed: where retention has taken current values, some may be missing from it.
func owesListing(info kv.LogInfo) kv.Owes {
	if !listingIsWhole(info) {
		return kv.OwesListing
	}
	return 0
}

// listingIsWhole reports whether retention has not taken a current value by now.
func listingIsWhole(info kv.LogInfo) bool {
	return protocol.ListingTruth(info.Retention.Kernel(), false) == protocol.TruthYes
}
