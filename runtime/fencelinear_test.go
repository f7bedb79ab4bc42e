package fold_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
)

// A fencedAct is a Fence, or a write of the one row of this test.
type fencedAct struct {
	fence bool
	token string
}

// A fencedEnd is what it came to: ok, fenced (installed is what it was told), spurious, unknown.
type fencedEnd struct {
	verdict   string
	installed string
	rev       uint64
}

// A fencedBucket is the sequential specification: the token, and the log's last revision that anybody was told. A Fence of
// what is installed is answered by a revision too, and a write that is refused changes nothing.
type fencedBucket struct {
	token string
	last  uint64
}

func (b fencedBucket) step(a fencedAct, o fencedEnd) []fencedBucket {
	after := fencedBucket{token: b.token, last: max(b.last, o.rev)}
	if a.fence {
		after.token = a.token
	}
	possible := (a.fence || a.token == b.token) && (o.rev == 0 || o.rev > b.last)
	switch o.verdict {
	case "ok":
		if possible {
			return []fencedBucket{after}
		}
	case "fenced":
		if !a.fence && a.token != b.token && o.installed == b.token {
			return []fencedBucket{b}
		}
	case "spurious":
		return []fencedBucket{b}
	case "unknown":
		if possible {
			return []fencedBucket{b, after}
		}
		return []fencedBucket{b}
	}
	return nil
}

// fencedModel begins with a bucket whose token is "a".
var fencedModel = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{fencedBucket{token: "a"}} },
	Step: func(state, input, output any) (next []any) {
		for _, s := range state.(fencedBucket).step(input.(fencedAct), output.(fencedEnd)) {
			next = append(next, s)
		}
		return next
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
	DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
}).ToModel()

// fencers are clients that note what they did.
type fencers struct {
	t     *testing.T
	began time.Time

	mu      sync.Mutex
	history []porcupine.Operation
	ends    map[string]int
}

func (c *fencers) do(client int, a fencedAct, perform func(context.Context) (uint64, error)) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	call := time.Since(c.began).Nanoseconds()
	rev, err := perform(ctx)
	returned := time.Since(c.began).Nanoseconds()
	o := fencedEnd{verdict: "spurious"}
	var out *fold.FencedError
	switch {
	case err == nil:
		o = fencedEnd{verdict: "ok", rev: rev}
	case errors.As(err, &out):
		o = fencedEnd{verdict: "fenced", installed: out.Installed}
	case errors.Is(err, fold.ErrOutcomeUnknown):
		o.verdict, returned = "unknown", math.MaxInt64
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ends[o.verdict]++
	c.history = append(c.history, porcupine.Operation{ClientId: client, Input: a, Call: call, Output: o, Return: returned})
}

func (c *fencers) fence(client int, b fold.Bucket, token string) {
	c.do(client, fencedAct{fence: true, token: token}, func(ctx context.Context) (uint64, error) {
		tail, err := fold.Fence(ctx, b, token)
		return tail.Seq(), err
	})
}

// write puts the row, or replaces it as it was read, which needs two checks at once.
func (c *fencers) write(client int, b fold.Bucket, w ft.RouteWriter, token string, conditional bool) {
	c.do(client, fencedAct{token: token}, func(ctx context.Context) (uint64, error) {
		row := route("t", fmt.Sprintf("row-%d", client), token) // its own: nobody is in its way but the fence
		if !conditional {
			rev, err := w.Put(ctx, row)
			return rev.Seq(), err
		}
		e, err := b.Entry(ctx, routeKey("t", row.GetDomain()).String())
		if err != nil {
			return 0, err
		}
		rev, err := w.Update(ctx, row, fold.NewRev(routeKey("t", row.GetDomain()), e.Version.Rank()))
		return rev.Seq(), err
	})
}

// await waits until so many acts are done.
func (c *fencers) await(n int) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ctx := bounded(c.t); ctx.Err() == nil; <-tick.C {
		c.mu.Lock()
		done := len(c.history)
		c.mu.Unlock()
		if done >= n {
			return
		}
	}
}

// TestFencesAreLinearizable: Fences and writes under tokens that come and go, and come again, are those of one bucket, also
// while its log changes leaders.
func TestFencesAreLinearizable(t *testing.T) {
	eachFenceRig(t, func(t *testing.T, r *fenceRig) {
		const clients, acts = 5, 40
		first := r.bucket(t)
		fenced(t, first, "a")
		c := &fencers{t: t, began: time.Now(), ends: map[string]int{}}
		seed := historySeed(t)
		var done sync.WaitGroup
		for client := range clients {
			b := r.bucket(t)
			done.Go(func() {
				rnd := rand.New(rand.NewPCG(seed, uint64(client)))
				writers := map[string]ft.RouteWriter{}
				for _, token := range []string{"", "a", "b"} {
					writers[token] = presenting(b, token)
				}
				for range acts {
					token := []string{"a", "b", "a", ""}[rnd.IntN(4)]
					if rnd.IntN(8) == 0 {
						c.fence(client, b, token)
						continue
					}
					c.write(client, b, writers[token], token, rnd.IntN(3) == 0)
				}
			})
		}
		if r.disturb != nil {
			done.Go(func() {
				for range 3 {
					c.mu.Lock()
					before := len(c.history)
					c.mu.Unlock()
					r.disturb()
					c.await(min(before+clients*acts/5, clients*acts))
				}
			})
		}
		done.Wait()
		if got := porcupine.CheckOperationsTimeout(fencedModel, c.history, time.Minute); got != porcupine.Ok {
			t.Errorf("%d acts: %v", len(c.history), got)
		}
		t.Logf("%d acts: %v", len(c.history), c.ends)
		if c.ends["ok"] == 0 || c.ends["fenced"] == 0 {
			t.Error("nobody was fenced out, or everybody was")
		}
	})
}

// unfenced is a bucket whose writes forget what they are to ask for.
type unfenced struct {
	fold.Bucket
	kv.Fencer
}

func (b unfenced) Put(ctx context.Context, key string, value []byte, o kv.PutOptions) (kv.Version, error) {
	o.Fence = 0
	return b.Bucket.Put(ctx, key, value, o)
}

// unproved is a bucket whose reads of the fence record are old, and whose proofs are all believed.
type unproved struct {
	*lagging
}

func (b unproved) ProveFence(context.Context, uint64) (kv.Version, error) { return kv.Revision(1), nil }

// TestFenceHistoryCatches: bugs that are planted show in a history.
func TestFenceHistoryCatches(t *testing.T) {
	play := func(b fold.Bucket, acts func(c *fencers, w ft.RouteWriter)) porcupine.CheckResult {
		c := &fencers{t: t, began: time.Now(), ends: map[string]int{}}
		fenced(t, b, "a")
		acts(c, presenting(b, "a"))
		return porcupine.CheckOperationsTimeout(fencedModel, c.history, time.Minute)
	}
	takenOver := func(b fold.Bucket) func(*fencers, ft.RouteWriter) {
		return func(c *fencers, w ft.RouteWriter) {
			c.write(0, b, w, "a", false)
			c.fence(1, b, "b")
			c.write(0, b, w, "a", false)
		}
	}
	sound := newLog()
	if got := play(sound, takenOver(sound)); got != porcupine.Ok {
		t.Errorf("no bug: %v", got)
	}
	log := newLog()
	bad := unfenced{Bucket: log, Fencer: log}
	if got := play(bad, takenOver(bad)); got != porcupine.Illegal {
		t.Errorf("writes that don't ask for the fence: %v", got)
	}
	lags := &lagging{Log: newLog()}
	fenced(t, lags, "b")
	old, err := lags.FenceRecord(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	believes := unproved{lags}
	got := play(believes, func(c *fencers, w ft.RouteWriter) {
		lags.old = slices.Repeat([]kv.FenceRecord{old}, 2)
		c.write(0, believes, w, "a", false)
	})
	if got != porcupine.Illegal {
		t.Errorf("a refusal that is not proved: %v", got)
	}
	for name, h := range map[string][]porcupine.Operation{
		"a tail below a write that was acknowledged before": {
			{Input: fencedAct{token: "a"}, Output: fencedEnd{verdict: "ok", rev: 9}, Return: 1},
			{Input: fencedAct{fence: true, token: "b"}, Output: fencedEnd{verdict: "ok", rev: 8}, Call: 2, Return: 3},
		},
		"another token than the installed one": {
			{Input: fencedAct{token: "b"}, Output: fencedEnd{verdict: "fenced", installed: "c"}, Return: 1},
		},
	} {
		if got := porcupine.CheckOperationsTimeout(fencedModel, h, time.Minute); got != porcupine.Illegal {
			t.Errorf("%s: %v", name, got)
		}
	}
}
