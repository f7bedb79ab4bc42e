package fold_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/repair"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
	"github.com/typedfold/fold/runtime/store/pebblestore"
	"github.com/typedfold/fold/runtime/store/storetest"
)

// openReadOnly opens what a backend's open left in dir.
func openReadOnly(b backend, dir string) (store.Store, error) {
	if b.name == "logstore" {
		return logstore.Open(filepath.Join(dir, "fold.log"), logstore.Options{ReadOnly: true})
	}
	return pebblestore.Open(filepath.Join(dir, "pebble"), pebblestore.Options{ReadOnly: true})
}

// stoppedFold is a log, and a fold of it that has stopped.
type stoppedFold struct {
	b   backend
	log *kvtest.Log
	dir string
}

// stopped is a fold of five routes that has stopped.
func stopped(t *testing.T, b backend, limits kvtest.Limits) *stoppedFold {
	t.Helper()
	f := &stoppedFold{b: b, log: kvtest.NewLog(kvtest.Options{Bucket: "test", Limits: limits}), dir: t.TempDir()}
	f.write(t, "a", "b", "c", "d", "e")
	f.run(t, f.dir)
	return f
}

func (f *stoppedFold) write(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		setRoute(t, f.log, route("t", name, fmt.Sprint(len(f.log.Retained()))))
	}
}

// run has a fold in dir catch up and stop.
func (f *stoppedFold) run(t *testing.T, dir string) {
	t.Helper()
	tb := start(t, f.log, openStore(t, f.b, dir), startOptions{})
	tb.hydrated(t)
	tb.caughtUp(t, f.log)
	tb.close(t)
}

// moveOn writes and deletes, and takes out of the log more than the fold has seen. Four of its routes are gone then.
func (f *stoppedFold) moveOn(t *testing.T) {
	t.Helper()
	f.write(t, "a", "b", "c", "f", "g")
	f.log.Remove(routeKey("t", "d").String())
	f.log.PurgeMarkers()
	f.log.EvictTo(8)
}

// state is all that a reader can see of the log.
func (f *stoppedFold) state(t *testing.T) string {
	t.Helper()
	info, err := f.log.Info(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d to %d of %v, %d writes, %d watches: %v", info.First, info.Last, info.Created, f.log.Calls(kvtest.PointWrite), f.log.OpenWatches(), f.log.Retained())
}

// explain explains, and checks that neither the store nor the bucket has changed.
func (f *stoppedFold) explain(t *testing.T, o fold.ExplainOptions) (*fold.Explanation, error) {
	t.Helper()
	log := f.state(t)
	before, err := storetest.Files(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openReadOnly(f.b, f.dir)
	if err != nil {
		t.Fatal(err)
	}
	x, err := fold.Explain(bounded(t), f.log, s, o)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	after, filesErr := storetest.Files(f.dir)
	if filesErr != nil || !maps.Equal(before, after) {
		t.Errorf("the store's files have changed, %v:\n%v\n%v", filesErr, before, after)
	}
	if now := f.state(t); now != log {
		t.Errorf("the bucket was\n%s\nand is\n%s", log, now)
	}
	return x, err
}

// happens starts the fold and compares what it does with what was said.
func (f *stoppedFold) happens(t *testing.T, x *fold.Explanation, o fold.RepairOptions) {
	t.Helper()
	tb := start(t, f.log, openStore(t, f.b, f.dir), startOptions{fold: fold.Options{Repair: o}})
	if x.Verdict == fold.WouldRefuse {
		ended(t, tb)
		if err := tb.f.Err(); !errors.Is(err, fold.ErrRepairRefused) || err.Error() != x.Refusal.Error {
			t.Errorf("the fold stopped with\n%v\nand it was said\n%s", err, x.Refusal.Error)
		}
		return
	}
	tb.hydrated(t)
	tb.caughtUp(t, f.log)
	s := tb.f.Status()
	if owed := s.Owed; (x.ThenOwed == nil) != (owed == "") || x.ThenOwed != nil && x.ThenOwed.Why != owed {
		t.Errorf("the fold owes %q, it was said %+v", owed, x.ThenOwed)
	}
	if x.Verdict != fold.WouldRepair {
		if s.Repair != nil {
			t.Errorf("verdict %s, and there was a repair: %+v", x.Verdict, s.Repair)
		}
		return
	}
	if s.Repair == nil {
		t.Fatal("there was no repair")
	}
	did, said := *s.Repair, *x.Repair
	did.Began, did.Ended = said.Began, said.Ended
	if !reflect.DeepEqual(did, said) {
		t.Errorf("the repair was\n%+v\nand it was said\n%+v", did, said)
	}
}

// artifact is a source of one artifact: a fold at the log's end.
func (f *stoppedFold) artifact(t *testing.T) repair.Source {
	t.Helper()
	dir, all := t.TempDir(), t.TempDir()
	f.run(t, dir)
	s := openStore(t, f.b, dir)
	_, err := artifact.Export(bounded(t), s, filepath.Join(all, "one"), artifact.ExportOptions{})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	return &artifact.LocalSource{Dir: all, Artifact: artifact.Options{Kinds: []store.Kind{s.Kind()}}, Scratch: t.TempDir()}
}

func TestExplainIsWhatHappens(t *testing.T) {
	evicts := kvtest.Limits{Evicts: true}
	for name, c := range map[string]struct {
		limits  kvtest.Limits
		bend    func(t *testing.T, f *stoppedFold, o *fold.RepairOptions)
		verdict fold.Verdict
		cause   string
		plan    string
		deletes uint64
		puts    uint64
	}{
		"Resumes": {
			bend:    func(t *testing.T, f *stoppedFold, _ *fold.RepairOptions) { f.write(t, "a", "h") },
			verdict: fold.WouldResume,
		},
		"Relists": {
			bend:    func(t *testing.T, f *stoppedFold, _ *fold.RepairOptions) { f.moveOn(t) },
			verdict: fold.WouldRepair, cause: "cursor expired", plan: "relist", deletes: 4,
		},
		"RefusesToRelist": {
			limits:  evicts,
			bend:    func(t *testing.T, f *stoppedFold, _ *fold.RepairOptions) { f.moveOn(t) },
			verdict: fold.WouldRefuse, cause: "cursor expired", plan: "no restore source",
		},
		"Off": {
			bend:    func(t *testing.T, f *stoppedFold, o *fold.RepairOptions) { f.moveOn(t); o.Mode = fold.RepairOff },
			verdict: fold.WouldRefuse, cause: "cursor expired", plan: "stop",
		},
		"Restores": {
			limits: evicts,
			bend: func(t *testing.T, f *stoppedFold, o *fold.RepairOptions) {
				f.write(t, "a", "f")
				f.log.Remove(routeKey("t", "d").String())
				o.Source = f.artifact(t)
				f.write(t, "b", "c", "a")
				f.log.EvictTo(8)
			},
			verdict: fold.WouldRepair, cause: "cursor expired", plan: "restore", deletes: 1, puts: 2,
		},
		"Replaced": {
			bend:    func(t *testing.T, f *stoppedFold, _ *fold.RepairOptions) { f.log.Recreate(); f.write(t, "a", "z") },
			verdict: fold.WouldRefuse, cause: "log replaced", plan: "stop",
		},
		"Adopts": {
			bend: func(t *testing.T, f *stoppedFold, o *fold.RepairOptions) {
				f.log.Recreate()
				f.write(t, "a", "z")
				o.AdoptNewLog = true
			},
			verdict: fold.WouldRepair, cause: "log replaced", plan: "adopt", deletes: 4,
		},
		"Rewound": {
			bend:    func(_ *testing.T, f *stoppedFold, _ *fold.RepairOptions) { f.log.Rewind(3) },
			verdict: fold.WouldRefuse, cause: "log rewound", plan: "stop",
		},
		"NoCursor": {
			bend:    func(t *testing.T, f *stoppedFold, _ *fold.RepairOptions) { f.dir = t.TempDir(); f.empty(t) },
			verdict: fold.WouldBegin, cause: "no cursor",
		},
		"NoCursorButRows": {
			bend: func(t *testing.T, f *stoppedFold, _ *fold.RepairOptions) {
				f.moveOn(t)
				s := openStore(t, f.b, f.dir)
				if err := errors.Join(s.Apply(bounded(t), &store.Batch{}, kv.Cursor{}), s.Close()); err != nil {
					t.Fatal(err)
				}
			},
			verdict: fold.WouldRepair, cause: "no cursor", plan: "relist", deletes: 4,
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachBackend(t, func(t *testing.T, b backend) {
				f, o := stopped(t, b, c.limits), fold.RepairOptions{Scratch: t.TempDir()}
				c.bend(t, f, &o)
				x, err := f.explain(t, fold.ExplainOptions{Repair: o})
				if err != nil {
					t.Fatal(err)
				}
				if x.Verdict != c.verdict || x.Cause != c.cause || x.Bucket != "test" || x.Scope != ">" {
					t.Errorf("explanation %+v", x)
				}
				switch {
				case c.verdict == fold.WouldResume:
					if x.Repair != nil || x.Cursor != 5 || x.Last != 7 {
						t.Errorf("explanation %+v", x)
					}
				case x.Repair.Plan != c.plan || x.Repair.Deleted != c.deletes || x.Repair.Put != c.puts || len(x.Repair.Decisions) == 0:
					t.Errorf("repair %+v", x.Repair)
				}
				if (x.Refusal != nil) != (c.verdict == fold.WouldRefuse) || x.Refusal != nil && (x.Refusal.Hint == "" || x.Reason == "") {
					t.Errorf("refusal %+v, reason %q", x.Refusal, x.Reason)
				}
				f.happens(t, x, o)
			})
		})
	}
}

// empty makes an empty store.
func (f *stoppedFold) empty(t *testing.T) {
	t.Helper()
	if err := openStore(t, f.b, f.dir).Close(); err != nil {
		t.Fatal(err)
	}
}

func TestExplainTakesItsScopeFromTheStore(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		f := stopped(t, b, kvtest.Limits{})
		f.dir = t.TempDir()
		scope, err := fold.Prefixes("route.t.c", "route.t.d", "meta", "settings", "session", "dropped", "halted", "doc")
		if err != nil {
			t.Fatal(err)
		}
		tb := start(t, f.log, openStore(t, b, f.dir), startOptions{fold: fold.Options{Scope: scope}})
		tb.hydrated(t)
		tb.close(t)
		f.moveOn(t)
		x, err := f.explain(t, fold.ExplainOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if x.Scope != scope.String() || x.Verdict != fold.WouldRepair || x.Repair.Rows != 2 || x.Repair.Deleted != 1 || x.Repair.Examples[0] != "delete route.t.d" {
			t.Errorf("explanation %+v, repair %+v", x, x.Repair)
		}
	})
}

func TestExplainErrors(t *testing.T) {
	f := stopped(t, backends[0], kvtest.Limits{})
	gone := errors.New("gone")
	for name, c := range map[string]struct {
		fault kvtest.Fault
		o     fold.ExplainOptions
		want  error
	}{
		"Info":    {fault: kvtest.Fault{At: kvtest.PointInfo, Skip: 1, Err: gone}, want: gone}, // the first one is the test's
		"Open":    {fault: kvtest.Fault{At: kvtest.PointOpen, Err: gone}, want: gone},
		"Options": {o: fold.ExplainOptions{Repair: fold.RepairOptions{Mode: fold.RepairRestore}}},
	} {
		f.log.ClearFaults()
		if c.want != nil {
			f.log.Inject(c.fault)
		}
		if x, err := f.explain(t, c.o); err == nil || c.want != nil && !errors.Is(err, c.want) || x != nil {
			t.Errorf("%s: %+v, %v", name, x, err)
		}
	}
	f.log.ClearFaults()
	f.moveOn(t)
	f.log.Inject(kvtest.Fault{At: kvtest.PointList, Err: gone})
	if x, err := f.explain(t, fold.ExplainOptions{}); !errors.Is(err, gone) || x != nil {
		t.Errorf("list: %+v, %v", x, err)
	}

	s := openStore(t, f.b, f.dir)
	defer func() { _ = s.Close() }()
	other := kvtest.NewLog(kvtest.Options{Bucket: "other"})
	if _, err := fold.Explain(bounded(t), other, s, fold.ExplainOptions{}); !errors.Is(err, fold.ErrWrongBucket) || other.Calls(kvtest.PointInfo) != 0 {
		t.Errorf("another bucket's store: %v, asked %d times", err, other.Calls(kvtest.PointInfo))
	}
	for name, b := range map[string]string{store.MetaScope: ".x", store.MetaLog: "x", store.MetaOwed: "x"} {
		setMeta(t, s, name, []byte(b))
		if _, err := fold.Explain(bounded(t), f.log, s, fold.ExplainOptions{}); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("damaged %s: %v", name, err)
		}
		setMeta(t, s, name, nil)
	}
}

// setMeta writes one of a fold's own records; nil removes it.
func setMeta(t *testing.T, s store.Store, name string, value []byte) {
	t.Helper()
	b := store.Batch{Ops: []store.Op{{Key: store.MetaKey(name), Value: value, Delete: value == nil}}}
	if err := s.Apply(context.Background(), &b, s.Cursor()); err != nil {
		t.Fatal(err)
	}
}

func TestExplainAudit(t *testing.T) {
	for name, c := range map[string]struct {
		limits  kvtest.Limits
		bend    func(t *testing.T, f *stoppedFold)
		owed    kv.Owes
		verdict fold.AuditVerdict
		deletes uint64
	}{
		"NothingOwed": {verdict: fold.AuditNone, bend: func(*testing.T, *stoppedFold) {}},
		"Settles": {owed: kv.OwesMarkers, verdict: fold.AuditSettles, deletes: 1, bend: func(_ *testing.T, f *stoppedFold) {
			f.log.RemoveMessage(4)
		}},
		"Unproven": {owed: kv.OwesMarkers, verdict: fold.AuditUnproven, limits: kvtest.Limits{Evicts: true}, bend: func(_ *testing.T, f *stoppedFold) {
			f.log.EvictTo(3)
		}},
		"Behind": {owed: kv.OwesMarkers, verdict: fold.AuditBehind, bend: func(t *testing.T, f *stoppedFold) { f.write(t, "h") }},
		"BehindMeanwhile": {owed: kv.OwesMarkers, verdict: fold.AuditBehind, bend: func(_ *testing.T, f *stoppedFold) {
			f.log.Inject(kvtest.Fault{At: kvtest.PointList, Do: func(l *kvtest.Log) { l.Set("route.t.h", "") }})
		}},
		"Contradicts": {owed: kv.OwesMarkers, verdict: fold.AuditContradicts, bend: func(t *testing.T, f *stoppedFold) {
			s := openStore(t, f.b, f.dir)
			u := kv.Update{Key: "route.t.a", Op: kv.OpDelete}
			if err := errors.Join(s.Apply(bounded(t), &store.Batch{Updates: []kv.Update{u}}, s.Cursor()), s.Close()); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := stopped(t, backends[0], c.limits)
			s := openStore(t, f.b, f.dir)
			setMeta(t, s, store.MetaOwed, kv.Owed{}.Add(c.owed, 5).AppendBytes(nil))
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			c.bend(t, f)
			s, err := openReadOnly(f.b, f.dir)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			x, err := fold.Explain(bounded(t), f.log, s, fold.ExplainOptions{Audit: true})
			if err != nil {
				t.Fatal(err)
			}
			if x.Verdict != fold.WouldResume || x.Audit == nil || x.Audit.Verdict != c.verdict {
				t.Fatalf("verdict %s, audit %+v", x.Verdict, x.Audit)
			}
			if r := x.Audit.Report; r != nil && (r.Deleted != c.deletes || r.Plan == "") {
				t.Errorf("report %+v", r)
			}
			unsure := slices.Contains([]fold.AuditVerdict{fold.AuditBehind, fold.AuditContradicts}, c.verdict)
			if unsure != (x.Audit.Reason != "") || (x.Owed == nil) != (c.owed == 0) {
				t.Errorf("audit %+v, owed %+v", x.Audit, x.Owed)
			}
			if c.owed != 0 && (*x.Owed != fold.OwedAudit{Why: "markers", UpTo: 5}) {
				t.Errorf("owed %+v", x.Owed)
			}
		})
	}
}

// TestExplanationJSON: revisions and other whole numbers of decisions are strings, since they may pass 2^53.
func TestExplanationJSON(t *testing.T) {
	f := stopped(t, backends[0], kvtest.Limits{Evicts: true})
	f.moveOn(t)
	x, err := f.explain(t, fold.ExplainOptions{})
	if err != nil {
		t.Fatal(err)
	}
	x.Cursor, x.Last = 1<<60+1, 1<<60+3
	x.Repair.Decisions[0].Inputs["first"] = uint64(1<<60 + 5)
	text, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"cursor":"1152921504606846977"`, `"last":"1152921504606846979"`, `"first":"1152921504606846981"`, `"verdict":"refuse"`,
		`"kernel":"listing_truth"`, `"evicts":true`, `"hint":"give the fold an artifact source`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	var back fold.Explanation
	if err := json.Unmarshal(text, &back); err != nil || back.Cursor != x.Cursor || back.Refusal.Hint != x.Refusal.Hint || len(back.Repair.Decisions) != len(x.Repair.Decisions) {
		t.Errorf("came back as %+v, %v", back, err)
	}
}
