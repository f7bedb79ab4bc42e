package models

import (
	"testing"

	"github.com/typedfold/fold/internal/modelcheck"
)

// TestFleetNodesAreAlike: a search that tells nodes apart meets more states and nothing else.
func TestFleetNodesAreAlike(t *testing.T) {
	w := fleetEvicts
	w.synced, w.fresh = 2, 0
	alike, apart := w.model(), w.model()
	apart.Encode = func(s fleetState, out []byte) []byte {
		for _, n := range s.nodes {
			out = append(out, byte(n.phase), n.rows[0], n.rows[1], n.cursor, n.base, n.relist, asUint8(n.memo)|asUint8(n.owed)<<1|asUint8(n.restored)<<2|asUint8(n.evicts)<<3)
		}
		s.nodes = [3]fleetNode{}
		return fleetEncode(s, out)
	}
	o := modelcheck.Options{Exact: true}
	one := modelcheck.RequireOK(t, alike, o)
	two := modelcheck.RequireOK(t, apart, o)
	if two.States <= one.States || two.States > 2*one.States || two.Depth != one.Depth {
		t.Errorf("%v, and with nodes told apart %v", one, two)
	}
}

// TestFleetArtifactThatOwes is a limit: a node whose first re-list lost a value to retention publishes, and a node that has
// the value is restored from that. It loses the value, and owes a listing from then on.
func TestFleetArtifactThatOwes(t *testing.T) {
	m := fleetEvicts
	m.cuts = 1
	s := m.model().Init[0]
	for _, a := range []fleetAction{
		{verb: fleetPut}, {verb: fleetOther}, {verb: fleetOther}, {fleetDeliver, 0}, {fleetCut, 0}, {fleetRepair, 2}, {verb: fleetEvict},
		{fleetDeliver, 2}, {fleetDeliver, 2}, {fleetPublish, 2}, {fleetRepair, 0},
	} {
		next, ok := m.next(s, a)
		if !ok {
			t.Fatalf("%v cannot happen in %s", a, fleetShow(s))
		}
		s = next
	}
	if n := s.nodes[0]; n.rows != (histRows{0, 3}) || n.cursor != 3 || !n.owed || s.h.truth(3) != (histRows{1, 3}) {
		t.Errorf("%s", fleetShow(s))
	}
}
