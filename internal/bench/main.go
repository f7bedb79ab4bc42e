// Command bench measures the fold beside bare consumers of the same bucket, each in a process of its own against a
// nats-server in its own process, in turn round by round, and ends with one line a figure: "ratio NAME VALUE".
//
// Times on a shared machine mean little by themselves: quote the ratios, which come from one run.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// options are the flags, which the parent hands to each child.
type options struct {
	keys    int
	behind  int
	rounds  int
	seconds int
	only    string
	dir     string
	asJSON  bool

	profile string

	role string
	url  string
	bulk int

	// sizes are the numbers of keys that repairs are measured at.
	sizes     []int
	memory    int
	bucket    string
	from      string
	artifacts string

	// payload is the size of the fold of the part artifacts, big of bigartifact; in MiB.
	payload int
	big     int
	place   string
}

func main() {
	o := options{sizes: []int{1_000_000, 5_000_000}, keys: 1_000_000}
	flag.Func("keys", "keys in the bucket; for repair a list of sizes, of which all but the first have one round (default 1000000, for repair 1000000,5000000)", o.setKeys)
	flag.IntVar(&o.behind, "behind", 10_000, "updates that a restart is behind")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds; each runs every measurement once")
	flag.IntVar(&o.seconds, "live", 5, "seconds of 1,000 updates each in the latency measurement")
	flag.StringVar(&o.only, "only", "", "run only: hydrate, indexes, restart, live, micro or artifacts; or repair or bigartifact, which are not run without being asked for")
	flag.StringVar(&o.dir, "dir", "", "where to keep files meanwhile (default: a temporary folder)")
	flag.BoolVar(&o.asJSON, "json", false, "print the results as JSON instead of ratio lines")
	flag.IntVar(&o.bulk, "bulk", 0, "updates in a batch while hydrating (0: the default)")
	flag.StringVar(&o.profile, "profile", "", "write a CPU profile of each child into this folder, and of a repair the heap at its largest")
	flag.IntVar(&o.memory, "memory", 256, "repair, bigartifact: the memory limit of Go (GOMEMLIMIT) in each process that is measured, in MiB")
	flag.IntVar(&o.payload, "payload", 256, "artifacts: the values of the fold, in MiB")
	flag.IntVar(&o.big, "big", 5120, "bigartifact: the values of the larger fold, in MiB; the smaller has a tenth")
	flag.StringVar(&o.role, "role", "", "internal: what this process measures")
	flag.StringVar(&o.url, "url", "", "internal: the server")
	flag.StringVar(&o.bucket, "bucket", "", "internal: the bucket")
	flag.StringVar(&o.from, "from", "", "internal: the store to copy")
	flag.StringVar(&o.artifacts, "artifacts", "", "internal: the folder of artifacts")
	flag.StringVar(&o.place, "place", "", "internal: the URL of an object store")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// setKeys takes a list of numbers; what measures one size takes the first.
func (o *options) setKeys(list string) error {
	o.sizes = nil
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		if n < 1 {
			return fmt.Errorf("%d keys", n)
		}
		o.sizes = append(o.sizes, n)
	}
	o.keys = o.sizes[0]
	return nil
}

func run(ctx context.Context, o options) error {
	if o.role != "" {
		return runRole(ctx, o)
	}
	if o.dir == "" {
		dir, err := os.MkdirTemp("", "fold-bench-")
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
	return b.report()
}

// bench is the parent: it starts one child after the other, and keeps what they say.
type bench struct {
	o       options
	url     string
	env     []string // of the children, beside the parent's
	results map[string][]result
	ratios  []ratio
}

// ratio is one figure.
type ratio struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	// Want is the floor, or with AtMost the ceiling, that is asked for.
	Want   float64 `json:"want"`
	AtMost bool    `json:"at_most,omitempty"`
}

// parts are the names that -only takes.
var parts = []string{"hydrate", "indexes", "restart", "live", "micro", "artifacts", "repair", "bigartifact"}

func (b *bench) wants(part string) bool { return b.o.only == "" || b.o.only == part }

func (b *bench) run(ctx context.Context) error {
	b.results = map[string][]result{}
	if b.o.only != "" && !slices.Contains(parts, b.o.only) {
		return fmt.Errorf("there is no part %q; there are %v", b.o.only, parts)
	}
	switch b.o.only {
	case "repair":
		return b.repair(ctx)
	case "bigartifact":
		return b.bigArtifact(ctx)
	}
	if b.wants("hydrate") || b.wants("indexes") || b.wants("restart") || b.wants("live") {
		stop, err := b.startServer(ctx, filepath.Join(b.o.dir, "server"))
		if err != nil {
			return err
		}
		defer stop()
		fmt.Fprintf(os.Stderr, "filling a bucket with %d keys\n", b.o.keys)
		if _, err := b.child(ctx, "fill", b.o.dir); err != nil {
			return err
		}
	}
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{{"hydrate", b.hydrate}, {"indexes", b.indexes}, {"restart", b.restart}, {"live", b.live}, {"micro", b.micro}, {"artifacts", b.artifacts}} {
		if b.wants(part.name) {
			if err := part.run(ctx); err != nil {
				return fmt.Errorf("%s: %w", part.name, err)
			}
		}
	}
	return nil
}

// child runs one role to its end, with more flags than all have, and keeps its result.
func (b *bench) child(ctx context.Context, role, dir string, more ...string) (result, error) {
	args := []string{
		"-role", role, "-url", b.url, "-dir", dir, "-keys", fmt.Sprint(b.o.keys), "-behind", fmt.Sprint(b.o.behind),
		"-live", fmt.Sprint(b.o.seconds), "-bulk", fmt.Sprint(b.o.bulk), "-profile", b.o.profile,
	}
	cmd := exec.CommandContext(ctx, os.Args[0], slices.Concat(args, more)...)
	cmd.Env = append(os.Environ(), b.env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return result{}, fmt.Errorf("%s: %w", role, err)
	}
	var r result
	if err := json.Unmarshal(out, &r); err != nil {
		return result{}, fmt.Errorf("%s said %q: %w", role, out, err)
	}
	b.results[role] = append(b.results[role], r)
	fmt.Fprintf(os.Stderr, "  %-14s %s\n", role, r)
	return r, nil
}

func (b *bench) startServer(ctx context.Context, dir string) (stop func(), err error) {
	cmd := exec.CommandContext(ctx, os.Args[0], "-role", "server", "-dir", dir)
	cmd.Stderr = os.Stderr
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
	stop = func() {
		_ = stdin.Close() // the server ends with its standard input
		_ = cmd.Wait()
	}
	if err := json.NewDecoder(stdout).Decode(&b.url); err != nil {
		stop()
		return nil, fmt.Errorf("start server: %w", err)
	}
	return stop, nil
}
