package protocol

import (
	"math/big"
	"testing"
)

func listings() (out []Listing) {
	small := []uint64{0, 1, 2, 3}
	for _, created := range [][2]int64{{1, 1}, {1, 2}, {2, 1}} {
		for _, before := range small {
			for _, after := range small {
				for _, highest := range small {
					for _, listed := range small {
						for _, keysBefore := range small {
							for _, keysAfter := range small {
								out = append(out, Listing{
									CreatedPlanned: created[0], CreatedAfter: created[1], HeadBefore: before, HeadAfter: after, Highest: highest,
									Listed: listed, KeysBefore: keysBefore, KeysAfter: keysAfter,
								})
							}
						}
					}
				}
			}
		}
	}
	return out
}

// Each reason for which a listing can't be of the log that was planned for, or can't be whole.
func TestListingPlausible(t *testing.T) {
	yes := 0
	for _, l := range listings() {
		another := l.CreatedAfter-l.CreatedPlanned != 0
		wentBack := l.HeadAfter < l.HeadBefore || l.HeadAfter < l.Highest
		short := l.Listed < l.KeysBefore && l.Listed < l.KeysAfter
		want := !another && !wentBack && !short
		if got := ListingPlausible(l); got != want {
			t.Fatalf("%+v: %v", l, got)
		}
		if want {
			yes++
		}
	}
	if yes == 0 {
		t.Fatal("no listing was plausible")
	}
}

// An honest listing, read key by key while the log goes on, is plausible whether keys come or vanish meanwhile; with a key
// left out that was there all along it is not.
func TestHonestListingIsPlausible(t *testing.T) {
	const keys = 3
	set := func(bits int) (n uint64) {
		for ; bits > 0; bits &= bits - 1 {
			n++
		}
		return n
	}
	for before := range 1 << keys {
		for after := range 1 << keys {
			grew, shrank := before&^after == 0, after&^before == 0
			if !grew && !shrank {
				continue // some came and some vanished: it may be refused, and is taken again
			}
			for listed := range 1 << keys {
				stayed, ever := before&after, before|after
				if listed&^ever != 0 {
					continue
				}
				l := Listing{HeadBefore: 5, HeadAfter: 9, Highest: 9, Listed: set(listed), KeysBefore: set(before), KeysAfter: set(after)}
				if whole := stayed&^listed == 0; whole && !ListingPlausible(l) {
					t.Errorf("%+v, which is whole, is refused", l)
				}
				if before == after && listed != before && ListingPlausible(l) {
					t.Errorf("%+v, which is short, is taken", l)
				}
			}
		}
	}
}

type brake struct{ Deletes, Rows uint64 }

func counts() (out []brake) {
	for deletes := range uint64(40) {
		for rows := range uint64(120) {
			out = append(out, brake{deletes, rows})
		}
	}
	for _, deletes := range edges {
		for _, rows := range edges {
			out = append(out, brake{deletes, rows})
		}
	}
	return out
}

// More than ten keys, and more than a fifth of the fold: in whole numbers, which do not wrap.
func TestNeedsSecondListing(t *testing.T) {
	for _, c := range counts() {
		fiveTimes := new(big.Int).Mul(whole(c.Deletes), big.NewInt(5))
		want := whole(c.Deletes).Cmp(big.NewInt(10)) > 0 && fiveTimes.Cmp(whole(c.Rows)) > 0
		if got := NeedsSecondListing(c.Deletes, c.Rows); got != want {
			t.Errorf("%d deletes of %d rows: %v", c.Deletes, c.Rows, got)
		}
	}
}

// markerInput is a log's rules and an absence, flat.
type markerInput struct {
	Purge, Delete, Rollup, MessageTTL bool
	MarkerTTL, Away                   int64
}

func markerInputs() (out []markerInput) {
	for bits := range 16 {
		for _, markerTTL := range []int64{0, 1, 2, 3, 5} {
			for _, away := range []int64{-1, 0, 1, 2, 3, 4} {
				out = append(out, markerInput{bits&1 > 0, bits&2 > 0, bits&4 > 0, bits&8 > 0, markerTTL, away})
			}
		}
	}
	return out
}

func (in markerInput) safety() MarkerSafety {
	return MarkersCanVanish(MarkerRules{in.Purge, in.Delete, in.Rollup, in.MessageTTL, in.MarkerTTL}, in.Away)
}

// A marker that was written at time 0, when the reader left, and what anybody may do to it until the reader is back. The
// server writes a marker in the place of one that aged out, and of no other. An absence of unknown length may be any.
func TestMarkersCanVanish(t *testing.T) {
	seen := map[MarkerSafety]int{}
	for _, in := range markerInputs() {
		vanishes := in.Purge || in.Delete || in.Rollup // by hand, and without a trace
		unseen := vanishes
		away := in.Away
		if away <= 0 {
			away = 100
		}
		for ttl := int64(1); in.MessageTTL && ttl <= away; ttl++ {
			vanishes = true
			if in.MarkerTTL == 0 || ttl+in.MarkerTTL <= away {
				unseen = true
			}
		}
		want := MarkersUnsealed
		switch {
		case !vanishes:
			want = MarkersSealed
		case !unseen:
			want = MarkersLongLived
		}
		got := in.safety()
		if got != want {
			t.Errorf("%+v: %v, want %v", in, got, want)
		}
		seen[got]++
	}
	if len(seen) != 3 {
		t.Fatalf("seen %v", seen)
	}
}

func gaps() (out []Gap) {
	for _, missing := range bools {
		for _, agedOut := range bools {
			for _, markers := range []MarkerSafety{MarkersUnsealed, MarkersLongLived, MarkersSealed} {
				out = append(out, Gap{Missing: missing, Markers: markers, AgedOut: agedOut})
			}
		}
	}
	return out
}

// A gap needs no audit when no marker can have vanished from it: nothing is missing, none can vanish, or the trace that
// each one leaves did not come.
func TestGapNeedsAudit(t *testing.T) {
	for _, g := range gaps() {
		none := !g.Missing || g.Markers == MarkersSealed || g.Markers == MarkersLongLived && !g.AgedOut
		if got := GapNeedsAudit(g); got == none {
			t.Errorf("%+v: %v", g, got)
		}
	}
	if !GapNeedsAudit(Gap{Missing: true, Markers: 99}) {
		t.Error("a safety that is not known needs an audit")
	}
}

// A listing settles an audit only where it is the truth, and nothing is done that is not owed.
func TestPlanAudit(t *testing.T) {
	want := map[bool]map[Truth]AuditPlan{
		false: {TruthUnknown: AuditNone, TruthYes: AuditNone, TruthNo: AuditNone},
		true:  {TruthUnknown: AuditUnproven, TruthYes: AuditList, TruthNo: AuditUnproven},
	}
	for owed, plans := range want {
		for truth, plan := range plans {
			if got := PlanAudit(owed, truth); got != plan {
				t.Errorf("owed %v, truth %v: %v, want %v", owed, truth, got, plan)
			}
		}
	}
}
