package rounds

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/lease"
	"github.com/typedfold/fold/runtime/protocol"
)

// TestRoundStates is the table of a round's states: what each of them does when it fails, and what is left.
func TestRoundStates(t *testing.T) {
	for name, row := range map[string]struct {
		arrange func(n *node)
		ending  Ending
		err     error
		check   func(t *testing.T, n *node, r Result)
		free    bool   // the lease, afterwards; else it is completed at revision 3
		newest  uint64 // the pointer
		exports int
	}{
		"published": {ending: Published, newest: 3, exports: 1, check: func(t *testing.T, n *node, r Result) {
			if r.Problems() != nil || r.Lease != lease.OutcomeRecorded || r.Manifest.Rank() != 3 {
				t.Errorf("%+v", r)
			}
		}},
		"acquiring: the lease can't be read": {
			arrange: func(n *node) { n.lease.create = errFault }, err: errFault, free: true,
		},
		"exporting fails": {
			arrange: func(n *node) { n.export = func(context.Context) error { return errFault } },
			err:     errFault, free: true, exports: 1,
		},
		"scratch is made": {
			arrange: func(n *node) { n.round.Scratch = filepath.Join(n.t.TempDir(), "absent") }, ending: Published, newest: 3, exports: 1,
		},
		"scratch is a file": {
			arrange: func(n *node) {
				n.round.Scratch = filepath.Join(n.t.TempDir(), "file")
				must(n.t, os.WriteFile(n.round.Scratch, nil, 0o600))
			}, err: syscall.ENOTDIR, free: true,
		},
		"uploading: the payload fails": {
			arrange: func(n *node) { n.objects.set("put .tar") }, err: errFault, free: true, exports: 1,
		},
		"uploading: the manifest fails": {
			arrange: func(n *node) { n.objects.set("put .json") }, err: errFault, free: true, exports: 1,
		},
		"uploading: the swap fails": {
			arrange: func(n *node) { n.objects.set("swap ") }, err: errFault, free: true, exports: 1,
		},
		"completing fails": {
			arrange: func(n *node) { n.lease.update = errFault }, ending: Published, newest: 3, exports: 1,
			check: func(t *testing.T, n *node, r Result) {
				if !errors.Is(r.LeaseErr, errFault) || r.PruneErr != nil || r.Lease != lease.OutcomeUnknown || len(r.Pruned.Names) != 0 {
					t.Errorf("%+v", r)
				}
				if rec, held := n.held(); !held || rec.CompletedAtUnix != nil {
					t.Errorf("the lease says %+v", rec)
				}
			},
		},
		"nothing is old enough to be pruned": {
			arrange: func(n *node) {
				older := n.another("older")
				for range 3 {
					n.write("a")
					older.follow()
					older.published()
					older.free()
				}
				older.close()
				n.round.Keep = 1
				n.follow()
				n.objects.set("delete ")
			},
			ending: Published, newest: 6, exports: 1,
			check: func(t *testing.T, n *node, r Result) {
				if r.Problems() != nil || len(r.Pruned.Names) != 0 {
					t.Errorf("%+v", r)
				}
				n.wantCompleted(6)
			},
		},
		"superseded": {
			arrange: func(n *node) {
				n.export = func(context.Context) error { // a newer one comes while it exports
					other := n.another("other")
					n.write("d")
					other.follow()
					m, err := other.doExport(bounded(n.t), filepath.Join(other.dir, "x"))
					must(n.t, err)
					out, err := other.round.Transport.Publish(bounded(n.t), filepath.Join(other.dir, "x"), m, n.log.Info)
					if err != nil || !out.Published {
						n.t.Fatal(out, err)
					}
					other.close()
					n.objects.puts = 0
					n.objects.set("list ") // a prune would fail, and there is none
					return nil
				}
			},
			ending: Superseded, newest: 4, exports: 1,
			check: func(t *testing.T, n *node, r Result) {
				info, err := n.log.Info(bounded(t))
				must(t, err)
				if r.By != (protocol.Position{Log: info.Created.UnixNano(), Revision: 4}) || r.Problems() != nil || r.Lease != lease.OutcomeRecorded {
					t.Errorf("%+v", r)
				}
				n.wantCompleted(3)
				if n.objects.puts != 0 {
					t.Errorf("%d uploads of what is superseded", n.objects.puts)
				}
			},
		},
		"abandoning fails": {
			arrange: func(n *node) {
				n.export = func(context.Context) error { return errFault }
				n.lease.remove = errors.New("no leader")
			},
			err: errFault, exports: 1,
			check: func(t *testing.T, n *node, r Result) {
				if r.LeaseErr == nil || errors.Is(r.LeaseErr, errFault) {
					t.Errorf("%+v", r)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, kvtest.Limits{Evicts: true})
			defer n.close()
			n.write("a", "b", "c")
			n.follow()
			if row.arrange != nil {
				row.arrange(n)
			}
			n.exports = 0
			res, err := n.run()
			n.objects.set("")
			if !errors.Is(err, row.err) || res.Ending != row.ending {
				t.Fatalf("ended %v: %v", res.Ending, err)
			}
			if row.check != nil {
				row.check(t, n, res)
			}
			if row.free {
				n.wantFree()
			} else if row.check == nil {
				n.wantCompleted(3)
			}
			if got := n.newest(); got != row.newest || n.exports != row.exports {
				t.Errorf("the pointer is at %d after %d exports", got, n.exports)
			}
			n.wantClean()
			if res.Took <= 0 {
				t.Errorf("took %v", res.Took)
			}
		})
	}
}

func TestRoundIsTakenByOne(t *testing.T) {
	n := newNode(t, kvtest.Limits{})
	defer n.close()
	other := n.another("node-2")
	defer other.close()
	n.write("a")
	n.follow()
	other.follow()
	n.published()
	n.wantCompleted(1)
	res, err := other.run()
	if err != nil || res.Ending != NotHeld || other.exports != 0 {
		t.Errorf("the second ended %v: %v", res.Ending, err)
	}
}

// TestRoundPrunes: the lease's TTL is the grace, and a prune that fails is told and changes nothing.
func TestRoundPrunes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, kvtest.Limits{})
		defer n.close()
		n.round.Keep = 2
		for i := range 4 {
			n.write("a")
			n.follow()
			res := n.published()
			if want := max(0, i-1); i < 2 && len(res.Pruned.Names) != 0 || i >= 2 && len(res.Pruned.Names) != min(want, 1) {
				t.Errorf("round %d pruned %v", i, res.Pruned.Names)
			}
			n.wantCompleted(uint64(i + 1))
			time.Sleep(4*ttl + time.Second)
		}
		n.write("a")
		n.follow()
		n.objects.set("delete .json")
		res := n.published()
		if !errors.Is(res.PruneErr, errFault) || res.LeaseErr != nil {
			t.Errorf("%+v", res)
		}
		n.wantCompleted(5)
		n.wantClean()
	})
}

// TestRoundEndsInTime: an export that hangs is ended while nothing of the round can have been pruned, and the lease is
// free.
func TestRoundEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, kvtest.Limits{})
		defer n.close()
		n.write("a")
		n.follow()
		n.export = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		began := time.Now()
		res, err := n.run()
		if !errors.Is(err, errTooLong) || !errors.Is(err, context.DeadlineExceeded) || res.Ending != Failed {
			t.Errorf("ended %v: %v", res.Ending, err)
		}
		if took := time.Since(began); took != 4*ttl || res.Took != took {
			t.Errorf("took %v, says %v", took, res.Took)
		}
		n.wantFree()
		n.wantClean()
	})
}

func TestRoundIsCancelled(t *testing.T) {
	n := newNode(t, kvtest.Limits{})
	defer n.close()
	n.write("a")
	n.follow()
	ctx, cancel := context.WithCancel(bounded(t))
	n.export = func(ctx context.Context) error { cancel(); return ctx.Err() }
	res, err := n.round.Run(ctx)
	if !errors.Is(err, context.Canceled) || errors.Is(err, errTooLong) || res.LeaseErr != nil || res.Lease != lease.OutcomeRecorded {
		t.Errorf("ended %+v: %v", res, err)
	}
	n.wantFree()
	n.wantClean()
}

// TestRoundIsTakenOver: the lease expires under a slow round and another node takes it. Both publish, and the slow one's
// last word is not written over the other's.
func TestRoundIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, kvtest.Limits{})
		defer n.close()
		other := n.another("node-2")
		defer other.close()
		n.write("a")
		n.follow()
		n.export = func(context.Context) error {
			time.Sleep(ttl + time.Second)
			n.write("b")
			other.follow()
			other.published()
			return nil
		}
		res, err := n.run()
		if err != nil || res.Ending != Superseded || res.Lease != lease.OutcomeTaken {
			t.Errorf("ended %v with its lease %v: %v", res.Ending, res.Lease, err)
		}
		n.wantCompleted(2)
		if n.newest() != 2 {
			t.Errorf("the pointer is at %d", n.newest())
		}
	})
}

func TestRoundValidates(t *testing.T) {
	n := newNode(t, kvtest.Limits{})
	defer n.close()
	for want, spoil := range map[string]func(r *Round){
		"Lease":     func(r *Round) { r.Lease = nil },
		"Export":    func(r *Round) { r.Export = nil },
		"Transport": func(r *Round) { r.Transport = nil },
		"Scratch":   func(r *Round) { r.Scratch = "" },
		"Live":      func(r *Round) { r.Live = nil },
		"keep":      func(r *Round) { r.Keep = -1 },
		"below 1s":  func(r *Round) { r.TTL = time.Second - 1 },
	} {
		r := *n.round
		spoil(&r)
		if _, err := r.Run(bounded(t)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		if _, err := NewScheduler(SchedulerOptions{Round: &r}); err == nil {
			t.Errorf("%s: a scheduler takes it", want)
		}
	}
	n.wantFree()
}
