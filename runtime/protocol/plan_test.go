package protocol

import (
	"fmt"
	"slices"
	"testing"
)

var bools = []bool{false, true}

func retentions() (out []Retention) {
	for _, known := range bools {
		for _, evicts := range bools {
			for _, inside := range bools {
				for _, first := range []uint64{0, 1, 2, 3, top} {
					out = append(out, Retention{Known: known, Evicts: evicts, Inside: inside, First: first})
				}
			}
		}
	}
	return out
}

// truthInput is a retention and the memo, flat.
type truthInput struct {
	Known, Evicts, Inside bool
	First                 uint64
	Seen                  bool
}

func truthDomain() (out []truthInput) {
	for _, r := range retentions() {
		for _, seen := range bools {
			out = append(out, truthInput{r.Known, r.Evicts, r.Inside, r.First, seen})
		}
	}
	return out
}

func (in truthInput) retention() Retention {
	return Retention{Known: in.Known, Evicts: in.Evicts, Inside: in.Inside, First: in.First}
}

func (in truthInput) truth() Truth { return ListingTruth(in.retention(), in.Seen) }

// Against every small log of one key a revision: retention that evicts takes from the head, and from inside where it can.
// The listing is the truth exactly where no reading of the settings and the first revision leaves a key that is missing
// from it though nobody deleted it.
func TestListingTruth(t *testing.T) {
	const keys = 3
	for _, in := range truthDomain() {
		if in.First > keys+1 {
			continue
		}
		mayMiss := in.Seen
		for taken := range 1 << keys { // the keys that retention took
			if possible(in, taken, keys) && taken != 0 {
				mayMiss = true
			}
		}
		got := in.truth()
		switch {
		case got == TruthYes && (mayMiss || !in.Known):
			t.Errorf("%+v: yes, though a key may have aged out", in)
		case got == TruthNo && !mayMiss:
			t.Errorf("%+v: no, though nothing can have aged out", in)
		case got == TruthUnknown && (in.Known || in.Seen):
			t.Errorf("%+v: unknown", in)
		}
		if in.Known && !in.Inside {
			if got := ListingIsTruth(in.Evicts, in.First, in.Seen); got == mayMiss {
				t.Errorf("%+v: listing is the truth: %v", in, got)
			}
		}
	}
}

// possible reports whether retention can have taken just these keys of a log whose first revision is in.First.
func possible(in truthInput, taken, keys int) bool {
	if taken != 0 && in.Known && !in.Evicts {
		return false
	}
	for rev := range keys {
		gone, below := taken>>rev&1 == 1, uint64(rev+1) < in.First
		if below && !gone && in.Evicts || gone && !below && (!in.Inside || in.First == 0) {
			return false
		}
	}
	return true
}

// What makes a known listing untrue is remembered, and then no settings make it true again.
func TestHasEvicted(t *testing.T) {
	for _, r := range retentions() {
		untrue := r.Known && ListingTruth(r, false) != TruthYes
		if got := HasEvicted(r); got != untrue {
			t.Errorf("%+v: remembered %v, untrue %v", r, got, untrue)
		}
		if ListingTruth(r, true) != TruthNo {
			t.Errorf("%+v: the memo was forgotten", r)
		}
	}
}

var (
	modes  = []RepairMode{RepairAuto, RepairRelist, RepairRestore, RepairOff, 99}
	causes = []Cause{CauseExpired, CauseNoCursor, CauseReplaced, CauseRewound, 99}
	truths = []Truth{TruthUnknown, TruthYes, TruthNo}
	plans  = []Plan{PlanStop, PlanRelist, PlanRestore, PlanAdopt, PlanRefuseRelist, PlanNoSource}
)

func planInputs() (out []PlanInput) {
	for _, cause := range causes {
		for _, mode := range modes {
			for _, truth := range truths {
				for _, source := range bools {
					for _, adopt := range bools {
						out = append(out, PlanInput{Cause: cause, Mode: mode, Source: source, Adopt: adopt, Truth: truth})
					}
				}
			}
		}
	}
	return out
}

func sameLog(p PlanInput) bool { return p.Cause == CauseExpired || p.Cause == CauseNoCursor }

func armed(p PlanInput) bool { return p.Mode < RepairOff }

// planRules say what a plan may and must be; together they leave one plan for each input.
var planRules = []struct {
	rule    string
	applies func(PlanInput) bool
	allowed []Plan
}{
	{"off does nothing", func(p PlanInput) bool { return !armed(p) }, []Plan{PlanStop}},
	{"another log is only ever adopted or stopped at", func(p PlanInput) bool { return !sameLog(p) }, []Plan{PlanStop, PlanAdopt}},
	{"another log is not followed unasked", func(p PlanInput) bool { return !p.Adopt }, slices.DeleteFunc(slices.Clone(plans), func(x Plan) bool { return x == PlanAdopt })},
	{"another log is followed when asked", func(p PlanInput) bool { return !sameLog(p) && p.Adopt && armed(p) }, []Plan{PlanAdopt}},
	{"the same log is not adopted, and an armed repair acts or says why not", func(p PlanInput) bool { return sameLog(p) && armed(p) }, []Plan{PlanRelist, PlanRestore, PlanRefuseRelist, PlanNoSource}},
	{"no re-list where it deletes valid keys", func(p PlanInput) bool { return p.Truth == TruthNo }, []Plan{PlanStop, PlanRestore, PlanAdopt, PlanRefuseRelist, PlanNoSource}},
	{"auto re-lists only on the truth", func(p PlanInput) bool { return p.Mode == RepairAuto && p.Truth != TruthYes }, []Plan{PlanStop, PlanRestore, PlanAdopt, PlanNoSource}},
	{"auto does re-list on the truth", func(p PlanInput) bool { return p.Mode == RepairAuto && p.Truth == TruthYes }, []Plan{PlanStop, PlanRelist, PlanAdopt}},
	{"a re-list that was asked for is done or refused", func(p PlanInput) bool { return p.Mode == RepairRelist }, []Plan{PlanStop, PlanRelist, PlanRefuseRelist, PlanAdopt}},
	{"it is refused only where it is known to be wrong", func(p PlanInput) bool { return p.Truth != TruthNo }, []Plan{PlanStop, PlanRelist, PlanRestore, PlanAdopt, PlanNoSource}},
	{"restore only restores", func(p PlanInput) bool { return p.Mode == RepairRestore }, []Plan{PlanStop, PlanRestore, PlanAdopt, PlanNoSource}},
	{"no artifact without a source", func(p PlanInput) bool { return !p.Source }, []Plan{PlanStop, PlanRelist, PlanAdopt, PlanRefuseRelist, PlanNoSource}},
	{"a source is used", func(p PlanInput) bool { return p.Source }, []Plan{PlanStop, PlanRelist, PlanRestore, PlanAdopt, PlanRefuseRelist}},
	{"what is not adopted of another log stops", func(p PlanInput) bool { return !sameLog(p) && !p.Adopt }, []Plan{PlanStop}},
}

func TestPlanRepair(t *testing.T) {
	seen := map[Plan]bool{}
	for _, in := range planInputs() {
		left := slices.Clone(plans)
		for _, r := range planRules {
			if r.applies(in) {
				left = slices.DeleteFunc(left, func(p Plan) bool { return !slices.Contains(r.allowed, p) })
			}
		}
		if len(left) != 1 {
			t.Fatalf("%+v: the rules leave %v", in, left)
		}
		got := PlanRepair(in)
		if got != left[0] {
			t.Errorf("%+v: %v, want %v", in, got, left[0])
		}
		seen[got] = true
	}
	if len(seen) != len(plans) {
		t.Fatalf("some plan was never chosen: %v", seen)
	}
}

type startInput struct {
	Mode            RepairMode
	Source, HasData bool
	Truth           Truth
}

func startInputs() (out []startInput) {
	for _, mode := range modes {
		for _, truth := range truths {
			for _, source := range bools {
				for _, hasData := range bools {
					out = append(out, startInput{mode, source, hasData, truth})
				}
			}
		}
	}
	return out
}

func (in startInput) needsRepair() bool {
	return CursorlessStartNeedsRepair(in.Mode, in.Source, in.HasData, in.Truth)
}

// A start that simply reads the bucket removes nothing and misses what is not listed. So data is never kept unrepaired;
// an empty fold is repaired exactly where that means to begin with an artifact, and never stopped for want of one.
func TestCursorlessStartNeedsRepair(t *testing.T) {
	for _, in := range startInputs() {
		plan := PlanRepair(PlanInput{Cause: CauseNoCursor, Mode: in.Mode, Source: in.Source, Truth: in.Truth})
		want := in.HasData || plan == PlanRestore && in.Truth != TruthYes
		if got := in.needsRepair(); got != want {
			t.Errorf("%+v, whose plan is %v: %v", in, plan, got)
		}
	}
}

func TestRepairNames(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{fmt.Sprint(modes), "[auto relist restore off off]"},
		{fmt.Sprint(causes[:4]), "[cursor expired no cursor log replaced log rewound]"},
		{fmt.Sprint(truths), "[unknown yes no]"},
		{fmt.Sprint(plans), "[stop relist restore adopt refuse relist no restore source]"},
		{fmt.Sprint([]KeyRestore{RestoreKeep, RestoreTake, RestoreDelete}), "[keep take delete]"},
		{fmt.Sprint([]MarkerSafety{MarkersUnsealed, MarkersLongLived, MarkersSealed}), "[unsealed long-lived sealed]"},
		{fmt.Sprint([]AuditPlan{AuditNone, AuditList, AuditUnproven}), "[none list unproven]"},
		{fmt.Sprint([]AuditVerdict{AuditAgrees, AuditStale, AuditSuspect, AuditContradicts, AuditUnsure}), "[agrees stale suspect contradicts unsure]"},
	} {
		if c.got != c.want {
			t.Errorf("%s, want %s", c.got, c.want)
		}
	}
}
