// Command models searches the models, one line each, and ends "models N states N wrong N". With -mutants it searches
// those that are wrong on purpose, says what caught each, and ends "mutations N caught N". It exits 1 if a model is wrong
// or a mutation survives.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"time"

	"github.com/typedfold/fold/internal/modelcheck"
	"github.com/typedfold/fold/internal/modelcheck/models"
)

type options struct {
	only      string
	workers   int
	mutants   bool
	deep      bool
	witnesses bool
}

func main() {
	var o options
	flag.StringVar(&o.only, "run", "", "only those whose name matches this regular expression")
	flag.IntVar(&o.workers, "workers", 0, "goroutines that search (default: as many as processors)")
	flag.BoolVar(&o.mutants, "mutants", false, "search the mutations")
	flag.BoolVar(&o.deep, "deep", false, "search the models that take long too")
	flag.BoolVar(&o.witnesses, "witnesses", false, "print how soon each thing happens that has to happen")
	flag.Parse()
	var err error
	if o.mutants {
		err = runMutations(os.Stdout, o, models.Mutations())
	} else {
		err = runCases(os.Stdout, o, models.All())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "models:", err)
		os.Exit(1)
	}
}

func runCases(w io.Writer, o options, all []modelcheck.Case) error {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return fmt.Errorf("flag run: %w", err)
	}
	var run, states, wrong int
	for _, c := range all {
		if c.Deep && !o.deep || !only.MatchString(c.Name) {
			continue
		}
		r := c.Run(o.workers)
		run, states = run+1, states+r.States
		fmt.Fprintf(w, "%s elapsed %v\n", r, r.Elapsed.Round(time.Millisecond))
		for _, met := range r.Witnesses {
			if o.witnesses {
				fmt.Fprintf(w, "  %s: in %d steps\n", met.Property, met.Steps)
			}
		}
		if err := r.Err(); err != nil {
			wrong++
			fmt.Fprintln(w, err)
		}
	}
	fmt.Fprintf(w, "models %d states %d wrong %d\n", run, states, wrong)
	if wrong > 0 {
		return fmt.Errorf("%d of %d models are wrong", wrong, run)
	}
	return nothing(run)
}

func runMutations(w io.Writer, o options, all []modelcheck.Mutation) error {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return fmt.Errorf("flag run: %w", err)
	}
	var run, caught int
	for _, m := range all {
		if !only.MatchString(m.Name) {
			continue
		}
		run++
		line, err := m.Judge(m.Run(o.workers))
		if err != nil {
			fmt.Fprintf(w, "not caught: %v\n", err)
			continue
		}
		caught++
		fmt.Fprintln(w, line)
	}
	fmt.Fprintf(w, "mutations %d caught %d\n", run, caught)
	if caught < run {
		return fmt.Errorf("%d of %d mutations are not caught", run-caught, run)
	}
	return nothing(run)
}

func nothing(run int) error {
	if run == 0 {
		return errors.New("nothing was run; no name matches")
	}
	return nil
}
