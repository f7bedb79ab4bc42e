package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/typedfold/fold/client"
	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/jslog"
)

// desk is a clerk who appends by way of a producer, several batches at once.
type desk struct {
	*clerks
	id    int
	p     *client.Producer
	c     *client.Client
	token string
	began int64 // when the producer was opened
}

// open is a producer that presents the token, at the node that the clerk would ask; what is open fits, or is closed.
func (d *desk) open(ctx context.Context, token string) error {
	c := d.client(d.id)
	if d.p != nil && d.c == c && d.token == token {
		return nil
	}
	d.close()
	d.began = d.now()
	p, err := c.OpenStream(ctx, d.w.addr, client.WithFencingToken(token), client.WithMaxPause(50*time.Millisecond))
	if err == nil {
		d.p, d.c, d.token = p, c, token
	}
	return err
}

func (d *desk) close() {
	if d.p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = d.p.Close(ctx) // every ticket was waited for
	d.p = nil
}

// appends submits the acts at once and waits for all of them. It is the tail as it has seen it last.
func (d *desk) appends(acts []act, tail uint64) uint64 {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	call := d.now()
	if err := d.open(ctx, acts[0].token); err != nil {
		o := told(err)
		if o.verdict == "unknown" {
			o.verdict = "refused" // nothing was sent
		}
		d.note(d.id, acts[0], call, o)
		return tail
	}
	tickets, calls := make([]*client.Ticket, len(acts)), make([]int64, len(acts))
	for i, a := range acts {
		calls[i] = d.now()
		if a.hasMatch {
			tickets[i] = d.p.SubmitMatch(ctx, a.match, rec(a.body)...)
		} else {
			tickets[i] = d.p.Submit(ctx, rec(a.body)...)
		}
	}
	fenced := false
	for i, a := range acts {
		r, err := tickets[i].Wait(ctx)
		o := told(err)
		switch {
		case err == nil:
			o = outcome{verdict: "ok", at: r.Start.SeqNum}
			tail = o.at + 1
		case o.verdict == "missed":
			tail = max(tail, o.at)
		default:
			fenced = fenced || errors.Is(err, client.ErrFencedOut)
		}
		if o.verdict == "fenced" {
			// A producer stays superseded, also if its token is installed again, and tells of the token that it heard of.
			o.verdict, calls[i] = "superseded", d.began
		}
		d.note(d.id, a, calls[i], o)
		if o.verdict == "ok" && !a.hasMatch { // it may have been sent again, and be there twice
			d.note(d.id, a, calls[i], outcome{verdict: "perhaps"})
		}
	}
	if fenced || ctx.Err() != nil {
		d.close()
	}
	return tail
}

// sessions has clients append by way of producers, up to three batches at once, and fence and read in between.
func (c *clerks) sessions(clients, rounds int) {
	c.began, c.verdicts = time.Now(), map[string]int{}
	var wg sync.WaitGroup
	for id := range clients {
		r := rand.New(rand.NewPCG(uint64(id), 43))
		wg.Go(func() {
			d := &desk{clerks: c, id: id}
			defer d.close()
			tail := uint64(0)
			for i := range rounds {
				a := c.hear(r, fenceRace(r, id, i, tail))
				a.body = fmt.Sprintf("%d.%d", id, i)
				if a.kind != "append" {
					if o := c.do(id, a); o.verdict == "ok" {
						tail = max(tail, o.at)
					}
					continue
				}
				acts := []act{a}
				for n := range r.IntN(3) {
					b := a
					b.match += uint64(n) + 1
					b.hasMatch = b.hasMatch || r.IntN(2) == 0
					if !a.hasMatch {
						b.match = tail + uint64(n) + 1
					}
					b.body = fmt.Sprintf("%s.%d", a.body, n)
					acts = append(acts, b)
				}
				tail = d.appends(acts, tail)
			}
		})
	}
	wg.Wait()
}

// TestR18NoFalseSuccessOfSessions is TestR18NoFalseSuccess by way of producers, which send again what has no answer.
func TestR18NoFalseSuccessOfSessions(t *testing.T) {
	run(t, single.URL(), client.StreamConfig{Memory: true}, func(_ context.Context, t *testing.T, w *world) {
		c := &clerks{w: w}
		c.sessions(6, 40)
		if c.verdicts["append ok"] < 20 {
			t.Fatalf("hardly anything was appended: %v", c.verdicts)
		}
		c.judge(t, porcupine.Ok)
	})
}

// TestR18NoFalseSuccessOnReplicas is both with three copies of the log, whose leader steps down at each turn too.
func TestR18NoFalseSuccessOnReplicas(t *testing.T) {
	cluster := natstest.NewCluster(t, 3)
	urls := cluster.Servers[0].URL() + "," + cluster.Servers[1].URL() + "," + cluster.Servers[2].URL()
	for name, acts := range map[string]func(*clerks){
		"one-shots": func(c *clerks) { c.run(6, 50, fenceRace) },
		"sessions":  func(c *clerks) { c.sessions(6, 30) },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, urls, client.StreamConfig{Replicas: 3, Memory: true}, func(_ context.Context, t *testing.T, w *world) {
				a, err := nova.ParseAddr(w.addr)
				if err != nil {
					t.Fatal(err)
				}
				c := &clerks{w: w, stepDown: func() {
					if err := cluster.StepDown(jslog.StreamName(a)); err != nil {
						t.Log(err)
					}
				}}
				acts(c)
				if c.verdicts["append ok"] < 20 {
					t.Fatalf("hardly anything was appended: %v", c.verdicts)
				}
				c.judge(t, porcupine.Ok)
			})
		})
	}
}
