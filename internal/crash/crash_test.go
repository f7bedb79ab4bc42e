package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/storetest"
)

// TestMain makes the test binary a child where a part needs one.
func TestMain(m *testing.M) {
	if strings.Contains(os.Getenv(childEnv), `"Op":"`+taskPanic+`"`) {
		panic("planted")
	}
	if child, err := runChild(context.Background(), os.Stdout); child {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(exitWrong)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestEveryPart does a little of each part.
func TestEveryPart(t *testing.T) {
	c, err := parse([]string{"-quick"})
	if err != nil {
		t.Fatal(err)
	}
	cache := pebble.NewCache(cacheBytes)
	defer cache.Unref()
	var out strings.Builder
	all, lines := newTally(&out), map[string]string{}
	all.told = func(name, replay string) {
		if lines[name] == "" {
			lines[name] = replay
		}
		if !pasted.MatchString(replay) {
			t.Errorf("%s: a shell does not take %s", name, replay)
		}
	}
	for _, p := range c.parts(all, cache) {
		t.Run(p.name, func(t *testing.T) {
			clones := all.clones
			p.run(t.Context())
			if all.wrong != 0 {
				t.Fatal(out.String())
			}
			if all.clones-clones < 8 {
				t.Errorf("only %d clones", all.clones-clones)
			}
		})
	}
	// Where nothing is ever lost or refused, nothing is proved.
	for _, name := range []string{
		"power/pebble/none, lost a tail", "power/log/none, lost a tail", "power/pebble/sync opened again", "fault/pebble/sync",
		"kill/pebble/sync, artifacts and imports", "kill/log/none, artifacts and imports", "damage/log, flip, refused",
		"damage/pebble, log, cut, refused", "damage/pebble, log, cut, an older fold", "damage/pebble, MANIFEST, flip, refused",
		"damage/pebble, log, cut, whole", "damage/pebble, log, flip, an older fold", "damage/pebble, sst, cut, refused",
	} {
		if all.count(name) == 0 {
			t.Errorf("there was no %q", name)
		}
	}
	t.Run("replay", func(t *testing.T) { playAgain(t, lines) })
	t.Logf("\n%s", reportOf(all, &out))
}

func reportOf(all *tally, out *strings.Builder) string {
	out.Reset()
	all.report()
	return out.String()
}

func TestTheLastLineHasTheCounts(t *testing.T) {
	var out strings.Builder
	wrong, err := run(t.Context(), []string{"-quick", "-only", "damage/artifact/log"}, &out)
	if err != nil || wrong || !regexp.MustCompile(`\nclones [1-9]\d* inconsistent 0\n$`).MatchString(out.String()) {
		t.Errorf("%v, %v, %s", wrong, err, out.String())
	}
	if _, err := run(t.Context(), []string{"-only", "nothing"}, &out); err == nil {
		t.Error("no error for a part that is not there")
	}
}

// TestWhatIsWrongIsAtTheEnd: every line is there once more after the counts, also those that were too many to print as
// they came.
func TestWhatIsWrongIsAtTheEnd(t *testing.T) {
	var out strings.Builder
	all := newTally(&out)
	const wrong = maxShown + 7
	for n := range wrong {
		all.clone("x", fmt.Errorf("number %d", n), fmt.Sprintf("seed %d", n))
	}
	all.clone("x", nil, "")
	if got := strings.Count(out.String(), "inconsistent: x: number"); got != maxShown {
		t.Errorf("%d lines came at once, want %d", got, maxShown)
	}
	text := reportOf(all, &out)
	for n := range wrong {
		if !strings.Contains(text, fmt.Sprintf("inconsistent: x: number %d\n  replay: seed %d\n", n, n)) {
			t.Errorf("number %d is missing: %s", n, text)
		}
	}
	if !strings.HasSuffix(text, fmt.Sprintf("\nclones %d inconsistent %d\n", wrong+1, wrong)) {
		t.Errorf("the end is %s", text)
	}
}

// TestWithin: what is stuck is given up, and the error says where it is.
func TestWithin(t *testing.T) {
	stuck := make(chan struct{})
	defer close(stuck)
	if err := within(time.Millisecond, func() error { <-stuck; return nil }); err == nil || !strings.Contains(err.Error(), "TestWithin") {
		t.Errorf("it does not say where it is stuck: %v", err)
	}
	want := errors.New("want")
	if err := within(time.Minute, func() error { return want }); err != want {
		t.Errorf("%v", err)
	}
}

// TestChildEndsByItself: a child that is stuck says where it is and ends, whatever became of the process that began it.
func TestChildEndsByItself(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd, err := (&task{Op: taskHang, Limit: time.Millisecond}).command(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != exitStuck || !strings.Contains(stderr.String(), "runChild") {
		t.Errorf("%v: %s", err, stderr.String())
	}
}

// lazyDisk opens stores that don't sync what they should.
type lazyDisk struct{ disk }

func (d lazyDisk) open(dir string, _ storetest.Mode, tell teller) (store.Store, error) {
	return d.disk.open(dir, storetest.ModeNone, tell)
}

func (d lazyDisk) cut(percent int, rng *rand.Rand) disk { return lazyDisk{d.disk.cut(percent, rng)} }

// TestLazyStoresAreCaught: a store that does not make durable what it says is found out, with a line to see it again.
func TestLazyStoresAreCaught(t *testing.T) {
	cache := pebble.NewCache(cacheBytes)
	defer cache.Unref()
	for name, d := range map[string]disk{"pebble": newPebbleDisk(cache), "log": newLogDisk()} {
		var out strings.Builder
		all := newTally(&out)
		l := &life{
			name: "lazy/" + name, line: "again", seed: 1, mode: storetest.ModeSync, truth: newTruth(1, true), tally: all,
			disk: func() disk { return lazyDisk{d} }, plan: plan{every: 41, percents: []int{0}, seeds: []uint64{1}},
		}
		l.run(t.Context())
		if all.wrong == 0 || !strings.Contains(out.String(), "replay: again -op ") {
			t.Errorf("%s: %d of %d are wrong: %s", name, all.wrong, all.clones, out.String())
		}
	}
}

// TestWrongRowsAreCaught: a row too many, one too few and another value are all found, by a rowError.
func TestWrongRowsAreCaught(t *testing.T) {
	truth := newTruth(1, false)
	key := store.AppendKey(nil, store.SpaceData, "t0.k99")
	for what, change := range map[string]func(*store.Batch){
		"too many": func(b *store.Batch) { b.Ops = append(b.Ops, store.Op{Key: key, Value: []byte("x")}) },
		"too few": func(b *store.Batch) {
			b.Ops = append(b.Ops, store.Op{Key: store.MetaKey("script"), Delete: true})
		},
		"another": func(b *store.Batch) {
			b.Ops = append(b.Ops, store.Op{Key: store.MetaKey("script"), Value: []byte("2")})
		},
		"nothing": func(*store.Batch) {},
	} {
		s, err := newLogDisk().open(storeDir, storetest.ModeNone, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, c := truth.batch(1)
		change(b)
		if err := s.Apply(t.Context(), b, c); err != nil {
			t.Fatal(err)
		}
		var wrong *rowError
		if err := truth.scan(s); errors.As(err, &wrong) != (what != "nothing") {
			t.Errorf("%s: %v", what, err)
		}
		if err := truth.check(s); (err != nil) != (what != "nothing") {
			t.Errorf("%s: %v", what, err)
		}
		if err := truth.checkAt(s, 1, 1); err == nil {
			t.Errorf("%s: it is not durable, and that was not seen", what)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := truth.at(kv.CursorAt(1 << 40)); err == nil {
		t.Error("a cursor of no batch was taken")
	}
}
