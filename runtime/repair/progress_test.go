package repair

import (
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/protocol"
)

// TestProgress: while a repair runs, its stage and a count are told, and afterwards nothing.
func TestProgress(t *testing.T) {
	log := kvtest.NewLog(kvtest.Options{})
	log.Set("a", "1")
	log.Set("b", "1")
	s := openStore(t, "logstore")
	fill(t, s, log, kv.AllKeys(), 2)
	log.RemoveMessage(1)
	log.RemoveMessage(2)
	to := &testFolder{store: s}
	p := New(log, s, to, kv.AllKeys(), Options{Chunk: 1})
	var seen []Progress
	to.before = func(int, []Change) error {
		now, ok := p.Progress()
		if !ok {
			t.Error("no progress while changes are folded")
		}
		seen = append(seen, now)
		return nil
	}
	var r Report
	if _, err := p.Repair(bounded(t), Request{Cause: protocol.CauseExpired, Cursor: kv.CursorAt(2)}, &r); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 2 || seen[0] != (Progress{Stage: stageFolding}) || seen[1] != (Progress{Stage: stageFolding, Keys: 1}) {
		t.Errorf("progress %v", seen)
	}
	if now, ok := p.Progress(); ok {
		t.Errorf("progress %v after the repair", now)
	}
}
