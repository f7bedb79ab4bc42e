package models

import (
	"testing"

	"github.com/typedfold/fold/internal/modelcheck"
)

// TestPublishExportersAreAlike: a search that tells the exporters apart meets up to twice the states, and nothing else.
func TestPublishExportersAreAlike(t *testing.T) {
	w := pubPlain
	w.logs, w.deaf = 1, false
	alike, apart := w.model(), w.model()
	apart.Encode = func(s pubState, out []byte) []byte { return s.encode(out) }
	one := modelcheck.RequireOK(t, alike, modelcheck.Options{Exact: true})
	two := modelcheck.RequireOK(t, apart, modelcheck.Options{Exact: true})
	if two.States >= 2*one.States || two.States < 19*one.States/10 || two.Depth != one.Depth {
		t.Errorf("%v, and with exporters told apart %v", one, two)
	}
}

// TestPublishExchanged: to exchange the exporters twice changes nothing.
func TestPublishExchanged(t *testing.T) {
	w := pubPlain
	for id := pubID(1); id <= pubMost; id++ {
		other := id.exchanged()
		if other == id || other.exchanged() != id || w.at(other) != w.at(id) {
			t.Errorf("%d is exchanged for %d", id, other)
		}
		if set := pubSet(1 | 1<<id); set.exchanged() != 1|1<<other || set.exchanged().exchanged() != set {
			t.Errorf("the set of %d is exchanged for %b", id, set.exchanged())
		}
	}
}
