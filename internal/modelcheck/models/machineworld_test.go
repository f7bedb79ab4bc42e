package models

import (
	"bytes"
	"slices"
	"testing"

	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/runtime/kv"
)

// TestSegmentsSayWhatTheyHold: a segment's ID gives back its changes, and what the machine gets of it.
func TestSegmentsSayWhatTheyHold(t *testing.T) {
	all := []change{changeOf(2, 9, false), changeOf(1, 15, true).unknown(), changeOf(3, 0, true).repair(7), changeOf(0, 4, false).repair(0)}
	s := segmentOf(all...)
	if got := s.changes(); !slices.Equal(got, all) {
		t.Fatalf("%v gives back %v", all, got)
	}
	if m := s.received(); m.Updates != 4 || m.High != kv.Revision(9) || segment(m.ID) != s {
		t.Errorf("the machine gets %+v", m)
	}
	c := all[2]
	if c.key() != 3 || c.rev() != 0 || !c.deletes() || c.isUnknown() || !c.repairs() || !c.hasExpect() || c.expect() != 7 {
		t.Errorf("a repair's delete is %v", c)
	}
	if all[3].hasExpect() || all[3].deletes() || !all[1].isUnknown() || all[0].repairs() {
		t.Errorf("%v has flags of another one", all)
	}
	if got := c.unexpected(); got.hasExpect() || got.expect() != 0 || got.key() != 3 || !got.deletes() {
		t.Errorf("without what it expects it is %v", got)
	}
}

// TestStepLeavesACopy: a process that is stepped leaves a copy of it as it was.
func TestStepLeavesACopy(t *testing.T) {
	var p process
	p.start(appliedConfig(), kv.CursorAt(1), kv.Owed{})
	for _, in := range []machine.Input{
		machine.Opened{Head: 3}, machine.Received{Segment: segmentOf(changeOf(0, 2, false)).received()},
		machine.Received{Segment: segmentOf(changeOf(0, 3, false)).received()}, machine.HooksDone{}, machine.StoreDone{Err: errFlush},
		machine.TimerFired{Timer: machine.TimerRetry}, machine.StoreDone{}, machine.Shutdown{}, machine.HooksDone{}, machine.StoreDone{},
	} {
		was := p
		before := was.appendState(nil)
		p.step(in)
		if after := was.appendState(nil); !bytes.Equal(before, after) {
			t.Fatalf("%T changes a copy from %x to %x", in, before, after)
		}
		if now := p.appendState(nil); bytes.Equal(before, now) {
			t.Fatalf("%T changes nothing", in)
		}
	}
	if p.queued != 0 || p.has(askedStore) || !p.up() {
		t.Errorf("it ends as %v", &p)
	}
}
