package models

import "testing"

// TestLiveTruth: what the log of the watch models calls the truth is every write minus every delete, whatever it still has.
func TestLiveTruth(t *testing.T) {
	var l liveLog
	for _, m := range []liveMessage{liveMessageOf(0, false), liveMessageOf(2, false), liveMessageOf(0, true), liveMessageOf(1, false), liveMessageOf(2, false)} {
		l.write(m)
	}
	if l.truth() != (liveRows{0, 4, 5}) || l.truthAt(2) != (liveRows{1, 0, 2}) || l.there != 1<<3|1<<4|1<<5 || l.first() != 3 || l.after(3) != 4 {
		t.Fatalf("%+v has %v, and had %v", l, l.truth(), l.truthAt(2))
	}
	l.there = 0
	if l.truth() != (liveRows{0, 4, 5}) || l.first() != 6 || l.after(0) != 0 || l.lists(1) {
		t.Errorf("an empty log %+v has %v", l, l.truth())
	}
}
