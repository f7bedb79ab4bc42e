package main

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// result is what one child measured.
type result struct {
	Messages int     `json:"messages"`
	Seconds  float64 `json:"seconds"`
	CPU      float64 `json:"cpu_seconds"` // of the child itself
	Allocs   float64 `json:"allocs"`      // a message
	PeakMB   float64 `json:"peak_mb"`     // the child's largest resident memory
	P50      float64 `json:"p50_us,omitempty"`
	P99      float64 `json:"p99_us,omitempty"`

	// HeapMB is the most that Go's heap held, by samples.
	HeapMB float64 `json:"heap_mb,omitempty"`
	// Times are seconds of what a child measured in turn, an entry a round.
	Times map[string][]float64 `json:"times,omitempty"`
	// Artifact is what a child made or took.
	Artifact *artifactPart `json:"artifact,omitempty"`
	// Repair is the repair alone, without what the fold received after it.
	Repair *repairPart `json:"repair,omitempty"`
}

// repairPart is what a repair took until it was decided and folded.
type repairPart struct {
	Seconds float64 `json:"seconds"`
	PeakMB  float64 `json:"peak_mb"` // of the process until then
	Deleted uint64  `json:"deleted"`
	Put     uint64  `json:"put"`
}

// artifactPart is what is asked of one artifact.
type artifactPart struct {
	Files    int    `json:"files"`
	Manifest int    `json:"manifest_bytes"`
	Bytes    int64  `json:"bytes"`
	Digest   string `json:"digest,omitempty"`
}

func (p *artifactPart) String() string {
	if p.Digest != "" {
		return fmt.Sprintf("digest %.16s", p.Digest)
	}
	return fmt.Sprintf("%d MiB in %d files, a manifest of %d bytes", p.Bytes>>20, p.Files, p.Manifest)
}

func (r result) rate() float64 { return float64(r.Messages) / r.Seconds }

func (r result) String() string {
	if len(r.Times) > 0 {
		return r.timesText()
	}
	if r.P50 > 0 {
		return fmt.Sprintf("p50 %7.0f µs, p99 %7.0f µs", r.P50, r.P99)
	}
	if r.HeapMB > 0 {
		text := fmt.Sprintf("%8d keys in %6.2f s, %7.0f keys/s, %5.2f µs CPU a key, peak %4.0f MB (Go heap %3.0f MB)",
			r.Messages, r.Seconds, r.rate(), r.CPU/float64(r.Messages)*1e6, r.PeakMB, r.HeapMB)
		if p := r.Repair; p != nil {
			text += fmt.Sprintf("; of it the repair %.2f s with %d deletes and %d puts, peak until then %.0f MB", p.Seconds, p.Deleted, p.Put, p.PeakMB)
		}
		if r.Artifact != nil {
			text += "; " + r.Artifact.String()
		}
		return text
	}
	return fmt.Sprintf("%8.0f/s, %5.2f µs CPU and %4.1f allocations a message, peak %4.0f MB",
		r.rate(), r.CPU/float64(r.Messages)*1e6, r.Allocs, r.PeakMB)
}

// timesText is the median of each.
func (r result) timesText() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(r.Times)) {
		all = append(all, fmt.Sprintf("%s %.0f ms", name, median(r.Times[name])*1e3))
	}
	return fmt.Sprintf("medians: %s; peak %.0f MB", strings.Join(all, ", "), r.PeakMB)
}

// meter measures from its making to done.
type meter struct {
	began  time.Time
	cpu    time.Duration
	allocs uint64
}

func startMeter() meter {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return meter{began: time.Now(), cpu: cpuTime(), allocs: m.Mallocs}
}

func (m meter) done(messages int) result {
	took := time.Since(m.began)
	cpu := cpuTime() - m.cpu
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return result{
		Messages: messages, Seconds: took.Seconds(), CPU: cpu.Seconds(),
		Allocs: float64(now.Mallocs-m.allocs) / float64(max(messages, 1)), PeakMB: peakMB(),
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peakMB is the largest resident memory so far, without what is mapped from files where the system tells.
func peakMB() float64 {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		var u syscall.Rusage
		if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
			return 0
		}
		return float64(u.Maxrss) / 1024
	}
	defer func() { _ = f.Close() }()
	for s := bufio.NewScanner(f); s.Scan(); {
		if text, ok := strings.CutPrefix(s.Text(), "VmHWM:"); ok {
			kb, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 64)
			return kb / 1024
		}
	}
	return 0
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

func medianOf(rs []result, f func(result) float64) float64 {
	values := make([]float64, len(rs))
	for i, r := range rs {
		values[i] = f(r)
	}
	return median(values)
}
