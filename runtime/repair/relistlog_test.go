package repair

import (
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/protocol"
)

// TestRelistNotesItsLog: a fold that remembers no log takes the one that its rows were compared with, or the re-list could
// be of a bucket that was re-created in between, and leave rows behind that only the old one had.
func TestRelistNotesItsLog(t *testing.T) {
	g := newRig(t, "logstore", kvtest.Options{})
	changeLog(t, g, protocol.CauseReplaced, 20, 0)
	q := g.request(protocol.CauseNoCursor)
	q.Cursor, q.Known = kv.Cursor{}, kv.Incarnation{}
	out, err := g.repair(t, q)
	if err != nil || !out.Relist || out.Known.CreatedUnixNano != createdOf(t, g) {
		t.Errorf("repair: %+v, %v", out, err)
	}
}
