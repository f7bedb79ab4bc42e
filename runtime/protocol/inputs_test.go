package protocol

import (
	"reflect"
	"testing"
)

// wantNoDeadInput shows for each field of a kernel's input a case in the domain whose answer changes when that field alone
// is forged.
func wantNoDeadInput[I any, O comparable](t *testing.T, kernel string, domain []I, answer func(I) O) {
	t.Helper()
	fields := reflect.TypeFor[I]()
	for i := range fields.NumField() {
		if !matters(domain, i, answer) {
			t.Errorf("%s: no answer depends on %s", kernel, fields.Field(i).Name)
		}
	}
}

func matters[I any, O comparable](domain []I, field int, answer func(I) O) bool {
	var values []reflect.Value
	seen := map[any]bool{}
	for i := range domain {
		if v := reflect.ValueOf(&domain[i]).Elem().Field(field); !seen[v.Interface()] {
			seen[v.Interface()] = true
			values = append(values, v)
		}
	}
	for _, in := range domain {
		for _, v := range values {
			forged := in
			reflect.ValueOf(&forged).Elem().Field(field).Set(v)
			if answer(forged) != answer(in) {
				return true
			}
		}
	}
	return false
}

func TestNoDeadInputs(t *testing.T) {
	type settings struct {
		Evicts bool
		First  uint64
		Seen   bool
	}
	wantNoDeadInput(t, "ListingIsTruth", []settings{{true, 2, false}, {false, 1, true}}, func(s settings) bool { return ListingIsTruth(s.Evicts, s.First, s.Seen) })
	wantNoDeadInput(t, "ListingTruth", truthDomain(), truthInput.truth)
	wantNoDeadInput(t, "HasEvicted", retentions(), HasEvicted)
	wantNoDeadInput(t, "PlanRepair", planInputs(), PlanRepair)
	wantNoDeadInput(t, "CursorlessStartNeedsRepair", startInputs(), startInput.needsRepair)
	type pos struct {
		ArtifactLog, LocalLog int64
		Artifact, Local       uint64
	}
	wantNoDeadInput(t, "RestoreAhead", []pos{{1, 1, 3, 2}, {2, 2, 2, 3}}, func(p pos) bool {
		return RestoreAhead(Position{p.ArtifactLog, p.Artifact}, Position{p.LocalLog, p.Local})
	})
	wantNoDeadInput(t, "RestoreAllowed", placeDomain(), places.allowed)
	wantNoDeadInput(t, "RestoreKey", keyInputs(), keyInput.restore)
	wantNoDeadInput(t, "ListingPlausible", listings(), ListingPlausible)
	wantNoDeadInput(t, "NeedsSecondListing", counts(), func(c brake) bool { return NeedsSecondListing(c.Deletes, c.Rows) })
	wantNoDeadInput(t, "MarkersCanVanish", markerInputs(), markerInput.safety)
	wantNoDeadInput(t, "GapNeedsAudit", gaps(), GapNeedsAudit)
	timed := AuditSeen{Before: 9, After: 9, Row: 5, Listed: 5, HasRow: true, RowTime: 70, ListedTime: 71}
	once := timed
	once.ListedTime = timed.RowTime
	wantNoDeadInput(t, "AuditKey", append(auditInputs(), timed, once), AuditKey)
	type plan struct {
		Owed  bool
		Truth Truth
	}
	plans := []plan{{false, TruthYes}, {true, TruthYes}, {false, TruthNo}, {true, TruthNo}}
	wantNoDeadInput(t, "PlanAudit", plans, func(p plan) AuditPlan { return PlanAudit(p.Owed, p.Truth) })
	type pair struct{ A, B uint64 }
	wantNoDeadInput(t, "AuditSettles", []pair{{1, 1}, {1, 2}, {2, 1}}, func(p pair) bool { return AuditSettles(p.A, p.B) })
	type suspect struct {
		Value         bool
		Last, Applied uint64
	}
	wantNoDeadInput(t, "SuspectIsMissing", []suspect{{true, 1, 1}, {false, 2, 0}}, func(s suspect) bool { return SuspectIsMissing(s.Value, s.Last, s.Applied) })
}

// Dead inputs are found: a kernel that leaves one of its inputs out fails.
func TestDeadInputsAreFound(t *testing.T) {
	domain := truthDomain()
	for field, name := range []string{"Known", "Evicts", "Inside", "First", "Seen"} {
		deaf := func(in truthInput) Truth {
			reflect.ValueOf(&in).Elem().Field(field).SetZero()
			return in.truth()
		}
		if matters(domain, field, deaf) {
			t.Errorf("%s matters to a kernel that does not read it", name)
		}
	}
}
