package sequencer

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/internal/nova/frame"
	"github.com/typedfold/fold/internal/nova/jslog"
)

// TestLogThatLostItsFrames: the servers of a cluster make a stream in memory anew, empty and with the same settings, when
// they were restarted. It is damaged, and its numbers do not begin again.
func TestLogThatLostItsFrames(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := natstest.NewCluster(t, 3)
	for _, replicas := range []int{1, 3} {
		nc, js := join(t, c)
		log, err := jslog.Create(ctx, nc, js, addr, jslog.Config{Memory: true, Replicas: replicas})
		if err != nil {
			t.Fatal(err)
		}
		l, err := Start(ctx, OfJetStream(log), Options{Node: "one"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Append(ctx, Append{Records: bodies("a", "b", "c")}); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Fence(ctx, "k"); err != nil {
			t.Fatal(err)
		}
		if err := l.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		nc.Close()
		for _, s := range c.Servers {
			s.Stop()
		}
		restart(t, c)
		nc, js = join(t, c)
		log, err = open(ctx, nc, js)
		if err != nil {
			t.Fatal(err)
		}
		if last, err := log.Last(ctx); err != nil || last.Seq != 0 {
			t.Fatalf("the log has lost nothing: %+v, %v", last, err)
		}
		for _, log := range []*jslog.Log{log, again(ctx, t, nc, js)} {
			if _, err := Start(ctx, OfJetStream(log), Options{Node: "two", AckTimeout: time.Second}); !errors.Is(err, jslog.ErrDamaged) {
				t.Errorf("%d replicas: a leader of a log that has lost its frames: %v", replicas, err)
			}
		}
		if last, err := log.Last(ctx); err != nil || last.Seq != 0 {
			t.Errorf("%d replicas: it has a frame again: %+v, %v", replicas, last, err)
		}
		if err := jslog.Delete(ctx, js, addr); err != nil {
			t.Fatal(err)
		}
	}
}

func restart(t *testing.T, c *natstest.Cluster) {
	t.Helper()
	errs := make(chan error, len(c.Servers))
	for _, s := range c.Servers {
		go func() { errs <- s.Restart() }()
	}
	for range c.Servers {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Wait(30 * time.Second); err != nil {
		t.Fatal(err)
	}
}

func join(t *testing.T, c *natstest.Cluster) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := c.Connect(0, nats.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return nc, js
}

// open opens the stream's log as soon as it has a leader.
func open(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) (log *jslog.Log, err error) {
	for {
		asking, cancel := context.WithTimeout(ctx, 2*time.Second)
		log, err = jslog.Open(asking, nc, js, addr)
		if err == nil {
			_, err = log.Last(asking)
		}
		cancel()
		if err == nil || ctx.Err() != nil {
			return log, err
		}
	}
}

func again(ctx context.Context, t *testing.T, nc *nats.Conn, js jetstream.JetStream) *jslog.Log {
	t.Helper()
	log, err := jslog.Open(ctx, nc, js, addr)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// TestCreationCutOff: a stream whose creation ended before it had its first frame, or before that was noted, is begun by the
// first who leads it, once.
func TestCreationCutOff(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, framed := range []bool{false, true} {
		nc, js := connect(t)
		if _, err := jslog.Create(ctx, nc, js, addr, jslog.Config{}); err != nil {
			t.Fatal(err)
		}
		s, err := js.Stream(ctx, jslog.StreamName(addr))
		if err != nil {
			t.Fatal(err)
		}
		config := s.CachedInfo().Config
		if !config.DenyDelete {
			t.Fatal("its creation did not note that it has begun")
		}
		// What is there after JetStream has made the stream.
		if err := jslog.Delete(ctx, js, addr); err != nil {
			t.Fatal(err)
		}
		config.DenyDelete = false
		if _, err := js.CreateStream(ctx, config); err != nil {
			t.Fatal(err)
		}
		if framed {
			first, err := nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: "nova.demo.events.r", Data: frame.Append(nil, &frame.Frame{})})
			if err != nil {
				t.Fatal(string(first.Data), err)
			}
		}
		stale := again(ctx, t, nc, js)
		log := again(ctx, t, nc, js)
		for i, log := range []*jslog.Log{log, stale, again(ctx, t, nc, js)} {
			if begun, err := log.Begun(ctx); err != nil || begun != (i > 0) {
				t.Errorf("log %d: has begun: %v, %v", i, begun, err)
			}
			if r, err := start(t, log, string(rune('a'+i))).Append(ctx, Append{Records: bodies("x")}); err != nil || r.Start.SeqNum != uint64(i) {
				t.Errorf("%+v, %v", r, err)
			}
			if err := log.Begin(ctx); err != nil {
				t.Errorf("a log that has begun: %v", err)
			}
		}
		if all := frames(t, log); all[0].Epoch != 0 || slices.ContainsFunc(all[1:], func(f frame.Frame) bool { return f.Epoch == 0 }) {
			t.Errorf("the log does not begin once: %+v", all)
		}
	}
}

// TestBeginIsNotTakenBack: a node that believes that a log has not begun is told by JetStream that it has, and writes no frame.
func TestBeginIsNotTakenBack(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	nc, js := connect(t)
	log, err := jslog.Create(ctx, nc, js, addr, jslog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(ctx, jslog.StreamName(addr))
	if err != nil {
		t.Fatal(err)
	}
	config := s.CachedInfo().Config
	config.DenyDelete = false
	if _, err := js.UpdateStream(ctx, config); err == nil {
		t.Error("JetStream takes it back")
	}
	if begun, err := log.Begun(ctx); err != nil || !begun {
		t.Errorf("%v, %v", begun, err)
	}
}
