package fold_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
)

// TestHooksAreToldOfHydrating: until the fold has caught up for the first time, and not after it.
func TestHooksAreToldOfHydrating(t *testing.T) {
	log := newLog()
	var told []bool
	hooks := ft.RouteHookFuncs{Apply: func(_ context.Context, events []ft.RouteEvent) error {
		for i := range events {
			told = append(told, events[i].Hydrating)
		}
		return nil
	}}
	setRoute(t, log, route("t", "a", "n"))
	tb := start(t, log, openStore(t, backends[0], t.TempDir()), startOptions{routes: []fold.TableOption{ft.WithRouteHooks(hooks)}})
	tb.hydrated(t)
	setRoute(t, log, route("t", "b", "n"))
	tb.caughtUp(t, log)
	tb.close(t)
	if !slices.Equal(told, []bool{true, false}) {
		t.Errorf("hydrating: %v, want true, then false", told)
	}
}

// TestUnmatchedTokensAreBounded: keys of ever new first tokens are all counted, and only so many told apart.
func TestUnmatchedTokensAreBounded(t *testing.T) {
	const tokens, most = 70, 64
	log := newLog()
	for i := range tokens {
		log.Set(fmt.Sprintf("foreign%d.key", i), "x")
	}
	tb := start(t, log, openStore(t, backends[0], t.TempDir()), startOptions{})
	tb.caughtUp(t, log)
	tb.close(t)
	got := tb.f.Status().Unmatched
	if len(got) != most+1 || got[""] != tokens-most {
		t.Errorf("%d tokens told apart, and %d keys of others; want %d and %d", len(got)-1, got[""], most, tokens-most)
	}
}

// TestDigestTellsRevisionsApart: the same values at other revisions are another truth.
func TestDigestTellsRevisionsApart(t *testing.T) {
	digest := func(writes int) fold.Digest {
		log := newLog()
		for range writes {
			setRoute(t, log, route("t", "a", "n"))
		}
		tb := start(t, log, openStore(t, backends[0], t.TempDir()), startOptions{})
		tb.caughtUp(t, log)
		snap, err := tb.f.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		d, err := snap.Digest(bounded(t))
		if err != nil {
			t.Error(err)
		}
		if err := snap.Close(); err != nil {
			t.Error(err)
		}
		tb.close(t)
		return d
	}
	if once, twice := digest(1), digest(2); once == twice || once != digest(1) {
		t.Error("digests don't tell revision 1 from revision 2, or the same from the same")
	}
}
