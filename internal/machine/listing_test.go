package machine_test

import (
	"testing"

	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/runtime/kv"
)

// TestListingIsOwedUntilTheLogIsReadAgain: a watch that goes on where a lost re-list ended asks for the reading, too. It
// settles the re-list, and only that, of a log that was never seen to evict.
func TestListingIsOwedUntilTheLogIsReadAgain(t *testing.T) {
	owed := kv.Owed{Why: kv.OwesListing | kv.OwesMarkers, At: 5}
	whole := machine.RetentionRead{Whole: true, Head: 5}
	m := begin(t, mending(), at5, owed, machine.OpenWatch{After: at5})
	does(t, m, whole) // read of a watch that was before this one
	does(t, m, opened5, machine.CaughtUp{Cursor: at5, First: true, Relisted: true}, hold, room)
	does(t, m, whole, machine.ApplyStore{Flush: alone(at5, marked)})
	does(t, m, storeOK, machine.Committed{Flush: alone(at5, marked)})

	m = begin(t, mending(), at5, kv.Owed{Why: kv.OwesListing, At: 5}, machine.OpenWatch{After: at5})
	does(t, m, opened5, machine.CaughtUp{Cursor: at5, First: true, Relisted: true}, hold, room)
	does(t, m, whole, machine.ApplyStore{Flush: alone(at5, kv.Owed{})})

	m = begin(t, mending(), at5memo, owed, machine.OpenWatch{After: at5memo})
	does(t, m, opened5, machine.CaughtUp{Cursor: at5memo, First: true, Relisted: true}, hold, room)
	does(t, m, whole)
}

// TestEvictionIsRememberedFromASegment: what was received says that values aged out.
func TestEvictionIsRememberedFromASegment(t *testing.T) {
	m := watching(t, mending())
	s := received(1, 6)
	s.Segment.Evicted = true
	f := one(1, kv.Cursor{Version: kv.Revision(6), SeenEvicting: true}, kv.Owed{})
	does(t, m, s, machine.RunHooks{Flush: f}, room)
}
