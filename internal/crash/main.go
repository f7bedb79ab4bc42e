// Crash cuts the power, kills processes and damages files under the stores and artifacts, and checks what is left: it is
// the fold at its own cursor, or it is refused. It ends with the counts.
//
//	go run ./internal/crash
//	go run ./internal/crash -only power/pebble/sync -seed 3
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/typedfold/fold/runtime/store/storetest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(exitCode(ctx))
}

// exitCode does what this process is for.
func exitCode(ctx context.Context) int {
	if child, err := runChild(ctx, os.Stdout); child {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return exitWrong
		}
		return 0
	}
	wrong, err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "crash:", err)
	}
	if err != nil || wrong {
		return 1
	}
	return 0
}

// choice is what to do of all there is.
type choice struct {
	only    string
	seed    uint64
	cut     uint64
	op      int
	percent int
	sticky  *bool
	place   string
	kills   int
	quick   bool
}

// line is the command that does a part again, to be pasted into a shell; what follows it says which of its cases.
func (c *choice) line(name string) string {
	line := fmt.Sprintf("go run ./internal/crash -only %s -seed %d", name, c.seed)
	if c.quick {
		line += " -quick"
	}
	return line
}

func run(ctx context.Context, args []string, out io.Writer) (wrong bool, err error) {
	c, err := parse(args)
	if err != nil {
		return false, err
	}
	t := newTally(out)
	cache := pebble.NewCache(cacheBytes)
	defer cache.Unref()
	done := 0
	for _, p := range c.parts(t, cache) {
		if !strings.HasPrefix(p.name, c.only) || ctx.Err() != nil {
			continue
		}
		began := time.Now()
		p.run(ctx)
		fmt.Fprintf(out, "%-44s %8.1f s\n", p.name, time.Since(began).Seconds())
		done++
	}
	if err := ctx.Err(); err != nil {
		t.report() // of what there was time for
		return t.wrong > 0, err
	}
	if done == 0 {
		return false, fmt.Errorf("there is no part %q", c.only)
	}
	t.report()
	if t.clones == 0 && t.wrong == 0 {
		return false, errors.New("nothing was looked at: there is no such operation or place")
	}
	return t.wrong > 0, nil
}

// cacheBytes is the block cache that all stores share.
const cacheBytes = 16 << 20

func parse(args []string) (c choice, err error) {
	fs := flag.NewFlagSet("crash", flag.ContinueOnError)
	fs.StringVar(&c.only, "only", "", "the part to do, by the beginning of its name")
	fs.Uint64Var(&c.seed, "seed", 1, "the seed of the batches")
	fs.IntVar(&c.op, "op", 0, "the one operation to cut the power before, or to fail")
	fs.IntVar(&c.percent, "percent", -1, "how much to keep of what was not synced then")
	fs.Uint64Var(&c.cut, "cut", 1, "the seed of what to keep")
	fs.BoolFunc("sticky", "whether all operations after that one fail too; without it, both", func(s string) error {
		sticky, err := strconv.ParseBool(s)
		c.sticky = &sticky
		return err
	})
	fs.StringVar(&c.place, "place", "", "the one place to damage")
	fs.IntVar(&c.kills, "kills", 0, "how many times to kill; 0 is as often as the size says")
	fs.BoolVar(&c.quick, "quick", false, "do a little of everything, as the tests do")
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	if fs.NArg() > 0 {
		return c, fmt.Errorf("%q is no flag", fs.Args())
	}
	return c, nil
}

type part struct {
	name string
	run  func(context.Context)
}

var modes = []storetest.Mode{storetest.ModeSync, storetest.ModeInterval, storetest.ModeNone}

// parts are all parts, each of which a run can be limited to.
func (c *choice) parts(t *tally, cache *pebble.Cache) (all []part) {
	p, again := c.plans()
	logs := p
	if c.quick && c.op == 0 {
		logs.every, logs.seeds = 5, []uint64{1, 2} // they cost little
	}
	for _, mode := range modes {
		name := func(what, store string) string { return what + "/" + store + "/" + string(mode) }
		lives := map[string]func() disk{
			"pebble": func() disk { return newPebbleDisk(cache) },
			"log":    func() disk { return newLogDisk() },
		}
		plans := map[string]plan{"pebble": p, "log": logs}
		for _, store := range []string{"log", "pebble"} {
			l := &life{name: name("power", store), line: c.line(name("power", store)), seed: c.seed, mode: mode, truth: newTruth(c.seed, true), disk: lives[store], plan: plans[store], again: again, tally: t}
			k := &kills{name: name("kill", store), line: c.line(name("kill", store)), store: store, seed: c.seed, mode: mode, cycles: c.size(10, 300), tally: t}
			if c.kills > 0 {
				k.cycles = c.kills
			}
			f := &faults{
				name: name("fault", store), line: c.line(name("fault", store)), seed: c.seed, mode: mode, tally: t,
				only: c.op, sticky: c.sticky, percents: p.percents,
			}
			sweep := f.logs
			if f.step = 1; store == "pebble" {
				sweep, f.step = f.pebble, c.size(120, 3)
			}
			all = append(all, part{l.name, l.run}, part{k.name, k.run}, part{f.name, sweep})
		}
	}
	damageTo := func(what string) damage {
		name := "damage/" + what
		return damage{name: name, line: c.line(name), seed: c.seed, tally: t, deep: !c.quick, only: c.place}
	}
	d, files := damageTo("log"), &pebbleFiles{damage: damageTo("pebble"), cache: cache}
	all = append(all, part{d.name, d.logs}, part{files.name, files.run})
	for _, store := range []string{"log", "pebble"} {
		a := &artifacts{damage: damageTo("artifact/" + store), store: store}
		all = append(all, part{a.name, a.run})
	}
	slices.SortStableFunc(all, func(a, b part) int { return strings.Compare(a.name, b.name) })
	return all
}

func (c *choice) size(few, many int) int {
	if c.quick {
		return few
	}
	return many
}

// plans are those of a life, and of the disks of it that are opened again.
func (c *choice) plans() (p, again plan) {
	p = plan{every: 1, syncs: 1, percents: []int{0, 20, 50, 80, 100}, seeds: []uint64{1, 2}, nested: 200}
	again = plan{every: 1, syncs: 1, percents: []int{0, 50, 100}, seeds: p.seeds}
	if c.quick {
		p = plan{every: 43, syncs: 13, percents: []int{0, 50, 100}, seeds: []uint64{1}, nested: 50}
		again = plan{every: 9, syncs: 4, percents: p.percents, seeds: p.seeds}
	}
	if c.op != 0 {
		p = plan{op: c.op, percents: again.percents, seeds: []uint64{c.cut}, nested: 1}
		if c.percent >= 0 {
			p.percents = []int{c.percent}
		}
	}
	return p, again
}
