package repair

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// scopesOf are all scopes over a few prefixes that nest, share letters and split tokens.
func scopesOf(t *testing.T) []kv.Scope {
	list := []string{"a", "ab", "a.", "a.b", "b", "b.a"}
	scopes := []kv.Scope{kv.AllKeys()}
	for set := 1; set < 1<<len(list); set++ {
		var p []string
		for i, s := range list {
			if set&(1<<i) != 0 {
				p = append(p, s)
			}
		}
		scopes = append(scopes, prefixes(t, p...))
	}
	return scopes
}

// TestCheckScope: what passes has every key of the fold's scope in the artifact's.
func TestCheckScope(t *testing.T) {
	keys := []string{"a", "aa", "ab", "abc", "ab.c", "a.a", "a.b", "a.bc", "a.b.c", "b", "ba", "b.a", "b.ab", "b.b", "c"}
	log := protocol.LogBounds{Log: 1, First: 1, Last: 9}
	checks, passed := 0, 0
	for _, has := range []bool{true, false} {
		for _, of := range scopesOf(t) {
			for _, want := range scopesOf(t) {
				at := target{scope: want, log: log}
				text := at.check(Manifest{ID: "x", Cursor: kv.CursorAt(5), Scope: of, HasScope: has}, &Report{})
				checks++
				if !has {
					if !strings.Contains(text, "no key scope") {
						t.Fatalf("without a scope on record: %q", text)
					}
					continue
				}
				whole := true
				for _, k := range keys {
					whole = whole && (of.Contains(k) || !want.Contains(k))
				}
				if !whole && !strings.Contains(text, "does not cover") {
					t.Fatalf("an artifact of %v for a fold of %v: %q", of, want, text)
				}
				if text == "" {
					passed++
				}
				if of.String() == want.String() && text != "" {
					t.Fatalf("an artifact of the fold's own scope %v: %q", of, text)
				}
			}
		}
	}
	if checks < 8000 || passed < 1000 {
		t.Errorf("%d checks, %d passed", checks, passed)
	}
}

// TestCheckOrder compares with what the rule says in plain words, over all small positions.
func TestCheckOrder(t *testing.T) {
	a, b := prefixes(t, "a"), prefixes(t, "b")
	seen := map[string]int{}
	for n := range 2 * 2 * 3 * 6 * 2 * 5 * 2 * 6 * 5 {
		pick := func(k int) int { d := n % k; n /= k; return d }
		m := Manifest{ID: "x", HasScope: pick(2) == 0, Scope: []kv.Scope{a, b}[pick(2)], Log: kv.Incarnation{CreatedUnixNano: int64(pick(3))}, Cursor: kv.CursorAt(uint64(pick(6)))}
		at := target{scope: a, local: protocol.Position{Log: int64(pick(2)), Revision: uint64(pick(5))},
			log: protocol.LogBounds{Log: int64(pick(2)), First: uint64(pick(6)), Last: uint64(pick(5))}}
		art, local := m.Cursor.Revision(), at.local.Revision
		other := func(l int64) bool { return m.Log.CreatedUnixNano != 0 && l != 0 && l != m.Log.CreatedUnixNano }
		// What the resume has to deliver is in the log: the revisions after the artifact's cursor, up to before the first.
		gap := uint64(0)
		for rev := art + 1; rev < at.log.First; rev++ {
			gap++
		}
		want := ""
		switch {
		case !m.HasScope:
			want = "no key scope"
		case m.Scope.String() != "a":
			want = "does not cover"
		case other(at.log.Log):
			want = "another log"
		case art <= local, local > 0 && other(at.local.Log):
			want = "not ahead"
		case art > at.log.Last:
			want = "beyond the log's end"
		case gap > 0:
			want = "retention window"
		}
		var r Report
		text := at.check(m, &r)
		if want == "" && text != "" || !strings.Contains(text, want) {
			t.Fatalf("artifact %+v, target %+v: %q, want %q", m, at, text, want)
		}
		seen[want]++
		asked := map[string]bool{"scope_covers": true}
		asked["restore_ahead"] = want != "no key scope" && want != "does not cover" && want != "another log"
		asked["restore_allowed"] = asked["restore_ahead"] && want != "not ahead"
		for kernel, was := range asked {
			if (decision(&r, kernel) != "") != was {
				t.Fatalf("%q: decision %s is on record: %v", want, kernel, !was)
			}
		}
	}
	if len(seen) != 7 || seen[""] < 50 {
		t.Errorf("reasons seen: %v", seen)
	}
}

func TestRestoreRefusal(t *testing.T) {
	broken := errors.New("broken")
	gone := &kv.ExpiredError{Bucket: "sim", Cursor: kv.CursorAt(7), First: 20}
	p := &Repairer{}
	why := []CandidateRefusal{
		{ID: "old", Cursor: kv.CursorAt(3), Why: "is not ahead of the fold's cursor 7"},
		{ID: "torn", Why: "can't be read", Err: broken},
	}
	info := kv.LogInfo{Bucket: "sim", First: 20, Last: 30}
	err := error(p.refuseRestore(Request{Cause: protocol.CauseExpired, Cursor: kv.CursorAt(7), Err: gone}, info, why))
	var refused *RefusedError
	if !errors.Is(err, ErrRefused) || !errors.Is(err, kv.ErrCursorExpired) || !errors.As(err, &refused) {
		t.Fatalf("%v matches too little", err)
	}
	if refused.First != 20 || refused.Last != 30 || refused.Cursor != kv.CursorAt(7) || refused.Plan != protocol.PlanRestore {
		t.Errorf("numbers %+v", refused)
	}
	for _, part := range []string{`bucket "sim"`, `artifact "old" at cursor 3 is not ahead of the fold's cursor 7`, `artifact "torn" at cursor none can't be read: broken`, "20 to 30"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q lacks %q", err, part)
		}
	}
	for _, c := range []struct {
		cursor kv.Cursor
		why    []CandidateRefusal
		hint   string
	}{
		{kv.CursorAt(7), why, "export more often"},
		{kv.CursorAt(7), nil, "export more often"},
		{kv.Cursor{}, nil, "without a Source"},
		{kv.CursorAt(7), []CandidateRefusal{{Why: whyScope + " it"}}, "covers"},
		{kv.CursorAt(7), []CandidateRefusal{{Why: whyScope + " it"}, why[0]}, "export more often"},
	} {
		e := p.refuseRestore(Request{Cause: protocol.CauseExpired, Cursor: c.cursor}, info, c.why)
		if !strings.Contains(e.Hint(), c.hint) {
			t.Errorf("hint of %v with %d candidates: %q, want one with %q", c.cursor, len(c.why), e.Hint(), c.hint)
		}
		if len(c.why) == 0 && !strings.Contains(e.Error(), "no artifact") {
			t.Errorf("without candidates: %v", e)
		}
	}
	if text := fmt.Sprint(why[0]); !strings.Contains(text, "not ahead") {
		t.Errorf("candidate %q", text)
	}
}
