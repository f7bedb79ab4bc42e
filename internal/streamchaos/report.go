package streamchaos

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"sort"
	"time"
)

// Report is what came of a run.
type Report struct {
	Seed    uint64  `json:"seed"`
	Seconds float64 `json:"seconds"`
	// Calls are counted by what was asked and what was told, such as "append ok".
	Calls   map[string]int `json:"calls"`
	Streams []StreamReport `json:"streams"`
	Faults  []FaultReport  `json:"faults"`
	// ReadErrors are reads that failed, by their text. They say nothing of what was read.
	ReadErrors map[string]int `json:"read_errors,omitempty"`
	Findings   []Finding      `json:"findings"`
	// Replay is the command that does it again, and Dir where the processes' data and logs are.
	Replay string `json:"replay"`
	Dir    string `json:"dir"`
}

// StreamReport is what was looked at of one stream.
type StreamReport struct {
	Name string `json:"name"`
	Tally
}

// FaultReport is what a kind of fault did. LongestMS is the longest time without an append that succeeded, on one stream, which
// began while one of them was there, in milliseconds. Where faults overlap, others may have caused it, or made it longer.
type FaultReport struct {
	Kind      Kind  `json:"kind"`
	Count     int   `json:"count"`
	LongestMS int64 `json:"longest_ms"`
}

// report is all but what the logs tell.
func (c *chaos) report() *Report {
	r := &Report{Seed: c.o.Seed, Seconds: c.since().Seconds(), Calls: map[string]int{}, Replay: c.o.line(), Dir: c.o.Dir, ReadErrors: c.r.errors}
	maps.Copy(r.Calls, c.l.calls)
	var at [][]time.Duration
	for i := range streamKinds {
		at = append(at, successes(c.l.ops(i)))
	}
	byKind := map[Kind]*FaultReport{}
	for _, f := range c.s.done {
		if byKind[f.Kind] == nil {
			byKind[f.Kind] = &FaultReport{Kind: f.Kind}
		}
		one := byKind[f.Kind]
		one.Count++
		for _, stream := range at {
			one.LongestMS = max(one.LongestMS, longest(stream, f.From, f.To).Milliseconds())
		}
	}
	for _, f := range byKind {
		r.Faults = append(r.Faults, *f)
	}
	return r
}

// successes are when appends were acknowledged, in order.
func successes(ops []*op) (all []time.Duration) {
	for _, o := range ops {
		if o.verb == verbAppend && o.verdict == told {
			all = append(all, o.ret)
		}
	}
	slices.Sort(all)
	return all
}

// slack is how long before a fault is noted, or after, its effect may begin.
const slack = 300 * time.Millisecond

// longest is the longest time between two successes that begins in a span.
func longest(at []time.Duration, from, to time.Duration) (most time.Duration) {
	first := sort.Search(len(at), func(i int) bool { return at[i] >= from-slack })
	for i := first; i+1 < len(at) && at[i] <= to+slack; i++ {
		most = max(most, at[i+1]-at[i])
	}
	return most
}

// line is the command that does a run again.
func (o Options) line() string {
	line := fmt.Sprintf("go run ./internal/streamchaos/cmd/streamchaos -seed %d -time %v", o.Seed, o.Duration)
	if o.Gap != (Options{}).withDefaults().Gap {
		line += fmt.Sprintf(" -gap %v", o.Gap)
	}
	if !slices.Equal(o.Kinds, Kinds()) {
		line += " -faults " + join(o.Kinds)
	}
	return line
}

// Write prints a report; its last line has the counts.
func (r *Report) Write(out io.Writer) {
	for _, what := range slices.Sorted(maps.Keys(r.Calls)) {
		fmt.Fprintf(out, "%-16s %9d\n", what, r.Calls[what])
	}
	for _, f := range r.Faults {
		fmt.Fprintf(out, "%-16s %9d   longest time without an append %6.1f s\n", f.Kind, f.Count, float64(f.LongestMS)/1000)
	}
	for _, s := range r.Streams {
		fmt.Fprintf(out, "stream %-9s %9d records, %d frames, %d epochs, %d fences; %d replicas; %d records read; %d unknown landed, %d resent twice there, %d false misses\n",
			s.Name, s.Records, s.Frames, s.Epochs, s.Fences, s.Replicas, s.Reads, s.Landed, s.Resent, s.FalseMisses)
	}
	for _, text := range slices.SortedFunc(maps.Keys(r.ReadErrors), func(a, b string) int { return cmp.Compare(r.ReadErrors[b], r.ReadErrors[a]) }) {
		fmt.Fprintf(out, "read failed      %9d   %s\n", r.ReadErrors[text], text)
	}
	for _, f := range r.Findings {
		fmt.Fprintf(out, "inconsistent: %s\n", f)
	}
	if len(r.Findings) > 0 {
		fmt.Fprintf(out, "  data and logs: %s\n", r.Dir)
	}
	fmt.Fprintf(out, "  replay: %s\n", r.Replay)
	fmt.Fprintf(out, "calls %d faults %d inconsistent %d\n", r.CallCount(), r.FaultCount(), len(r.Findings))
}

// CallCount is how many calls were noted, FaultCount how many faults were done.
func (r *Report) CallCount() (n int) {
	for _, c := range r.Calls {
		n += c
	}
	return n
}

// FaultCount is how many faults were done.
func (r *Report) FaultCount() (n int) {
	for _, f := range r.Faults {
		n += f.Count
	}
	return n
}
