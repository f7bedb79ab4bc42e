package fold_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/nats-io/nats.go/jetstream"

	foldtestv1 "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1"
	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
)

// An act is one call of a client on one key.
type act struct {
	kind  string // put, create, update, delete, get
	key   string
	value string
	at    uint64
}

// An outcome is what it came to. An act whose outcome nobody knows may take effect at any later time, or never.
type outcome struct {
	verdict string // ok, conflict, exists, absent, unknown
	value   string
	rev     uint64
}

// A register is one key.
type register struct {
	present bool
	value   string
	rev     uint64 // 0: never written
	// unsure: it was last written by a write whose outcome, and so its revision, is not known until somebody reads it: it is
	// above rev.
	unsure bool
}

func (r register) is(rev uint64) bool {
	if r.unsure {
		return rev > r.rev
	}
	return rev == r.rev
}

// after is the register once a write has taken effect; ok is false when revisions would go back. Revision 0 is one that
// is not known.
func (r register) after(present bool, value string, rev uint64) (next register, ok bool) {
	if rev == 0 {
		return register{present: present, value: value, rev: r.rev, unsure: true}, true
	}
	return register{present: present, value: value, rev: rev}, rev > r.rev
}

// registers is the sequential specification: what a bucket is, one key at a time.
var registers = (&porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, o := range history {
			byKey[o.Input.(act).key] = append(byKey[o.Input.(act).key], o)
		}
		var all [][]porcupine.Operation
		for _, part := range byKey {
			all = append(all, part)
		}
		return all
	},
	Init: func() []any { return []any{register{}} },
	Step: func(state, input, output any) []any {
		var next []any
		for _, s := range state.(register).step(input.(act), output.(outcome)) {
			next = append(next, s)
		}
		return next
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
	DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
}).ToModel()

func (r register) step(a act, o outcome) []register {
	if a.kind == "get" {
		return r.read(o)
	}
	allowed := a.kind == "put" || a.kind == "create" && !r.present || (a.kind == "update" || a.kind == "delete") && r.is(a.at)
	switch o.verdict {
	case "ok", "unknown":
		var next []register
		if o.verdict == "unknown" {
			next = append(next, r)
		}
		if s, ok := r.after(a.kind != "delete", a.value, o.rev); allowed && ok {
			next = append(next, s)
		}
		return next
	case "exists":
		if r.present {
			return []register{r}
		}
	case "conflict":
		if !r.is(a.at) || r.unsure {
			return []register{r}
		}
	}
	return nil
}

func (r register) read(o outcome) []register {
	switch {
	case o.verdict == "unknown":
		return []register{r}
	case o.verdict == "absent" && !r.present:
		return []register{r}
	case o.verdict == "ok" && r.present && r.value == o.value && r.is(o.rev):
		return []register{{present: true, value: o.value, rev: o.rev}}
	}
	return nil
}

// linear checks a history. What the checker can't settle in time has failed.
func linear(t *testing.T, history []porcupine.Operation) porcupine.CheckResult {
	t.Helper()
	return porcupine.CheckOperationsTimeout(registers, history, time.Minute)
}

// clerks are clients that note what they did.
type clerks struct {
	t      *testing.T
	bucket kv.Bucket
	tables *tables
	began  time.Time

	mu      sync.Mutex
	history []porcupine.Operation
	views   []view
	unsure  int
}

// A view is what a snapshot of the fold showed at its cursor.
type view struct {
	client int
	cursor uint64
	rows   map[string]outcome
}

func (c *clerks) do(client int, a act) outcome {
	call := time.Since(c.began).Nanoseconds()
	o := c.perform(a)
	returned := time.Since(c.began).Nanoseconds()
	if o.verdict == "unknown" {
		returned = math.MaxInt64
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.verdict == "unknown" {
		c.unsure++
	}
	c.history = append(c.history, porcupine.Operation{ClientId: client, Input: a, Call: call, Output: o, Return: returned})
	return o
}

func (c *clerks) perform(a act) outcome {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if a.kind == "get" {
		return c.get(ctx, a.key)
	}
	w := ft.NewRouteWriter(c.bucket)
	value := &foldtestv1.Route{Tenant: "t", Domain: a.key, NodeId: a.value}
	var rev fold.Rev[ft.RouteKey]
	var err error
	switch a.kind {
	case "put":
		rev, err = w.Put(ctx, value)
	case "create":
		rev, err = w.Create(ctx, value)
	default: // at the level below the typed writer, which only takes revisions that it gave out
		var v kv.Version
		raw := routeKey("t", a.key).String()
		if a.kind == "delete" {
			v, err = c.bucket.Delete(ctx, raw, kv.DeleteOptions{At: kv.Revision(a.at)})
		} else {
			v, err = c.bucket.Update(ctx, raw, []byte(marshal(c.t, value)), kv.Revision(a.at), kv.PutOptions{})
		}
		return told(v.Rank(), err)
	}
	return told(rev.Seq(), err)
}

func told(rev uint64, err error) outcome {
	switch {
	case err == nil:
		return outcome{verdict: "ok", rev: rev}
	case errors.Is(err, kv.ErrKeyExists):
		return outcome{verdict: "exists"}
	case errors.Is(err, kv.ErrConflict):
		return outcome{verdict: "conflict"}
	}
	return outcome{verdict: "unknown"}
}

// get reads the fold, once it holds all that the log's leader held when the call began.
func (c *clerks) get(ctx context.Context, key string) outcome {
	info, err := c.bucket.Info(ctx)
	if err != nil {
		return outcome{verdict: "unknown"}
	}
	if err := c.tables.f.WaitApplied(ctx, fold.Seq(info.Last)); err != nil {
		return outcome{verdict: "unknown"}
	}
	row, ok, err := c.tables.routes.GetRow(ctx, routeKey("t", key))
	return c.row(row, ok, err)
}

func (c *clerks) row(row fold.Row[ft.RouteKey, *foldtestv1.Route], ok bool, err error) outcome {
	switch {
	case err != nil:
		c.t.Errorf("read: %v", err)
		return outcome{verdict: "unknown"}
	case !ok:
		return outcome{verdict: "absent"}
	}
	return outcome{verdict: "ok", value: row.Value.GetNodeId(), rev: row.Rev.Seq()}
}

// look notes what the fold shows at one cursor.
func (c *clerks) look(client int, keys []string) {
	s, err := c.tables.f.Snapshot()
	if err != nil {
		c.t.Errorf("snapshot: %v", err)
		return
	}
	defer s.Close()
	v := view{client: client, cursor: s.Cursor().Revision(), rows: map[string]outcome{}}
	for _, key := range keys {
		row, ok, err := c.tables.routes.At(s).GetRow(context.Background(), routeKey("t", key))
		v.rows[key] = c.row(row, ok, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.views = append(c.views, v)
}

// work is one client's share: races for the revision that it read last, among them. All clients now and then create the same key
// that nobody has written, so that one of them does: a deleted one is put again, mostly, before a creation has found out that it may.
func (c *clerks) work(client, acts int, keys []string, r *rand.Rand) {
	seen := map[string]uint64{}
	for i := range acts {
		key, value := keys[r.IntN(len(keys))], fmt.Sprintf("c%d-%d", client, i)
		a := act{kind: [...]string{"get", "get", "update", "update", "put", "create", "delete"}[r.IntN(7)], key: key, value: value}
		switch a.kind {
		case "update", "delete":
			if a.at = seen[key]; a.at == 0 {
				a = act{kind: "get", key: key}
			}
		case "get":
			a.value = ""
		}
		if i%20 == 7 {
			a = act{kind: "create", key: fmt.Sprintf("new%d", i/20), value: value}
		}
		if o := c.do(client, a); o.rev != 0 {
			seen[key] = o.rev
		}
		if i%5 == client%5 {
			c.look(client, keys)
		}
	}
}

// last is what the log held of a key at a revision, from the writes that are known; more is true when a write of unknown
// outcome may have been later.
func (c *clerks) last(key string, cursor uint64) (o outcome, more map[string]bool) {
	o, more = outcome{verdict: "absent"}, map[string]bool{}
	for _, op := range c.history {
		a, out := op.Input.(act), op.Output.(outcome)
		switch {
		case a.key != key || a.kind == "get":
		case out.verdict == "unknown":
			more[a.value] = true
		case out.verdict == "ok" && out.rev <= cursor && out.rev > o.rev:
			o = outcome{verdict: "ok", value: a.value, rev: out.rev}
			if a.kind == "delete" {
				o = outcome{verdict: "absent", rev: out.rev}
			}
		}
	}
	return o, more
}

// checkViews holds every snapshot against the log at its cursor, and each client's cursors against going back.
func (c *clerks) checkViews(t *testing.T) {
	t.Helper()
	at := map[int]uint64{}
	for _, v := range c.views {
		if v.cursor < at[v.client] {
			t.Errorf("client %d saw cursor %d after %d", v.client, v.cursor, at[v.client])
		}
		at[v.client] = v.cursor
		for key, got := range v.rows {
			want, unsure := c.last(key, v.cursor)
			switch {
			case got.verdict == want.verdict && (got.verdict == "absent" || got == want):
			case got.verdict == "ok" && unsure[got.value] && got.rev > want.rev && got.rev <= v.cursor:
			case got.verdict == "absent" && len(unsure) > 0: // one of them may be a delete
			default:
				t.Errorf("at cursor %d key %s is %+v, the log says %+v", v.cursor, key, got, want)
			}
		}
	}
}

// historySeed is the seed of what the clients of a history do, told in the test's output. HISTORY_SEED sets it; how their calls
// race stays with the machine.
func historySeed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("HISTORY_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("HISTORY_SEED: %v", err)
		}
	}
	t.Logf("HISTORY_SEED=%d", seed)
	return seed
}

// TestLinearizable: conditional writes of many clients, and reads of a fold that has caught up with the leader, are those
// of one register a key, also while connections are cut; and a snapshot is the bucket at its cursor.
func TestLinearizable(t *testing.T) {
	const clients, acts = 8, 120
	keys := []string{"a", "b", "c"}
	eachBackend(t, func(t *testing.T, b backend) {
		for _, cuts := range []int{0, 3} {
			t.Run(fmt.Sprintf("%d cuts", cuts), func(t *testing.T) {
				l := newLive(t, b, natskv.BucketConfig{})
				c := &clerks{t: t, bucket: l.bucket, tables: l.node(t, "node", startOptions{}), began: time.Now()}
				c.tables.hydrated(t)
				seed := historySeed(t)
				var done sync.WaitGroup
				for client := range clients {
					done.Go(func() { c.work(client, acts, keys, rand.New(rand.NewPCG(seed, uint64(client)))) })
				}
				c.cut(t, l, cuts, clients*acts)
				done.Wait()
				if got := linear(t, c.history); got != porcupine.Ok {
					t.Errorf("%d acts: %v", len(c.history), got)
				}
				c.checkViews(t)
				c.saysMuch(t)
				t.Logf("%d acts, %d of unknown outcome, %d views", len(c.history), c.unsure, len(c.views))
			})
		}
	})
}

// saysMuch refuses a history in which too little came to anything: an act of unknown outcome fits every specification.
func (c *clerks) saysMuch(t *testing.T) {
	t.Helper()
	got := map[string]int{}
	for _, op := range c.history {
		got[op.Input.(act).kind+" "+op.Output.(outcome).verdict]++
	}
	for _, what := range []string{
		"put ok", "create ok", "create exists", "update ok", "update conflict", "delete ok", "delete conflict", "get ok", "get absent",
	} {
		if got[what] == 0 {
			t.Errorf("there was no %q: %v", what, got)
		}
	}
	if 2*c.unsure > len(c.history) || len(c.views) == 0 {
		t.Errorf("of %d acts %d are of unknown outcome, with %d views: %v", len(c.history), c.unsure, len(c.views), got)
	}
}

// cut drops all connections a number of times, spread over the acts.
func (c *clerks) cut(t *testing.T, l *live, cuts, acts int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	ctx := bounded(t)
	for n := 1; n <= cuts; {
		select {
		case <-ctx.Done():
			t.Fatal("the clients did not come far enough to be cut off")
		case <-tick.C:
		}
		c.mu.Lock()
		far := len(c.history) >= n*acts/(cuts+1)
		c.mu.Unlock()
		if !far {
			continue
		}
		if err := l.srv.DropClients(); err != nil {
			t.Fatal(err)
		}
		n++
	}
}

// careless is a bucket that overwrites whatever is there.
type careless struct{ kv.Bucket }

func (b careless) Update(ctx context.Context, key string, value []byte, _ kv.Version, o kv.PutOptions) (kv.Version, error) {
	return b.Put(ctx, key, value, o)
}

// TestLinearizableCatches: histories that are none of a register's are refused.
func TestLinearizableCatches(t *testing.T) {
	ok := func(rev uint64, value string) outcome { return outcome{verdict: "ok", rev: rev, value: value} }
	for name, acts := range map[string][]struct {
		a act
		o outcome
	}{
		"a stale read":                  {{act{kind: "put", value: "x"}, ok(1, "")}, {act{kind: "put", value: "y"}, ok(2, "")}, {act{kind: "get"}, ok(1, "x")}},
		"a lost write":                  {{act{kind: "put", value: "x"}, ok(1, "")}, {act{kind: "get"}, outcome{verdict: "absent"}}},
		"a delete undone":               {{act{kind: "put", value: "x"}, ok(1, "")}, {act{kind: "delete", at: 1}, ok(2, "")}, {act{kind: "get"}, ok(1, "x")}},
		"two winners":                   {{act{kind: "put", value: "x"}, ok(1, "")}, {act{kind: "update", value: "y", at: 1}, ok(2, "")}, {act{kind: "update", value: "z", at: 1}, ok(3, "")}},
		"two creations":                 {{act{kind: "create", value: "x"}, ok(1, "")}, {act{kind: "create", value: "y"}, ok(2, "")}},
		"a conflict without cause":      {{act{kind: "put", value: "x"}, ok(1, "")}, {act{kind: "update", value: "y", at: 1}, outcome{verdict: "conflict"}}},
		"an update of nothing":          {{act{kind: "update", value: "x", at: 5}, ok(6, "")}},
		"exists, and does not":          {{act{kind: "create", value: "x"}, outcome{verdict: "exists"}}},
		"a revision that goes back":     {{act{kind: "put", value: "x"}, ok(7, "")}, {act{kind: "put", value: "y"}, ok(6, "")}},
		"a value at the wrong revision": {{act{kind: "put", value: "x"}, ok(1, "")}, {act{kind: "get"}, ok(2, "x")}},
	} {
		var history []porcupine.Operation
		for i, one := range acts {
			history = append(history, porcupine.Operation{Input: one.a, Call: int64(2 * i), Output: one.o, Return: int64(2*i + 1)})
		}
		if got := linear(t, history); got != porcupine.Illegal {
			t.Errorf("%s: %v", name, got)
		}
	}
	b := newLive(t, backends[0], natskv.BucketConfig{Storage: jetstream.MemoryStorage})
	c := &clerks{t: t, bucket: careless{b.bucket}, tables: b.node(t, "node", startOptions{}), began: time.Now()}
	first := c.do(0, act{kind: "put", key: "a", value: "x"}).rev
	c.do(1, act{kind: "update", key: "a", value: "y", at: first})
	c.do(2, act{kind: "update", key: "a", value: "z", at: first})
	if got := linear(t, c.history); got != porcupine.Illegal {
		t.Errorf("a bucket without a condition: %v", got)
	}
}
