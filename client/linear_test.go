package client_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/typedfold/fold/client"
)

// act is one call of a client on the stream.
type act struct {
	kind     string // append, read, tail, token, fence
	match    uint64
	hasMatch bool
	token    string // presented, or to be installed
	body     string
}

// outcome is what came of it. An act whose outcome nobody knows may take effect at any later time, or never.
type outcome struct {
	verdict string // ok, missed, fenced, superseded, refused, unknown; perhaps is another attempt of what is ok
	at      uint64 // start of an append, tail of a fence or of a read
	hash    uint64 // of all that a read saw
	token   string // installed
}

// stream is the state of the sequential specification; hash chains all bodies.
type stream struct {
	tail, hash uint64
	token      string
}

func chain(hash uint64, body string) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d %s", hash, body)
	return h.Sum64()
}

// step is the states that follow. A miss may be spurious: a leader that was superseded tells it without asking the log, at the
// tail and under the token that it knows, and nothing was written. A refusal for the token must be justified, and a success
// is strict.
func (s stream) step(a act, o outcome) []stream {
	same := []stream{s}
	only := func(ok bool) []stream {
		if ok {
			return same
		}
		return nil
	}
	switch a.kind {
	case "append":
		admitted := a.token == s.token && (!a.hasMatch || a.match == s.tail)
		next := stream{tail: s.tail + 1, hash: chain(s.hash, a.body), token: s.token}
		switch o.verdict {
		case "ok":
			if !admitted || o.at != s.tail {
				return nil
			}
			return []stream{next}
		case "missed":
			return only(a.hasMatch)
		case "fenced":
			return only(o.token == s.token && a.token != s.token)
		case "superseded":
			return only(o.token == s.token)
		case "unknown", "perhaps":
			if admitted {
				return []stream{s, next}
			}
		}
		return same
	case "fence":
		next := stream{tail: s.tail, hash: s.hash, token: a.token}
		switch o.verdict {
		case "ok":
			if o.at != s.tail {
				return nil
			}
			return []stream{next}
		case "unknown":
			return []stream{s, next}
		}
		return same
	}
	if o.verdict != "ok" {
		return same
	}
	switch a.kind {
	case "tail":
		return only(o.at == s.tail)
	case "token":
		return only(o.token == s.token)
	default:
		return only(o.at == s.tail && o.hash == s.hash)
	}
}

var specification = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{stream{}} },
	Step: func(state, input, output any) []any {
		var next []any
		for _, s := range state.(stream).step(input.(act), output.(outcome)) {
			next = append(next, s)
		}
		return next
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
	DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
}).ToModel()

// clerks are clients that note what they did.
type clerks struct {
	w     *world
	began time.Time
	// lie makes the outcome of an append that was refused for its token; nil is none.
	lie func(ctx context.Context, c *client.Client, a act) outcome
	// stepDown has the leader of the log's replicas step down; nil is none.
	stepDown func()

	mu       sync.Mutex
	history  []porcupine.Operation
	verdicts map[string]int
	cut      int    // which node is cut off, from 1 on; 0 is none
	turns    int    // how often one was cut off, or came back
	heard    string // the token of the fence that returned last
}

const (
	// every so many calls a node is cut off from the log, or comes back.
	every = 40
	// maxUnknown is with how many unknown outcomes no node is cut off any more: each may take effect at any later time, which
	// makes the search long.
	maxUnknown = 10
)

func (c *clerks) do(id int, a act) outcome {
	call := c.now()
	o := c.perform(c.client(id), a)
	c.note(id, a, call, o)
	return o
}

func (c *clerks) now() int64 { return time.Since(c.began).Nanoseconds() }

// client is the one that a clerk asks now.
func (c *clerks) client(id int) *client.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	node := id % 2
	if c.cut == node+1 { // whoever finds its server away asks the other one
		node = 1 - node
	}
	if len(c.history)%every == id { // a few still ask the one that is cut off
		node = id % 2
	}
	return []*client.Client{c.w.a, c.w.b}[node]
}

// note writes down what came of an act, and cuts a node off when it is time to.
func (c *clerks) note(id int, a act, call int64, o outcome) {
	returned := c.now()
	if o.verdict == "unknown" || o.verdict == "perhaps" {
		returned = math.MaxInt64
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.verdicts[a.kind+" "+o.verdict]++
	if a.kind == "fence" && o.verdict == "ok" {
		c.heard = a.token
	}
	c.history = append(c.history, porcupine.Operation{ClientId: id, Input: a, Call: call, Output: o, Return: returned})
	unknown := c.verdicts["append unknown"] + c.verdicts["fence unknown"]
	if len(c.history)%every == 0 || c.cut != 0 && unknown >= maxUnknown {
		c.turn(unknown)
	}
}

// hear has an append, mostly, present the token that the clerks heard of last.
func (c *clerks) hear(r *rand.Rand, a act) act {
	if a.kind != "append" || r.IntN(3) == 0 {
		return a
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a.token = c.heard
	return a
}

func (c *clerks) turn(unknown int) {
	c.turns++
	if c.stepDown != nil && unknown < maxUnknown {
		c.stepDown()
	}
	if c.cut != 0 {
		c.w.nodes[c.cut-1].heal()
		c.cut = 0
		return
	}
	if unknown >= maxUnknown {
		return
	}
	c.cut = 1 + c.turns/2%2
	c.w.nodes[c.cut-1].isolate()
}

func (c *clerks) perform(cl *client.Client, a act) outcome {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	switch a.kind {
	case "append":
		var r *client.AppendResult
		var err error
		if a.hasMatch {
			r, err = cl.Presenting(a.token).AppendMatch(ctx, c.w.addr, a.match, rec(a.body)...)
		} else {
			r, err = cl.Presenting(a.token).Append(ctx, c.w.addr, rec(a.body)...)
		}
		if err == nil {
			return outcome{verdict: "ok", at: r.Start.SeqNum}
		}
		if c.lie != nil && errors.Is(err, client.ErrFencedOut) {
			return c.lie(ctx, cl, a)
		}
		return told(err)
	case "fence":
		tail, err := cl.Fence(ctx, c.w.addr, a.token)
		if err == nil {
			return outcome{verdict: "ok", at: tail.SeqNum}
		}
		return told(err)
	case "tail":
		tail, err := cl.Tail(ctx, c.w.addr)
		if err == nil {
			return outcome{verdict: "ok", at: tail.SeqNum}
		}
	case "token":
		token, err := cl.FencingToken(ctx, c.w.addr)
		if err == nil {
			return outcome{verdict: "ok", token: token}
		}
	case "read":
		return c.read(cl, func(string) {})
	}
	return outcome{verdict: "refused"}
}

// read reads the whole stream, and hands out each body.
func (c *clerks) read(cl *client.Client, each func(body string)) outcome {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	o := outcome{verdict: "ok"}
	for rec, err := range cl.Read(ctx, c.w.addr, client.ReadOptions{}) {
		if err != nil || rec.SeqNum != o.at {
			return outcome{verdict: "refused"}
		}
		o.at++
		o.hash = chain(o.hash, string(rec.Body))
		each(string(rec.Body))
	}
	return o
}

func told(err error) outcome {
	var seq *client.SequenceError
	var fenced *client.FenceError
	switch {
	case errors.As(err, &seq) && !seq.Resent:
		return outcome{verdict: "missed", at: seq.Tail.SeqNum}
	case errors.As(err, &fenced) && !fenced.Resent:
		return outcome{verdict: "fenced", token: fenced.Installed}
	case errors.Is(err, client.ErrUnavailable):
		return outcome{verdict: "refused"}
	}
	return outcome{verdict: "unknown"}
}

// history has clients do what choose says, each up to so many times, while nodes are cut off in turn.
func (c *clerks) run(clients, ops int, choose func(r *rand.Rand, id, i int, tail uint64) act) {
	c.began, c.verdicts = time.Now(), map[string]int{}
	var wg sync.WaitGroup
	for id := range clients {
		r := rand.New(rand.NewPCG(uint64(id), 42))
		wg.Go(func() {
			tail := uint64(0)
			for i := range ops {
				a := c.hear(r, choose(r, id, i, tail))
				a.body = fmt.Sprintf("%d.%d", id, i)
				o := c.do(id, a)
				switch {
				case o.verdict == "ok" && a.kind == "append":
					tail = o.at + 1
				case o.verdict == "ok" || o.verdict == "missed":
					tail = max(tail, o.at)
				}
			}
		})
	}
	wg.Wait()
}

// look heals the nodes and reads the whole stream: where each body is.
func (c *clerks) look(t *testing.T) map[string][]uint64 {
	t.Helper()
	for _, n := range c.w.nodes {
		n.heal()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for ; ctx.Err() == nil; <-tick.C {
		at, next := map[string][]uint64{}, uint64(0)
		call := c.now()
		o := c.read(c.w.b, func(body string) {
			at[body] = append(at[body], next)
			next++
		})
		if o.verdict == "ok" {
			c.note(0, act{kind: "read"}, call, o)
			return at
		}
	}
	t.Fatal("the stream can't be read after the nodes are healed")
	return nil
}

// settle gives the appends whose outcome nobody was told the one that the stream shows, so that the search has fewer to try.
// One that is not there has not taken effect before the last read, and nothing came after that.
func (c *clerks) settle(at map[string][]uint64) []porcupine.Operation {
	told := map[string]uint64{}
	for _, op := range c.history {
		if a, o := op.Input.(act), op.Output.(outcome); a.kind == "append" && o.verdict == "ok" {
			told[a.body] = o.at
		}
	}
	var all []porcupine.Operation
	for _, op := range c.history {
		a, o := op.Input.(act), op.Output.(outcome)
		if a.kind != "append" || o.verdict != "unknown" && o.verdict != "perhaps" {
			all = append(all, op)
			continue
		}
		for _, n := range at[a.body] {
			if first, ok := told[a.body]; !ok || first != n {
				op.Output = outcome{verdict: "ok", at: n}
				all = append(all, op)
			}
		}
	}
	return all
}

func (c *clerks) judge(t *testing.T, want porcupine.CheckResult) {
	t.Helper()
	t.Log(c.verdicts, time.Since(c.began).Round(time.Millisecond))
	history := c.settle(c.look(t))
	if got := porcupine.CheckOperationsTimeout(specification, history, time.Minute); got != want {
		t.Fatalf("the history is %s, not %s: %s", got, want, explain(history))
	}
}

func regular(r *rand.Rand, _, _ int, tail uint64) act {
	switch r.IntN(10) {
	case 0:
		return act{kind: "read"}
	case 1:
		return act{kind: "tail"}
	case 2, 3:
		return act{kind: "append", hasMatch: true, match: tail}
	default:
		return act{kind: "append"}
	}
}

func matchRace(r *rand.Rand, _, _ int, tail uint64) act {
	if r.IntN(12) == 0 {
		return act{kind: "read"}
	}
	return act{kind: "append", hasMatch: true, match: tail}
}

// fenceRace has each client install its token now and then, and present it otherwise.
func fenceRace(r *rand.Rand, id, i int, tail uint64) act {
	mine := fmt.Sprint("token", id)
	switch n := r.IntN(20); {
	case n == 0 || i == 0:
		return act{kind: "fence", token: mine}
	case n == 1:
		return act{kind: "token"}
	case n == 2:
		return act{kind: "read"}
	case n == 3:
		return act{kind: "append"} // presents nothing
	case n == 4:
		return act{kind: "fence"}
	case n < 10:
		return act{kind: "append", token: mine, hasMatch: true, match: tail}
	default:
		return act{kind: "append", token: mine}
	}
}

// TestR18NoFalseSuccess checks histories of clients, while leaders are cut off from the log, against a sequential stream.
func TestR18NoFalseSuccess(t *testing.T) {
	for name, choose := range map[string]func(*rand.Rand, int, int, uint64) act{"regular": regular, "match race": matchRace, "fence race": fenceRace} {
		t.Run(name, func(t *testing.T) {
			run(t, single.URL(), client.StreamConfig{Memory: true}, func(_ context.Context, t *testing.T, w *world) {
				c := &clerks{w: w}
				c.run(8, 60, choose)
				if c.verdicts["append ok"] < 20 {
					t.Fatalf("hardly anything was appended: %v", c.verdicts)
				}
				c.judge(t, porcupine.Ok)
			})
		})
	}
}

// TestR18ALieIsFound has clients that were locked out append under the token that stands, as a server would let them that
// does not check.
func TestR18ALieIsFound(t *testing.T) {
	run(t, single.URL(), client.StreamConfig{Memory: true}, func(_ context.Context, t *testing.T, w *world) {
		c := &clerks{w: w, lie: func(ctx context.Context, c *client.Client, a act) outcome {
			token, err := c.FencingToken(ctx, w.addr)
			if err != nil {
				return outcome{verdict: "refused"}
			}
			r, err := c.Presenting(token).Append(ctx, w.addr, rec(a.body)...)
			if err != nil {
				return told(err)
			}
			return outcome{verdict: "ok", at: r.Start.SeqNum}
		}}
		c.run(4, 40, fenceRace)
		c.judge(t, porcupine.Illegal)
	})
}
