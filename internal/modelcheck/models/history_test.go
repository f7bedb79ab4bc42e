package models

import "testing"

// TestHistory: what a log holds, lists and lost, and what is true all the same.
func TestHistory(t *testing.T) {
	var h history
	want := func(name string, got, want any) {
		t.Helper()
		if got != want {
			t.Errorf("%v: %s is %v, not %v", h, name, got, want)
		}
	}
	want("first", h.first(), uint8(0))
	for _, m := range []histMsg{histPut(0), histPut(1), histDelete(0), histPut(1)} {
		h.write(m)
	}
	want("first", h.first(), uint8(3))
	want("keys", h.keys(), uint8(2))
	want("truth at 2", h.truth(2), histRows{1, 2})
	want("truth", h.truth(4), histRows{0, 4})
	want("listing", h.listing(), histRows{0, 4})
	want("replay after 2", h.replay(histRows{1, 2}, 2), histRows{0, 4})
	h.lose(3)
	h.lose(4)
	want("first", h.first(), uint8(5))
	want("listing", h.listing(), histRows{})
	want("replay after 2", h.replay(histRows{1, 2}, 2), histRows{1, 2})
	want("truth", h.truth(4), histRows{0, 4})
	want("latest", h.latest(0), uint8(3))
	want("next", h.next(0), uint8(0))
	want("string", h.String(), "log (put k) (put l) (del k) (put l)")
}
