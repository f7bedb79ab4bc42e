package main

import (
	"context"
	"os"
	"slices"
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

// TestEveryPartRuns measures next to nothing; each child checks what it appended or read. It asserts no time.
func TestEveryPartRuns(t *testing.T) {
	for _, memory := range []bool{false, true} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		b := &bench{o: options{records: 2050, appends: 20, fences: 3, window: 500, flight: 16, rounds: 2, memory: memory, dir: t.TempDir()}}
		if err := b.run(ctx); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, r := range b.ratios {
			if names = append(names, r.name); !(r.value > 0) {
				t.Errorf("ratio %s is %v", r.name, r.value)
			}
			if r.name == "fence/returned" && r.value != 1 {
				t.Errorf("of the fences %v returned", r.value)
			}
		}
		want := []string{"batch100/async", "match/bare", "p50/bare", "p50/bare-one-shot", "p50/empty-call", "read/bare", "read/bare-100", "read/bare-10", "read/bare-1",
			"crowd-one-shot/p50-us", "crowd-one-shot/p99-us", "crowd-fence/p50-us", "crowd-fence/p99-us", "fence/p50-us", "fence/p99-us", "fence/returned"}
		if !slices.Equal(names, want) {
			t.Errorf("ratios %q, want %q", names, want)
		}
		for _, p := range parts {
			for _, role := range p.roles {
				if n := len(b.results[role]); n != 2 {
					t.Errorf("%s was measured %d times, want 2", role, n)
				}
			}
			for _, role := range p.once {
				if n := len(b.results[role]); n != 1 {
					t.Errorf("%s ran %d times, want once", role, n)
				}
			}
		}
	}
}

func TestOnlyNamesAPart(t *testing.T) {
	o := options{records: 100, appends: 1, fences: 1, window: 100, flight: 1, rounds: 1}
	for _, p := range parts {
		if o.only = p.name; o.validate() != nil {
			t.Errorf("-only %s: %v", p.name, o.validate())
		}
	}
	if o.only = "batches"; o.validate() == nil {
		t.Error("-only batches was taken")
	}
	if o.only, o.window = "", 99; o.validate() == nil {
		t.Error("a window below one batch was taken")
	}
}

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		values  []float64
		q, want float64
	}{{nil, 0.5, 0}, {[]float64{3}, 0.99, 3}, {[]float64{3, 1, 2}, 0.5, 2}, {[]float64{4, 3, 2, 1}, 0.5, 2}, {[]float64{1, 2, 3, 4}, 0.99, 4}} {
		if got := quantile(c.values, c.q); got != c.want {
			t.Errorf("the %v quantile of %v is %v, want %v", c.q, c.values, got, c.want)
		}
	}
}
