// Streamchaos breaks three nats-servers and three nova nodes under load, and judges what is left by the log itself. It ends
// with the counts.
//
//	go run ./internal/streamchaos/cmd/streamchaos
//	go run ./internal/streamchaos/cmd/streamchaos -seed 3 -time 30s -faults kill-nats,stall
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/typedfold/fold/internal/streamchaos"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(exitCode(ctx))
}

// exitCode does what this process is for: 0 is well, 1 is something inconsistent, 2 that nothing could be judged.
func exitCode(ctx context.Context) int {
	if child, err := streamchaos.Child(ctx); child {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		return 0
	}
	wrong, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err != nil && !errors.Is(err, flag.ErrHelp):
		fmt.Fprintln(os.Stderr, err)
		return 2
	case wrong:
		return 1
	}
	return 0
}

func run(ctx context.Context, args []string, out, progress io.Writer) (wrong bool, err error) {
	fs := flag.NewFlagSet("streamchaos", flag.ContinueOnError)
	fs.SetOutput(progress)
	var o streamchaos.Options
	fs.Uint64Var(&o.Seed, "seed", 1, "the seed of the faults and of what the clients choose")
	fs.DurationVar(&o.Duration, "time", 0, "how long there are faults (default 2m)")
	fs.DurationVar(&o.Gap, "gap", 0, "the mean time from one fault to the next (default 1.2s)")
	fs.DurationVar(&o.Settle, "settle", 0, "how long the streams may take to live again (default 1m)")
	fs.StringVar(&o.Dir, "dir", "", "the folder of the processes' data and logs, which is kept (default a temporary one, kept if something is wrong)")
	fs.Func("faults", "kinds of faults, with commas between them (default all)", func(s string) error {
		for k := range strings.SplitSeq(s, ",") {
			o.Kinds = append(o.Kinds, streamchaos.Kind(k))
		}
		return o.Validate()
	})
	asJSON := fs.Bool("json", false, "print the report as JSON")
	if err := fs.Parse(args); err != nil {
		return false, err
	}
	if fs.NArg() > 0 {
		return false, fmt.Errorf("%q is no flag", fs.Args())
	}
	o.Progress = func(p streamchaos.Progress) {
		fmt.Fprintf(progress, "%4.0f s: ok %d, missed %d, fenced %d, refused %d, unknown %d; %d faults, last %s\n", p.Since.Seconds(),
			p.Calls["ok"], p.Calls["missed"], p.Calls["fenced"], p.Calls["refused"], p.Calls["unknown"], p.Faults, p.Last)
	}
	report, err := streamchaos.Run(ctx, o)
	if report == nil {
		return false, err
	}
	if *asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		err = errors.Join(err, e.Encode(report))
	} else {
		report.Write(out)
	}
	return len(report.Findings) > 0, err
}
