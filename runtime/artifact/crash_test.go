package artifact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store/logstore"
	"github.com/typedfold/fold/runtime/store/pebblestore"
)

// acts are what may be broken off, each from the ground's folder to its "dest".
var acts = map[string]func(ctx context.Context, g *ground, step steps) error{
	"export": func(ctx context.Context, g *ground, step steps) error {
		_, err := Export(ctx, g.store, g.path("dest"), ExportOptions{steps: step})
		return err
	},
	"import": func(ctx context.Context, g *ground, step steps) error {
		_, err := Import(ctx, g.path("artifact"), g.path("dest"), Options{Kinds: kinds(), steps: step})
		return err
	},
	"import packed": func(ctx context.Context, g *ground, step steps) error {
		m, b, err := packed(ctx, g.path("artifact"))
		if err != nil {
			return err
		}
		return ImportPacked(ctx, bytes.NewReader(b), m, g.path("dest"), Options{Kinds: kinds(), steps: step})
	},
	"unpack": func(ctx context.Context, g *ground, step steps) error {
		m, b, err := packed(ctx, g.path("artifact"))
		if err != nil {
			return err
		}
		return Unpack(ctx, bytes.NewReader(b), m, g.path("dest"), Options{Kinds: kinds(), steps: step})
	},
}

// stepsOf are the steps of an act that goes well; its destination is removed again.
func stepsOf(t *testing.T, g *ground, act string) []string {
	t.Helper()
	var all []string
	must(t, acts[act](bounded(t), g, func(s string) error { all = append(all, s); return nil }))
	must(t, os.RemoveAll(g.path("dest")))
	return all
}

// whole tells that the destination is what the act makes.
func whole(t *testing.T, g *ground, backend, act string) {
	t.Helper()
	if act == "export" || act == "unpack" {
		if _, err := Verify(bounded(t), g.path("dest"), Options{Kinds: kinds()}); err != nil {
			t.Errorf("%s: %v", act, err)
		}
		return
	}
	if got := rowsAt(t, backend, g.path("dest")); !strings.HasPrefix(got, "40\n") {
		t.Errorf("%s: the copy is at %.10s", act, got)
	}
}

func TestEveryStepFails(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend string) {
		g := newGround(t, backend)
		g.export(t, "artifact")
		for act, run := range acts {
			for _, empty := range []bool{false, true} {
				for i, step := range stepsOf(t, g, act) {
					if empty {
						must(t, os.Mkdir(g.path("dest"), 0o700))
					}
					n := 0
					err := run(bounded(t), g, func(string) error {
						if n++; n-1 == i {
							return errBroken
						}
						return nil
					})
					switch {
					case step == "remove": // after the rename it can't undo what is done
						must(t, err)
						whole(t, g, backend, act)
						must(t, os.RemoveAll(g.path("dest")))
						wantNames(t, g.dir, "artifact", "live")
						continue
					case !errors.Is(err, errBroken):
						t.Errorf("%s, step %d, %s: %v", act, i, step, err)
					}
					want := []string{"artifact", "live"}
					if empty {
						want = append(want, "dest")
						wantNames(t, g.path("dest"))
					}
					wantNames(t, g.dir, want...)
					must(t, os.RemoveAll(g.path("dest")))
				}
			}
		}
	})
}

// TestAllIsSyncedBeforeTheRename: each file, each folder, and the folder that has the name, in that order.
func TestAllIsSyncedBeforeTheRename(t *testing.T) {
	g := newGround(t, pebblestore.Backend)
	_, m := g.export(t, "artifact")
	for act := range acts {
		files, folders, renamed := 0, 0, false
		for _, s := range stepsOf(t, g, act) {
			switch {
			case s == "rename":
				renamed = true
				want := len(m.Files)
				if act == "export" || act == "unpack" {
					want++ // the manifest
				}
				if files != want || folders != 2 {
					t.Errorf("%s: %d files and %d folders are synced before the rename, want %d and 2", act, files, folders, want)
				}
			case s == "sync file":
				files++
			case s == "sync folder":
				folders++
			}
		}
		if !renamed || folders != 3 {
			t.Errorf("%s: renamed %t, %d folders are synced", act, renamed, folders)
		}
	}
}

const childTask = "ARTIFACT_TEST_CHILD" // "backend act step occurrence dir"

// TestChild is what a second process does; alone it does nothing.
func TestChild(t *testing.T) {
	task := strings.SplitN(os.Getenv(childTask), " ", 5)
	if len(task) != 5 {
		return
	}
	act, step, dir := strings.ReplaceAll(task[1], "_", " "), strings.ReplaceAll(task[2], "_", " "), task[4]
	at, err := strconv.Atoi(task[3])
	must(t, err)
	g := &ground{dir: dir}
	g.store, err = openStore(task[0], g.path("live"))
	must(t, err)
	n := 0
	must(t, acts[act](bounded(t), g, func(s string) error {
		if s != step {
			return nil
		}
		if n++; n == at {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return nil
	}))
	t.Fatal("it was not killed")
}

func child(t *testing.T, backend, act, step string, n int, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(bounded(t), os.Args[0], "-test.run=^TestChild$", "-test.count=1")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s %d %s", childTask, backend, strings.ReplaceAll(act, " ", "_"), strings.ReplaceAll(step, " ", "_"), n, dir))
	return cmd
}

// TestKilledAtEveryStep: afterwards the destination is absent or whole, the store goes on, and the next export or import
// removes what was left.
func TestKilledAtEveryStep(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend string) {
		g := newGround(t, backend)
		g.export(t, "artifact")
		all := map[string][]string{}
		for act := range acts {
			all[act] = stepsOf(t, g, act)
		}
		must(t, g.store.Close())
		for act := range acts {
			seen := map[string]int{}
			for i, step := range all[act] {
				if seen[step]++; seen[step] > 3 {
					continue // one file is as the other
				}
				out, err := child(t, backend, act, step, seen[step], g.dir).CombinedOutput()
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
					t.Fatalf("%s, step %d, %s: %v\n%s", act, i, step, err, out)
				}
				left := names(t, g.dir)
				isWhole := slices.Contains(left, "dest")
				if renamed := i > slices.Index(all[act], "rename"); isWhole != renamed {
					t.Errorf("%s, killed at step %d, %s: the destination is there: %t", act, i, step, isWhole)
				}
				if isWhole {
					whole(t, g, backend, act)
				}
				must(t, os.RemoveAll(g.path("dest")))
				if _, err := Import(bounded(t), g.path("artifact"), g.path("next"), Options{Kinds: kinds()}); err != nil {
					t.Errorf("the next import: %v", err)
				}
				must(t, os.RemoveAll(g.path("next")))
				wantNames(t, g.dir, "artifact", "live")
			}
		}
		s, err := openStore(backend, g.path("live"))
		must(t, err)
		if s.Cursor().Revision() != 40 {
			t.Errorf("the store is at %v", s.Cursor())
		}
		g.store = s
	})
}

// TestStagesOfTheLivingStay: in this process and in another one.
func TestStagesOfTheLivingStay(t *testing.T) {
	g := newGround(t, logstore.Backend)
	p, err := Begin(g.path("dest"), ExportOptions{})
	must(t, err)
	must(t, p.Checkpoint(bounded(t), g.store))
	must(t, CleanStages(g.dir))
	cmd := exec.CommandContext(bounded(t), os.Args[0], "-test.run=^TestCleaningChild$", "-test.count=1")
	cmd.Env = append(os.Environ(), cleaningChild+"="+g.dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := names(t, g.dir); len(got) != 2 {
		t.Errorf("%q", got)
	}
	_, err = p.Finish(bounded(t))
	must(t, errors.Join(err, p.Abort(), p.Abort()))
	wantNames(t, g.dir, "dest", "live")

	must(t, os.MkdirAll(g.path(stagePrefix+"1/new/data"), 0o700)) // no lock yet, or not any more
	must(t, os.MkdirAll(g.path(stagePrefix+"2"+stageDead+"/new"), 0o700))
	must(t, os.MkdirAll(g.path(".other"), 0o700))
	must(t, os.WriteFile(g.path(stagePrefix+"file"), nil, 0o600))
	must(t, CleanStages(g.dir))
	wantNames(t, g.dir, ".other", stagePrefix+"file", "dest", "live")
	if err := CleanStages(g.path("missing")); err == nil {
		t.Error("no error for a folder that is not there")
	}
}

const cleaningChild = "ARTIFACT_TEST_CLEANING"

// TestCleaningChild is what a second process does; alone it does nothing.
func TestCleaningChild(t *testing.T) {
	if dir := os.Getenv(cleaningChild); dir != "" {
		must(t, CleanStages(dir))
	}
}

// TestStagesAndCleanersRace: whoever makes a stage gets one, whatever is cleaned up meanwhile.
func TestStagesAndCleanersRace(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(bounded(t), 300*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := CleanStages(dir); err != nil {
					t.Error(err)
					return
				}
			}
		})
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				s, err := newStage(filepath.Join(dir, fmt.Sprintf("%d-%d", i, n)), nil)
				if err != nil {
					t.Error(err)
					return
				}
				err = errors.Join(os.Mkdir(s.new(), 0o700), s.publish(s.new()), s.remove(), os.Remove(s.dest))
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	wantNames(t, dir)
}

// TestOneOfManyGetsTheName: of exports to one folder at once, one has it, and the others leave nothing.
func TestOneOfManyGetsTheName(t *testing.T) {
	g := newGround(t, logstore.Backend)
	var mu sync.Mutex
	won := 0
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := Export(bounded(t), g.store, g.path("dest"), ExportOptions{}); err == nil {
				mu.Lock()
				defer mu.Unlock()
				won++
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d exports to one folder went well", won)
	}
	wantNames(t, g.dir, "dest", "live")
	if _, err := Verify(bounded(t), g.path("dest"), Options{Kinds: kinds()}); err != nil {
		t.Error(err)
	}
}

// TestExportsUnderChurn: an artifact opens at its cursor whatever is applied between its parts.
func TestExportsUnderChurn(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend string) {
		g := newGround(t, backend)
		for n := uint64(41); n < 60; n++ {
			g.apply(t, n, n)
			want := rows(t, g.store)
			p, err := Begin(g.path("dest"), ExportOptions{Created: time.Unix(5, 0)})
			must(t, err)
			must(t, p.Checkpoint(bounded(t), g.store))
			g.apply(t, n+1000, n+1001)
			m, err := p.Finish(bounded(t))
			must(t, errors.Join(err, p.Abort()))
			if m.Rank() != n || m.Created.Unix() != 5 {
				t.Fatalf("%+v, want cursor %d", m, n)
			}
			_, err = Import(bounded(t), g.path("dest"), g.path("copy"), Options{Kinds: kinds()})
			must(t, err)
			if got := rowsAt(t, backend, g.path("copy")); got != want {
				t.Fatalf("at %d the rows differ", n)
			}
			must(t, errors.Join(os.RemoveAll(g.path("dest")), os.RemoveAll(g.path("copy"))))
		}
	})
}

// TestExportOfAStoreThatIsElsewhere: a copy at another cursor than the store's is no artifact.
func TestExportOfAStoreThatIsElsewhere(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend string) {
		g := newGround(t, backend)
		p, err := Begin(g.path("dest"), ExportOptions{})
		must(t, err)
		must(t, p.Checkpoint(bounded(t), g.store))
		p.cursor = kv.CursorAt(39)
		if _, err := p.Finish(bounded(t)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%v", err)
		}
		must(t, p.Abort())
		wantNames(t, g.dir, "live")
	})
}
