// Command streams measures the stream plane beside bare JetStream, on one nats-server: each side in a process of its own, in
// turn round by round. It ends with one line a figure: "ratio NAME VALUE".
//
// Times on a shared machine mean little by themselves: quote the ratios, which come from one run.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
)

// options are the flags, which the parent hands to each child.
type options struct {
	records int
	appends int
	fences  int
	window  int
	flight  int
	rounds  int
	memory  bool
	only    string
	dir     string
	profile string

	role string
	at   place
}

// place is where the server process listens.
type place struct {
	NATS   string `json:"nats"`
	Stream string `json:"stream"` // of the stream plane
}

const (
	perBatch  = 100
	bodyBytes = 128
)

func main() {
	var o options
	o.flags(flag.CommandLine)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (o *options) flags(f *flag.FlagSet) {
	f.IntVar(&o.records, "records", 500_000, "records of each measurement of a rate")
	f.IntVar(&o.appends, "appends", 2_000, "appends of each measurement of a time")
	f.IntVar(&o.fences, "fences", 100, "fences under load")
	f.IntVar(&o.window, "window", 4000, "records in flight, on both sides, where batches are measured; at least 100")
	f.IntVar(&o.flight, "flight", 1024, "conditional appends in flight, on both sides")
	f.IntVar(&o.rounds, "rounds", 5, "rounds; each runs every measurement once")
	f.BoolVar(&o.memory, "memory", false, "keep streams in memory; else in files")
	f.StringVar(&o.only, "only", "", "run only: batch, match, p50, read, read-100, read-10, read-1, crowd or fence")
	f.StringVar(&o.dir, "dir", "", "where to keep files meanwhile (default: a temporary folder)")
	f.StringVar(&o.profile, "profile", "", "write a CPU profile of each process into this folder")
	f.StringVar(&o.role, "role", "", "internal: what this process measures")
	f.StringVar(&o.at.NATS, "nats", "", "internal: the nats-server")
	f.StringVar(&o.at.Stream, "stream", "", "internal: the server of streams")
}

// validate reports the first option that makes no sense.
func (o *options) validate() error {
	switch {
	case o.records < perBatch || o.appends < 1 || o.fences < 1 || o.rounds < 1 || o.flight < 1 || o.window < perBatch:
		return fmt.Errorf("-records and -window are at least %d, the other numbers at least 1", perBatch)
	case o.only != "" && !slices.ContainsFunc(parts, func(p part) bool { return p.name == o.only }):
		return fmt.Errorf("-only %s is no part", o.only)
	}
	return nil
}

func run(ctx context.Context, o options) error {
	if o.role != "" {
		return runRole(ctx, o)
	}
	if err := o.validate(); err != nil {
		return err
	}
	if o.dir == "" {
		dir, err := os.MkdirTemp("", "streams-bench-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		o.dir = dir
	}
	b := &bench{o: o}
	if err := b.run(ctx); err != nil {
		return err
	}
	b.report()
	return nil
}

// bench is the parent: it starts one child after the other, and keeps what they say.
type bench struct {
	o       options
	results map[string][]result
	ratios  []ratio
}

// ratio is one figure.
type ratio struct {
	name   string
	value  float64
	want   float64 // the floor, or with atMost the ceiling, that is asked for; 0 is none
	atMost bool
}

func (b *bench) ratio(name string, value, want float64, atMost bool) {
	b.ratios = append(b.ratios, ratio{name, value, want, atMost})
}

func (b *bench) run(ctx context.Context) (err error) {
	b.results = map[string][]result{}
	stop, err := b.startServer(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for _, p := range b.chosen() {
		for _, role := range p.once {
			if err := b.child(ctx, role); err != nil {
				return err
			}
		}
	}
	for round := range b.o.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, b.o.rounds)
		for _, p := range b.chosen() {
			roles := slices.Clone(p.roles)
			if round%2 == 1 {
				slices.Reverse(roles) // neither side always has the warmer machine
			}
			for _, role := range roles {
				if err := b.child(ctx, role); err != nil {
					return err
				}
			}
		}
	}
	for _, p := range b.chosen() {
		p.figures(b)
	}
	return nil
}

// chosen are the parts that run.
func (b *bench) chosen() []part {
	if b.o.only == "" {
		return parts
	}
	return slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return p.name != b.o.only })
}

func (b *bench) command(ctx context.Context, role string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0],
		"-role", role, "-nats", b.o.at.NATS, "-stream", b.o.at.Stream, "-dir", b.o.dir, "-profile", b.o.profile,
		"-records", fmt.Sprint(b.o.records), "-appends", fmt.Sprint(b.o.appends), "-fences", fmt.Sprint(b.o.fences),
		"-window", fmt.Sprint(b.o.window), "-flight", fmt.Sprint(b.o.flight), fmt.Sprintf("-memory=%v", b.o.memory))
	cmd.Stderr = os.Stderr
	return cmd
}

// child runs one role to its end, and keeps its result.
func (b *bench) child(ctx context.Context, role string) error {
	out, err := b.command(ctx, role).Output()
	if err != nil {
		return fmt.Errorf("%s: %w", role, err)
	}
	var r result
	if err := json.Unmarshal(out, &r); err != nil {
		return fmt.Errorf("%s said %q: %w", role, out, err)
	}
	b.results[role] = append(b.results[role], r)
	fmt.Fprintf(os.Stderr, "  %-12s %s\n", role, r)
	return nil
}

// startServer starts the process that has the nats-server and the server of streams.
func (b *bench) startServer(ctx context.Context) (stop func() error, err error) {
	cmd := b.command(ctx, roleServer)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() error {
		_ = stdin.Close() // the server ends with its standard input
		return cmd.Wait()
	}
	if err := json.NewDecoder(stdout).Decode(&b.o.at); err != nil {
		return nil, errors.Join(fmt.Errorf("start the server: %w", err), stop())
	}
	return stop, nil
}

// report prints a line a figure.
func (b *bench) report() {
	var text strings.Builder
	for _, r := range b.ratios {
		fmt.Fprintf(&text, "ratio %s %.3g", r.name, r.value)
		switch {
		case r.want > 0 && r.atMost:
			fmt.Fprintf(&text, "   # asked for: at most %g", r.want)
		case r.want > 0:
			fmt.Fprintf(&text, "   # asked for: at least %g", r.want)
		}
		text.WriteByte('\n')
	}
	fmt.Print(text.String())
}
