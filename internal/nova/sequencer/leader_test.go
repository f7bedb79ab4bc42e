package sequencer

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/frame"
	"github.com/typedfold/fold/internal/nova/jslog"
	"github.com/typedfold/fold/runtime/protocol"
)

func newLog(t testing.TB, c jslog.Config) *jslog.Log {
	t.Helper()
	s := natstest.New(t, natstest.Options{})
	nc, err := nats.Connect(s.URL(), nats.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	l, err := jslog.Create(t.Context(), nc, js, nova.Addr{Namespace: "demo", Stream: "events"}, c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func start(t *testing.T, l *jslog.Log, node string) *Leader {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	leader, err := Start(ctx, OfJetStream(l), Options{Node: node})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := leader.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return leader
}

func bodies(texts ...string) []nova.Record {
	var records []nova.Record
	for _, text := range texts {
		records = append(records, nova.Record{Body: []byte(text)})
	}
	return records
}

// frames are all frames of the log, checked to follow each other.
func frames(t *testing.T, l *jslog.Log) []frame.Frame {
	t.Helper()
	var all []frame.Frame
	next := uint64(0)
	for seq := uint64(1); ; {
		s, err := l.From(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		if s.Seq == 0 {
			return all
		}
		f, err := frame.Parse(s.Payload)
		if err != nil {
			t.Fatal(err)
		}
		if f.State.Next != next {
			t.Fatalf("the frame at log sequence %d begins at %d, not at %d", s.Seq, f.State.Next, next)
		}
		next = f.After().Next
		for _, b := range f.Batches {
			if b.Token != f.State.Token {
				t.Errorf("a batch that presents %q is in the log under %q", b.Token, f.State.Token)
			}
		}
		all = append(all, f)
		seq = s.Seq + 1
	}
}

func TestLeader(t *testing.T) {
	for _, memory := range []bool{true, false} {
		t.Run(fmt.Sprintf("memory=%v", memory), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			log := newLog(t, jslog.Config{Memory: memory})
			l := start(t, log, "one")

			r, err := l.Append(ctx, Append{Records: bodies("a", "b")})
			if err != nil || r.Start.SeqNum != 0 || r.End.SeqNum != 2 || r.Tail.SeqNum != 2 {
				t.Fatalf("%+v, %v", r, err)
			}
			_, err = l.Append(ctx, Append{Append: protocol.Append{HasMatch: true, Match: 1}, Records: bodies("x")})
			if miss := new(MissedError); !errors.As(err, &miss) || miss.Tail.SeqNum != 2 {
				t.Fatalf("a miss: %v", err)
			}
			tail, err := l.Fence(ctx, "gen-1")
			if err != nil || tail.SeqNum != 2 {
				t.Fatalf("fence: %+v, %v", tail, err)
			}
			_, err = l.Append(ctx, Append{Records: bodies("x")})
			if out := new(FencedError); !errors.As(err, &out) || out.Installed != "gen-1" {
				t.Fatalf("a writer without token: %v", err)
			}
			r, err = l.Append(ctx, Append{Append: protocol.Append{Token: "gen-1", HasMatch: true, Match: 2}, Records: bodies("c")})
			if err != nil || r.Start.SeqNum != 2 {
				t.Fatalf("%+v, %v", r, err)
			}

			two := start(t, log, "two")
			if s, err := two.Stands(ctx); err != nil || s.Token != "gen-1" || s.Tail.SeqNum != 3 || s.Fence != 1 {
				t.Fatalf("the next leader stands at %+v, %v", s, err)
			}
			_, err = l.Append(ctx, Append{Append: protocol.Append{Token: "gen-1"}, Records: bodies("stale")})
			if away := new(UnavailableError); !errors.As(err, &away) || away.Indefinite {
				t.Fatalf("the first leader after the second: %v", err)
			}
			if r, err = two.Append(ctx, Append{Append: protocol.Append{Token: "gen-1"}, Records: bodies("d")}); err != nil || r.Start.SeqNum != 3 {
				t.Fatalf("%+v, %v", r, err)
			}
			frames(t, log)
		})
	}
}

func TestPipeline(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	log := newLog(t, jslog.Config{Memory: true})
	l := start(t, log, "one")
	const n = 5000
	results := make(chan Result, n)
	for i := range n {
		a := Append{Append: protocol.Append{HasMatch: true, Match: uint64(i)}, Records: bodies(fmt.Sprint(i))}
		if err := l.Submit(ctx, a, func(r Result) { results <- r }); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		r := <-results
		if r.Err != nil || r.Start.SeqNum != uint64(i) {
			t.Fatalf("batch %d: %+v", i, r)
		}
	}
	t.Logf("%d batches in %d frames", n, len(frames(t, log)))
}

// TestReplicas: on three servers, with the leader of the log stepping down again and again, every batch has one fate, and
// the log holds what was acknowledged.
func TestReplicas(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := natstest.NewCluster(t, 3)
	nc, err := c.Connect(0, nats.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	addr := nova.Addr{Namespace: "demo", Stream: "events"}
	log, err := jslog.Create(ctx, nc, js, addr, jslog.Config{Replicas: 3, Memory: true})
	if err != nil {
		t.Fatal(err)
	}
	l := start(t, log, "one")
	acked := map[string]uint64{}
	unknown, misses := 0, 0
	for round := range 20 {
		const n = 200
		results := make([]chan Result, n)
		for i := range n {
			results[i] = make(chan Result, 1)
			a := Append{Records: bodies(fmt.Sprintf("%d.%d", round, i))}
			if err := l.Submit(ctx, a, func(r Result) { results[i] <- r }); err != nil {
				t.Fatal(err)
			}
			if i == n/2 {
				if err := c.StepDown(jslog.StreamName(addr)); err != nil {
					t.Log(err)
				}
			}
		}
		for i := range n {
			r := <-results[i]
			var away *UnavailableError
			switch {
			case r.Err == nil:
				acked[fmt.Sprintf("%d.%d", round, i)] = r.Start.SeqNum
			case errors.As(r.Err, &away) && away.Indefinite:
				unknown++
			default:
				misses++
			}
		}
	}
	t.Logf("%d acknowledged, %d unknown, %d refused; leader: %v", len(acked), unknown, misses, l.Err())
	held := map[string]uint64{}
	for _, f := range frames(t, log) {
		next := f.State.Next
		for _, b := range f.Batches {
			for _, r := range b.Records {
				if at, twice := held[string(r.Body)]; twice {
					t.Errorf("%s is in the log at %d and at %d", r.Body, at, next)
				}
				held[string(r.Body)] = next
				next++
			}
		}
	}
	for body, at := range acked {
		if got, ok := held[body]; !ok || got != at {
			t.Errorf("%s was acknowledged at %d; in the log: %v at %d", body, at, ok, got)
		}
	}
	if len(acked) < 2000 {
		t.Errorf("only %d of 4000 batches were acknowledged", len(acked))
	}
}
