package virtual

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/jslog"
	plane "github.com/typedfold/fold/internal/nova/node"
	"github.com/typedfold/fold/internal/nova/reader"
	"github.com/typedfold/fold/internal/nova/sequencer"
)

var events = nova.Addr{Namespace: "demo", Stream: "events"}

// streamNode is a node of the stream plane, whose end the test waits for.
func streamNode(t *testing.T, h *host, seed uint64) (*plane.Node, func()) {
	t.Helper()
	nc, err := nats.Connect("nats://127.0.0.1:4222", nats.ReconnectBufSize(-1),
		nats.SetCustomDialer(&line{host: h, random: rand.New(rand.NewPCG(seed, 1))}))
	must(t, err)
	js, err := jetstream.New(nc)
	must(t, err)
	n, err := plane.New(nc, js, plane.Options{Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	return n, func() {
		must(t, n.Close(bounded(t)))
		nc.Close()
	}
}

// TestAFenceOutlastsTime is R23: a refusal holds until the next Fence, over an hour in which retention removes every record
// but those of the last frame, over a trim, and over the end of every node and server.
func TestAFenceOutlastsTime(t *testing.T) {
	dir := t.TempDir()
	bubble(t, func(t *testing.T) {
		h := &host{dir: dir}
		h.start(t)
		a, endA := streamNode(t, h, 1)
		b, endB := streamNode(t, h, 2)
		must(t, a.Create(bounded(t), events, jslog.Config{Retention: jslog.Retention{MaxAge: 30 * time.Minute}}))
		s := func(n *plane.Node) *plane.Stream {
			t.Helper()
			s, err := n.Stream(bounded(t), events)
			must(t, err)
			return s
		}
		append := func(n *plane.Node, token string) (sequencer.Result, error) {
			one := sequencer.Append{Records: []nova.Record{{Body: []byte(token)}}}
			one.Token = token
			return s(n).Append(bounded(t), one)
		}
		_, err := s(a).Fence(bounded(t), "old")
		must(t, err)
		idle, err := s(b).OpenSession(bounded(t), "old")
		must(t, err)
		_, err = s(b).Fence(bounded(t), "t")
		must(t, err)
		next := uint64(0)
		stands := func(when string, nodes ...*plane.Node) {
			t.Helper()
			for _, n := range nodes {
				for _, token := range []string{"", "old", "other"} {
					var out *sequencer.FencedError
					if _, err := append(n, token); !errors.As(err, &out) || out.Installed != "t" {
						t.Errorf("%s, %q is presented: %v", when, token, err)
					}
					if _, err := s(n).OpenSession(bounded(t), token); !errors.As(err, &out) {
						t.Errorf("%s, %q opens a session: %v", when, token, err)
					}
				}
				r, err := append(n, "t")
				if err != nil || r.Start.SeqNum != next {
					t.Fatalf("%s: %+v, %v; the next number is %d", when, r, err, next)
				}
				next++
			}
		}
		stands("at first", a, b)
		for range 12 {
			time.Sleep(5 * time.Minute)
			stands("later", a, b)
		}
		time.Sleep(time.Hour) // nobody asks anything
		first, _, err := reader.Bounds(bounded(t), s(a).Log())
		if err != nil || first.SeqNum < next-2 {
			t.Fatalf("retention leaves the records from %d on, and the tail is %d: %v", first.SeqNum, next, err)
		}
		stands("after retention", a, b)
		_, err = s(b).Trim(bounded(t), next)
		must(t, err)
		stands("after a trim", a, b)
		if err := idle.Err(); !errors.As(err, new(*sequencer.FencedError)) {
			t.Errorf("a session of before: %v", err)
		}
		idle.Close()
		endA()
		endB()
		h.stop()
		h.start(t)
		c, endC := streamNode(t, h, 3)
		stands("after every end", c)
		time.Sleep(time.Hour)
		stands("an hour after that", c)
		if st, err := s(c).Stands(bounded(t)); err != nil || st.Token != "t" {
			t.Errorf("%+v, %v", st, err)
		}
		endC()
		h.stop()
	})
}
