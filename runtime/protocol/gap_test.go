package protocol

import "testing"

func TestGapHoldsNoEviction(t *testing.T) {
	young := GapAge{AgeOnly: true, MaxAge: 100, Noted: 100, WrittenAt: 1000, Now: 1050}
	if !GapHoldsNoEviction(young) {
		t.Fatalf("%+v refused", young)
	}
	for name, change := range map[string]func(*GapAge){
		"older than half":     func(g *GapAge) { g.Now++ },
		"another way to lose": func(g *GapAge) { g.AgeOnly = false },
		"no age limit":        func(g *GapAge) { g.MaxAge = 0 },
		"no limit noted":      func(g *GapAge) { g.Noted = 0 },
		"limit lowered since": func(g *GapAge) { g.MaxAge = 99 },
		"limit raised since":  func(g *GapAge) { g.Noted = 99 },
		"time not known":      func(g *GapAge) { g.WrittenAt = 0 },
		"clock not known":     func(g *GapAge) { g.Now = 0 },
		"clock stepped back":  func(g *GapAge) { g.Now = 999 },
	} {
		g := young
		change(&g)
		if GapHoldsNoEviction(g) {
			t.Errorf("%s: %+v allowed", name, g)
		}
	}
}
