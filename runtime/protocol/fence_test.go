package protocol

import "testing"

func TestPlanFenced(t *testing.T) {
	for _, c := range []struct {
		name     string
		presents bool
		seen     FenceSeen
		want     FencedStep
	}{
		{"a token, never fenced", true, FenceSeen{}, FencedAbsent},
		{"no token, never fenced", false, FenceSeen{}, FencedUnchecked},
		{"no record, and nothing else counts", false, FenceSeen{Readable: true, Holds: true, Revision: 7}, FencedUnchecked},
		{"its token stands", true, FenceSeen{Present: true, Readable: true, Holds: true, Revision: 7}, FencedWrite},
		{"no token stands, as none is presented", false, FenceSeen{Present: true, Readable: true, Holds: true, Revision: 7}, FencedWrite},
		{"another token stands", true, FenceSeen{Present: true, Readable: true, Revision: 7}, FencedProve},
		{"a token stands, and none is presented", false, FenceSeen{Present: true, Readable: true, Revision: 7}, FencedProve},
		{"unreadable", true, FenceSeen{Present: true, Revision: 7}, FencedUnknown},
		{"unreadable, no token", false, FenceSeen{Present: true, Revision: 7}, FencedUnknown},
		{"unreadable is not what it seems to hold", true, FenceSeen{Present: true, Holds: true, Revision: 7}, FencedUnknown},
		{"0 is never expected", true, FenceSeen{Present: true, Readable: true, Holds: true}, FencedUnknown},
		{"0 is never proved", true, FenceSeen{Present: true, Readable: true}, FencedUnknown},
	} {
		if got := PlanFenced(c.presents, c.seen); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// No input has a write expect nothing of a bucket that has a record, or something of one that has none.
func TestPlanFencedOfAll(t *testing.T) {
	for bits := range 32 {
		bit := func(i int) bool { return bits>>i&1 == 1 }
		s := FenceSeen{Present: bit(0), Readable: bit(1), Holds: bit(2)}
		if bit(3) {
			s.Revision = 7
		}
		step := PlanFenced(bit(4), s)
		if (step == FencedWrite) != (s.Present && s.Readable && s.Holds && s.Revision != 0) {
			t.Errorf("%+v: %v", s, step)
		}
		if (step == FencedUnchecked) != (!s.Present && !bit(4)) {
			t.Errorf("presents %v, %+v: %v", bit(4), s, step)
		}
		if (step == FencedProve) != (s.Present && s.Readable && !s.Holds && s.Revision != 0) {
			t.Errorf("%+v: %v", s, step)
		}
		if (PlanFence(s) == FenceProves) != (step == FencedWrite) {
			t.Errorf("%+v: a Fence %v, a writer %v", s, PlanFence(s), step)
		}
	}
}

func TestFenceCheck(t *testing.T) {
	seen := map[int]bool{}
	for n := range uint64(3 * FenceKeys) {
		key, expect := FenceCheck(100, n)
		if key < 0 || key >= FenceKeys || expect != 100+uint64(key) || n >= FenceKeys == !seen[key] {
			t.Fatalf("check %d: key %d at %d", n, key, expect)
		}
		seen[key] = true
	}
	if key, expect := FenceCheck(1, 1<<64-1); key != FenceKeys-1 || expect != FenceKeys {
		t.Errorf("the last check: key %d at %d", key, expect)
	}
}

func TestCheckMoved(t *testing.T) {
	for _, c := range []struct {
		name string
		r    CheckRefused
		want bool
	}{
		{"it is as it was", CheckRefused{Expected: 7, Found: 7}, false},
		{"an older log was read", CheckRefused{Expected: 7, Found: 6}, false},
		{"it was written", CheckRefused{Expected: 7, Found: 8}, true},
		{"it is gone", CheckRefused{Expected: 7}, true},
	} {
		if got := CheckMoved(c.r); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestFenceProved(t *testing.T) {
	seen := FenceSeen{Present: true, Readable: true, Revision: 7}
	for _, c := range []struct {
		name string
		seen FenceSeen
		p    FenceProof
		want bool
	}{
		{"stored under it", seen, FenceProof{Stored: true, Expected: 7}, true},
		{"not stored", seen, FenceProof{Expected: 7}, false},
		{"stored under another one", seen, FenceProof{Stored: true, Expected: 6}, false},
		{"stored under a later one", seen, FenceProof{Stored: true, Expected: 8}, false},
		{"stored under none", seen, FenceProof{Stored: true}, false},
		{"no record", FenceSeen{Revision: 7}, FenceProof{Stored: true, Expected: 7}, false},
		{"unreadable", FenceSeen{Present: true, Revision: 7}, FenceProof{Stored: true, Expected: 7}, false},
		{"no revision", FenceSeen{Present: true, Readable: true}, FenceProof{Stored: true}, false},
		{"its own token", FenceSeen{Present: true, Readable: true, Holds: true, Revision: 7}, FenceProof{Stored: true, Expected: 7}, true},
	} {
		if got := FenceProved(c.seen, c.p); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestPlanFence(t *testing.T) {
	for _, c := range []struct {
		name string
		seen FenceSeen
		want FenceInstall
	}{
		{"never fenced", FenceSeen{}, FenceWrites},
		{"another token", FenceSeen{Present: true, Readable: true, Revision: 7}, FenceWrites},
		{"unreadable", FenceSeen{Present: true, Revision: 7}, FenceWrites},
		{"the same token", FenceSeen{Present: true, Readable: true, Holds: true, Revision: 7}, FenceProves},
	} {
		if got := PlanFence(c.seen); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestFenceFollows(t *testing.T) {
	for _, c := range []struct {
		name  string
		tail  FenceTail
		fence uint64
		want  bool
	}{
		{"stored under it", FenceTail{Fence: 7, Tail: 99}, 7, true},
		{"stored under another one", FenceTail{Fence: 6, Tail: 99}, 7, false},
		{"nothing is known", FenceTail{}, 7, false},
		{"no record is asked for", FenceTail{Tail: 99}, 0, false},
		{"before the record", FenceTail{Fence: 7, Tail: 6}, 7, false},
	} {
		if got := FenceFollows(c.tail, c.fence); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
