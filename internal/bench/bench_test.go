package main

import (
	"context"
	"os"
	"testing"
	"time"
)

// TestMain lets the test binary be its own child, as the command is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-role" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestEveryPartRuns measures next to nothing; it asserts no time.
func TestEveryPartRuns(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	b := &bench{o: options{keys: 2000, behind: 200, rounds: 1, seconds: 1, dir: t.TempDir()}}
	for _, part := range []string{"hydrate", "restart", "live"} {
		b.o.only = part
		if err := b.run(ctx); err != nil {
			t.Fatalf("%s: %v", part, err)
		}
	}
	names := map[string]bool{}
	for _, r := range b.ratios {
		if names[r.Name] = true; r.Value <= 0 {
			t.Errorf("ratio %s is %v", r.Name, r.Value)
		}
	}
	for _, name := range []string{"hydrate/bare", "hydrate/watchall", "hydrate/watchall-memory", "hydrate/cpu-us", "hydrate/allocs", "hydrate/peak-mb-per-million", "hydrate/restart", "greedy/window"} {
		if !names[name] {
			t.Errorf("no ratio %s", name)
		}
	}
}
