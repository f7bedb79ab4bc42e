package protocol

import (
	"slices"
	"testing"
)

// The next cursor is one of the three things that were said, and none of them is beyond it.
func TestNextCursor(t *testing.T) {
	for _, current := range edges {
		for _, high := range edges {
			for _, frontier := range edges {
				said := []uint64{current, high, frontier}
				got := NextCursor(CursorStep{Current: current, High: high, Frontier: frontier})
				if !slices.Contains(said, got) || slices.ContainsFunc(said, func(r uint64) bool { return r > got }) {
					t.Errorf("current %d, high %d, frontier %d: got %d", current, high, frontier, got)
				}
			}
		}
	}
}

// A fold has all when no revision up to the head is after its cursor.
func TestHydrated(t *testing.T) {
	for cursor := range uint64(7) {
		for head := range uint64(7) {
			missing := 0
			for rev := uint64(1); rev <= head; rev++ {
				if rev > cursor {
					missing++
				}
			}
			if got := Hydrated(cursor, head); got != (missing == 0) {
				t.Errorf("cursor %d, head %d: got %v with %d revisions missing", cursor, head, got, missing)
			}
		}
	}
}
