package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// hydrate reads the whole bucket in every way, round by round.
func (b *bench) hydrate(ctx context.Context) error {
	for round := range b.o.rounds {
		fmt.Fprintf(os.Stderr, "hydrate %d keys, round %d of %d\n", b.o.keys, round+1, b.o.rounds)
		for _, role := range []string{"push", "fold", "pull", "watchall", "fold-hooks", "fold-resident"} {
			if err := b.fresh(ctx, role); err != nil {
				return err
			}
		}
	}
	rate := func(role string) float64 { return medianOf(b.results[role], result.rate) }
	bare := max(rate("push"), rate("pull"))
	b.ratio("hydrate/bare", rate("fold")/bare, 0.6, false)
	b.ratio("hydrate/watchall", rate("fold")/rate("watchall"), 0.95, false)
	peak := func(role string) float64 {
		return medianOf(b.results[role], func(r result) float64 { return r.PeakMB })
	}
	b.ratio("hydrate/watchall-memory", peak("fold")/peak("watchall"), 0.34, true)
	b.ratio("hydrate/cpu-us", medianOf(b.results["fold"], func(r result) float64 { return r.CPU / float64(r.Messages) * 1e6 }), 5.5, true)
	b.ratio("hydrate/allocs", medianOf(b.results["fold"], func(r result) float64 { return r.Allocs }), 4.1, true)
	b.ratio("hydrate/peak-mb-per-million", peak("fold")/(float64(b.o.keys)/1e6), 0, true)
	return nil
}

// indexes reads the whole bucket into tables with none, one and three indexes, round by round.
func (b *bench) indexes(ctx context.Context) error {
	for round := range b.o.rounds {
		fmt.Fprintf(os.Stderr, "indexes %d keys, round %d of %d\n", b.o.keys, round+1, b.o.rounds)
		for _, role := range []string{"fold", "fold-index-1", "fold-index-3"} {
			if err := b.fresh(ctx, role); err != nil {
				return err
			}
		}
	}
	for _, n := range []string{"1", "3"} {
		var times, cpu []float64
		with := b.results["fold-index-"+n]
		without := b.results["fold"][len(b.results["fold"])-len(with):] // the hydrate part has some too
		for i := range with {
			times = append(times, with[i].Seconds/without[i].Seconds)
			cpu = append(cpu, with[i].CPU/without[i].CPU)
		}
		want := map[string]float64{"1": 1.6}[n]
		b.ratio("index-"+n+"/none", median(times), want, true)
		b.ratio("index-"+n+"/none-cpu", median(cpu), 0, true)
	}
	return nil
}

// fresh runs a role with an empty folder.
func (b *bench) fresh(ctx context.Context, role string) error {
	dir, err := os.MkdirTemp(b.o.dir, role+"-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	_, err = b.child(ctx, role, dir)
	return err
}

// restart brings a full fold that is behind up to date, beside a full hydrate.
func (b *bench) restart(ctx context.Context) error {
	dir := filepath.Join(b.o.dir, "restarting")
	var ratios []float64
	for round := range b.o.rounds {
		fmt.Fprintf(os.Stderr, "restart %d behind, round %d of %d\n", b.o.behind, round+1, b.o.rounds)
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		full, err := b.child(ctx, "fold", dir)
		if err != nil {
			return err
		}
		if _, err := b.child(ctx, "update", dir); err != nil {
			return err
		}
		delta, err := b.child(ctx, "fold", dir)
		if err != nil {
			return err
		}
		if delta.Messages < b.o.behind || delta.Messages > 2*b.o.behind {
			return fmt.Errorf("%d updates came after a restart %d behind", delta.Messages, b.o.behind)
		}
		ratios = append(ratios, full.Seconds/delta.Seconds)
	}
	b.ratio("hydrate/restart", median(ratios), 10, false)
	return nil
}

// live compares greedy batches with the window of the seed.
func (b *bench) live(ctx context.Context) error {
	var ratios []float64
	for round := range b.o.rounds {
		fmt.Fprintf(os.Stderr, "live, round %d of %d\n", round+1, b.o.rounds)
		for _, role := range []string{"greedy", "window"} {
			if err := b.fresh(ctx, role); err != nil {
				return err
			}
		}
		g, w := b.results["greedy"][round], b.results["window"][round]
		ratios = append(ratios, g.P50/w.P50)
	}
	b.ratio("greedy/window", median(ratios), 0.15, true)
	return nil
}

var benchLine = regexp.MustCompile(`(?m)^(Benchmark\w+)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op`)

// micro runs pairs of Go benchmarks, interleaved by the test runner's -count.
func (b *bench) micro(ctx context.Context) error {
	for _, pair := range []struct {
		name, pkg, over, under string
		want                   float64
		atMost                 bool
	}{
		{"peek/map", "./runtime", "BenchmarkPeek", "BenchmarkMapLookup", 3, true},
		{"index/scan", "./runtime", "BenchmarkIndexRead", "BenchmarkIndexScan", 0.1, true},
		{"split/ack", "./runtime/natskv", "BenchmarkAckParseSplit10k", "BenchmarkAckParse10k", 5, false},
	} {
		fmt.Fprintf(os.Stderr, "micro %s\n", pair.name)
		var out bytes.Buffer
		times := map[string][]float64{}
		for range b.o.rounds {
			out.Reset()
			cmd := exec.CommandContext(ctx, "go", "test", "-run=^$", "-bench=^("+pair.over+"|"+pair.under+")$", "-benchmem", pair.pkg)
			cmd.Stdout, cmd.Stderr = &out, os.Stderr
			if err := cmd.Run(); err != nil {
				return fmt.Errorf("%s: %w\n%s", pair.name, err, out.String())
			}
			for _, m := range benchLine.FindAllStringSubmatch(out.String(), -1) {
				ns, err := strconv.ParseFloat(m[2], 64)
				if err != nil {
					return err
				}
				times[m[1]] = append(times[m[1]], ns)
			}
		}
		if len(times[pair.over]) == 0 || len(times[pair.under]) == 0 {
			return fmt.Errorf("%s: no figures in:\n%s", pair.name, out.String())
		}
		b.ratio(pair.name, median(times[pair.over])/median(times[pair.under]), pair.want, pair.atMost)
	}
	return nil
}

func (b *bench) ratio(name string, value, want float64, atMost bool) {
	b.ratios = append(b.ratios, ratio{Name: name, Value: value, Want: want, AtMost: atMost})
}

// report prints the medians, then a line a figure.
func (b *bench) report() error {
	if b.o.asJSON {
		return json.NewEncoder(os.Stdout).Encode(map[string]any{"ratios": b.ratios, "runs": b.results})
	}
	for _, r := range b.ratios {
		bound := "at least"
		if r.AtMost {
			bound = "at most"
		}
		note := ""
		if r.Want > 0 {
			note = fmt.Sprintf("   # asked for: %s %g", bound, r.Want)
		}
		fmt.Printf("ratio %s %.3g%s\n", r.Name, r.Value, note)
	}
	return nil
}
