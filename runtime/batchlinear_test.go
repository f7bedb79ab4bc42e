package fold_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/nats-io/nats.go/jetstream"

	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
)

// shared are the rows of the batches' test.
var shared = [...]string{"a", "b", "c"}

// A deal is a batch of conditional writes, one act for each of its rows, or a read of one row.
type deal struct {
	rows [2]int
	acts [2]act
}

func (d deal) isRead() bool { return d.acts[0].kind == "get" }

// An answer is what it came to. index is the act that was in the way of a batch.
type answered struct {
	outcome
	index int
}

// rows is the sequential specification: all rows are one state, since batches write several.
var rows = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{[len(shared)]register{}} },
	Step: func(state, input, output any) []any {
		var next []any
		for _, s := range step(state.([len(shared)]register), input.(deal), output.(answered)) {
			next = append(next, s)
		}
		return next
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
	DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
}).ToModel()

func step(state [len(shared)]register, d deal, o answered) (next [][len(shared)]register) {
	if d.isRead() {
		for _, r := range state[d.rows[0]].step(d.acts[0], o.outcome) {
			s := state
			s[d.rows[0]] = r
			next = append(next, s)
		}
		return next
	}
	switch o.verdict {
	case "exists", "conflict": // the act named was impossible
		if len(state[d.rows[o.index]].step(d.acts[o.index], o.outcome)) > 0 {
			next = append(next, state)
		}
		return next
	case "unknown": // nothing of it happened, or all
		next = append(next, state)
	}
	done := state
	for i, row := range d.rows {
		one := outcome{verdict: "ok"}
		if o.verdict == "ok" {
			one.rev = o.rev - uint64(len(d.rows)-1-i)
		}
		after := done[row].step(d.acts[i], one)
		if len(after) == 0 {
			return next
		}
		done[row] = after[0]
	}
	return append(next, done)
}

// dealers are clients that note what they did.
type dealers struct {
	t      *testing.T
	bucket fold.Bucket
	began  time.Time

	mu      sync.Mutex
	history []porcupine.Operation
	unsure  int
	lost    int // races
}

func (c *dealers) do(client int, d deal, perform func(context.Context) answered) answered {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	call := time.Since(c.began).Nanoseconds()
	o := perform(ctx)
	returned := time.Since(c.began).Nanoseconds()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch o.verdict {
	case "unknown":
		returned = math.MaxInt64
		c.unsure++
	case "conflict", "exists":
		c.lost++
	}
	c.history = append(c.history, porcupine.Operation{ClientId: client, Input: d, Call: call, Output: o, Return: returned})
	return o
}

// read reads a row from the bucket's leader.
func (c *dealers) read(client, row int) answered {
	d := deal{rows: [2]int{row}, acts: [2]act{{kind: "get", key: shared[row]}}}
	return c.do(client, d, func(ctx context.Context) answered {
		e, err := c.bucket.Entry(ctx, routeKey("t", shared[row]).String())
		switch {
		case errors.Is(err, kv.ErrKeyNotFound), err == nil && e.IsTombstone():
			return answered{outcome: outcome{verdict: "absent"}}
		case err != nil:
			return answered{outcome: outcome{verdict: "unknown"}}
		}
		v, rej := ft.ParseRoute(e.Update)
		if rej != nil {
			c.t.Error(rej)
		}
		return answered{outcome: outcome{verdict: "ok", value: v.New.GetNodeId(), rev: e.Version.Rank()}}
	})
}

// deal reads two rows and writes both by one batch, if they are as they were read.
func (c *dealers) deal(client int, from, to int, value string, r *rand.Rand) {
	w := ft.NewRouteWriter(c.bucket)
	b := fold.NewBatch(c.bucket)
	d := deal{rows: [2]int{from, to}}
	for i, row := range d.rows {
		seen := c.read(client, row)
		a := act{key: shared[row], value: value, at: seen.rev}
		rev := fold.NewRev(routeKey("t", a.key), seen.rev)
		switch {
		case seen.verdict == "unknown":
			return
		case seen.verdict == "absent":
			a.kind = "create"
			w.CreateIn(b, route("t", a.key, value))
		case r.IntN(6) == 0:
			a.kind = "delete"
			w.DeleteIn(b, rev.Key(), fold.At(rev))
		default:
			a.kind = "update"
			w.UpdateIn(b, route("t", a.key, value), rev)
		}
		d.acts[i] = a
	}
	c.do(client, d, func(ctx context.Context) answered {
		err := b.Commit(ctx)
		o := answered{outcome: told(b.Revision().Seq(), err)}
		var of *fold.BatchError
		if o.verdict == "conflict" || o.verdict == "exists" {
			if !errors.As(err, &of) {
				c.t.Errorf("%v names no operation", err)
				return o
			}
			o.index = of.Index
		}
		return o
	})
}

// TestBatchesAreLinearizable: batches of many clients, each on two rows and conditional on both, and reads of the leader are
// those of one state that changes at once, also while connections are cut.
func TestBatchesAreLinearizable(t *testing.T) {
	const clients, deals = 6, 40
	for cuts, storage := range map[int]jetstream.StorageType{0: jetstream.MemoryStorage, 3: jetstream.FileStorage} {
		t.Run(fmt.Sprintf("%d cuts, %v", cuts, storage), func(t *testing.T) {
			l := newLive(t, backends[0], natskv.BucketConfig{Storage: storage})
			node := l.node(t, "node", startOptions{})
			node.hydrated(t)
			c := &dealers{t: t, bucket: l.bucket, began: time.Now()}
			seed := historySeed(t)
			cutter := &clerks{} // counts as the dealers do
			var done sync.WaitGroup
			for client := range clients {
				done.Go(func() {
					r := rand.New(rand.NewPCG(seed, uint64(client)))
					for i := range deals {
						from := r.IntN(len(shared))
						c.deal(client, from, (from+1+r.IntN(len(shared)-1))%len(shared), fmt.Sprintf("c%d-%d", client, i), r)
						cutter.mu.Lock()
						cutter.history = append(cutter.history, porcupine.Operation{})
						cutter.mu.Unlock()
					}
				})
			}
			cutter.cut(t, l, cuts, clients*deals)
			done.Wait()
			if got := porcupine.CheckOperationsTimeout(rows, c.history, time.Minute); got != porcupine.Ok {
				t.Errorf("%d acts: %v", len(c.history), got)
			}
			t.Logf("%d acts, %d lost races, %d of unknown outcome", len(c.history), c.lost, c.unsure)
			if c.lost == 0 {
				t.Error("nobody was in anybody's way")
			}
			c.checkFold(t, node)
		})
	}
}

// checkFold holds a fold of the log's end against the bucket.
func (c *dealers) checkFold(t *testing.T, node *tables) {
	t.Helper()
	info, err := c.bucket.Info(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	applied(t, node, fold.Seq(info.Last))
	for _, key := range shared {
		e, err := c.bucket.Entry(bounded(t), routeKey("t", key).String())
		if err != nil {
			t.Fatal(err)
		}
		row, ok, err := node.routes.GetRow(bounded(t), routeKey("t", key))
		if err != nil || ok == e.IsTombstone() || ok && row.Rev.Seq() != e.Version.Rank() {
			t.Errorf("row %s is %+v, %v, %v, the bucket has %+v", key, row, ok, err, e)
		}
	}
}

// TestBatchCheckerCatches: histories of batches that were not all or nothing are refused.
func TestBatchCheckerCatches(t *testing.T) {
	ok := func(rev uint64, value string) answered {
		return answered{outcome: outcome{verdict: "ok", rev: rev, value: value}}
	}
	get := func(row int) deal { return deal{rows: [2]int{row}, acts: [2]act{{kind: "get"}}} }
	both := func(a, b act) deal { return deal{rows: [2]int{0, 1}, acts: [2]act{a, b}} }
	create := act{kind: "create", value: "x"}
	type did struct {
		d deal
		o answered
	}
	for name, acts := range map[string][]did{
		"half of it":               {{both(create, create), ok(2, "")}, {get(0), answered{outcome: outcome{verdict: "absent"}}}},
		"half of unknown":          {{both(create, create), answered{outcome: outcome{verdict: "unknown"}}}, {get(0), ok(1, "x")}, {get(1), answered{outcome: outcome{verdict: "absent"}}}},
		"one of two conditions":    {{both(create, create), ok(2, "")}, {both(act{kind: "update", at: 1, value: "y"}, act{kind: "update", at: 1, value: "y"}), ok(4, "")}},
		"no consecutive revisions": {{both(create, create), ok(2, "")}, {get(0), ok(2, "x")}},
		"a conflict of the other":  {{both(create, create), ok(2, "")}, {both(act{kind: "update", at: 1}, act{kind: "update", at: 9}), answered{outcome: outcome{verdict: "conflict"}}}},
		"failed, and half stored":  {{both(create, act{kind: "update", at: 9}), answered{outcome: outcome{verdict: "conflict"}, index: 1}}, {get(0), ok(1, "x")}},
	} {
		var history []porcupine.Operation
		for i, one := range acts {
			returned := int64(2*i + 1)
			if one.o.verdict == "unknown" {
				returned = math.MaxInt64
			}
			history = append(history, porcupine.Operation{Input: one.d, Call: int64(2 * i), Output: one.o, Return: returned})
		}
		if got := porcupine.CheckOperationsTimeout(rows, history, time.Minute); got != porcupine.Illegal {
			t.Errorf("%s: %v", name, got)
		}
	}
}
