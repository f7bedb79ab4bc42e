package main

import (
	"context"
	"os"
	"slices"
	"strings"
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
func TestAnUnknownPartIsAnError(t *testing.T) {
	b := &bench{o: options{only: "index/scan", dir: t.TempDir()}}
	if err := b.run(t.Context()); err == nil || !strings.Contains(err.Error(), "indexes") {
		t.Errorf("%v", err)
	}
}

func TestEveryPartRuns(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	b := &bench{o: options{keys: 2000, behind: 200, rounds: 1, seconds: 1, dir: t.TempDir()}}
	for _, part := range []string{"hydrate", "indexes", "restart", "live"} {
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
	for _, name := range []string{"hydrate/bare", "hydrate/watchall", "hydrate/watchall-memory", "hydrate/cpu-us", "hydrate/allocs", "hydrate/peak-mb-per-million", "hydrate/restart", "greedy/window", "index-1/none", "index-1/none-cpu", "index-3/none", "index-3/none-cpu"} {
		if !names[name] {
			t.Errorf("no ratio %s", name)
		}
	}
}

// TestRepairsRun measures repairs of small folds; each child checks that it did the repair and ended at the bucket's
// truth. It asserts no time.
func TestRepairsRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	b := &bench{o: options{only: "repair", sizes: []int{2000, 6000}, keys: 2000, rounds: 2, memory: 64, dir: dir}}
	if err := b.run(ctx); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range b.ratios {
		if names = append(names, r.Name); !(r.Value > 0) {
			t.Errorf("ratio %s is %v", r.Name, r.Value)
		}
	}
	want := []string{"relist/hydrate-6k", "restore/hydrate-6k", "relist/hydrate", "restore/hydrate", "peak6k/peak2k"}
	if !slices.Equal(names, want) {
		t.Errorf("ratios %q, want %q", names, want)
	}
	for role, rounds := range map[string]int{"hydrate": 3, "relist": 3, "restore": 3} {
		rs := b.results[role]
		if len(rs) != rounds {
			t.Errorf("%s was measured %d times, want %d", role, len(rs), rounds)
		}
		for _, r := range rs {
			repaired := r.Repair != nil && r.Repair.Deleted == uint64(r.Messages/200) && r.Repair.Seconds > 0 && r.Repair.PeakMB > 0
			if repaired != (role != "hydrate") || r.HeapMB <= 0 || r.PeakMB < r.HeapMB {
				t.Errorf("%s gave %+v", role, r)
			}
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestKeysAreAListOfSizes(t *testing.T) {
	var o options
	if err := o.setKeys("50000,250000"); err != nil || o.keys != 50_000 || !slices.Equal(o.sizes, []int{50_000, 250_000}) {
		t.Errorf("%v, %+v", err, o)
	}
	for _, text := range []string{"", "1,", "x", "0", "-1"} {
		if err := new(options).setKeys(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
	for keys, want := range map[int]string{5_000_000: "5m", 250_000: "250k", 1234: "1234", 1_500_000: "1500k"} {
		if got := short(keys); got != want {
			t.Errorf("%d keys are %q, want %q", keys, got, want)
		}
	}
}
