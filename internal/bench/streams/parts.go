package main

import (
	"fmt"
	"math"
	"slices"
	"syscall"
	"time"
)

const roleServer = "server"

// part is what one -only runs: roles once and in turn, and the figures that they give.
type part struct {
	name    string
	once    []string // roles that run once, before the rounds
	roles   []string
	figures func(*bench)
}

var parts = []part{
	{"batch", nil, []string{"async", "batch100"}, func(b *bench) {
		b.ratio("batch100/async", b.pairs("batch100", "async", result.rate), 5, false)
	}},
	{"match", nil, []string{"match-bare", "match"}, func(b *bench) {
		b.ratio("match/bare", b.pairs("match", "match-bare", result.rate), 0.7, false)
	}},
	{"p50", nil, []string{"sync", "producer", "one-shot", "empty-call"}, func(b *bench) {
		p50 := func(r result) float64 { return r.P50 }
		b.ratio("p50/bare", b.pairs("producer", "sync", p50), 3, true)
		b.ratio("p50/bare-one-shot", b.pairs("one-shot", "sync", p50), 3, true)
		b.ratio("p50/empty-call", b.pairs("one-shot", "empty-call", p50), 0, true)
	}},
	framing(0).part(), framing(100).part(), framing(10).part(), framing(1).part(),
	{"crowd", nil, []string{"crowd-one-shot", "crowd-fence"}, func(b *bench) {
		for _, role := range []string{"crowd-one-shot", "crowd-fence"} {
			b.ratio(role+"/p50-us", b.median(role, func(r result) float64 { return r.P50 }), 0, true)
			b.ratio(role+"/p99-us", b.median(role, func(r result) float64 { return r.P99 }), 0, true)
		}
	}},
	{"fence", nil, []string{"fence"}, func(b *bench) {
		b.ratio("fence/p50-us", b.median("fence", func(r result) float64 { return r.P50 }), 0, true)
		b.ratio("fence/p99-us", b.median("fence", func(r result) float64 { return r.P99 }), 0, true)
		b.ratio("fence/returned", b.median("fence", func(r result) float64 { return float64(r.Records) / float64(b.o.fences) }), 1, false)
	}},
}

// pairs is the median over the rounds of one role's figure against another's.
func (b *bench) pairs(over, under string, f func(result) float64) float64 {
	var all []float64
	for i, r := range b.results[over] {
		all = append(all, f(r)/f(b.results[under][i]))
	}
	return quantile(all, 0.5)
}

func (b *bench) median(role string, f func(result) float64) float64 {
	var all []float64
	for _, r := range b.results[role] {
		all = append(all, f(r))
	}
	return quantile(all, 0.5)
}

// result is what one child measured.
type result struct {
	Records int     `json:"records"` // or appends, or fences
	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpu_seconds"`        // of the child itself
	Server  float64 `json:"server_cpu_seconds"` // of both servers' process meanwhile
	P50     float64 `json:"p50_us,omitempty"`
	P99     float64 `json:"p99_us,omitempty"`
	Frames  int     `json:"frames,omitempty"`
}

func (r result) rate() float64 { return float64(r.Records) / r.Seconds }

func (r result) String() string {
	if r.P50 > 0 {
		return fmt.Sprintf("%d times: p50 %.0f µs, p99 %.0f µs", r.Records, r.P50, r.P99)
	}
	each := 1e6 / float64(r.Records)
	text := fmt.Sprintf("%8.0f/s, %5.2f + %5.2f µs CPU of this side and of the servers a record", r.rate(), r.CPU*each, r.Server*each)
	if r.Frames > 0 {
		text += fmt.Sprintf(", in %d frames", r.Frames)
	}
	return text
}

// meter measures from its making to done.
type meter struct {
	s      *side
	began  time.Time
	cpu    time.Duration
	server time.Duration
}

func (s *side) startMeter() meter {
	return meter{s: s, server: s.serverCPU(), cpu: cpuTime(), began: time.Now()}
}

func (m meter) done(records int) result {
	r := result{Records: records, Seconds: time.Since(m.began).Seconds(), CPU: (cpuTime() - m.cpu).Seconds()}
	r.Server = (m.s.serverCPU() - m.server).Seconds()
	return r
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// times are the results of single calls.
func times(took []time.Duration) result {
	var sum time.Duration
	us := make([]float64, len(took))
	for i, d := range took {
		sum += d
		us[i] = float64(d) / float64(time.Microsecond)
	}
	return result{Records: len(took), Seconds: sum.Seconds(), P50: quantile(us, 0.5), P99: quantile(us, 0.99)}
}

// quantile is the smallest value that a share of at least q does not exceed; the median of an even number is the lower one.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	return s[max(int(math.Ceil(q*float64(len(s))))-1, 0)]
}
