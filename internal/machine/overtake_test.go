package machine_test

import (
	"testing"

	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/runtime/kv"
)

// TestRepairForWantOfACursorWaits: a watch without a cursor delivered, and was lost before anything moved one. What it
// delivered is committed before the next repair is asked for.
func TestRepairForWantOfACursorWaits(t *testing.T) {
	m := begin(t, mending(), kv.Cursor{}, kv.Owed{}, machine.Repair{End: machine.EndNoCursor})
	does(t, m, machine.Repaired{Relist: true}, machine.OpenWatch{Relist: true})
	does(t, m, machine.Opened{Head: 3, Backlog: 3}, room)
	f := one(1, kv.Cursor{}, kv.Owed{})
	does(t, m, machine.Received{Segment: machine.Segment{ID: 1, Updates: 1}}, machine.RunHooks{Flush: f}, room)
	does(t, m, lost, closed, machine.Arm{Timer: machine.TimerOpen})
	does(t, m, openDue)
	does(t, m, hooksOK, machine.ApplyStore{Flush: f})
	does(t, m, storeOK, machine.Committed{Flush: f}, machine.Repair{End: machine.EndNoCursor})
}
