package jslog

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/frame"
	"github.com/typedfold/fold/runtime/protocol"
)

// What each check of the log is for: simpler ones are tried against a real server, and go wrong.

// rival is a log with a leader whose messages a test sends one by one.
type rival struct {
	t       *testing.T
	ctx     context.Context
	log     *Log
	sender  *Sender
	replies chan Reply
	epoch   Epoch
	last    uint64
}

func newRival(t *testing.T, nc *nats.Conn, c Config) *rival {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	r := &rival{t: t, ctx: ctx, replies: make(chan Reply, 1000)}
	if r.log, err = Create(ctx, nc, js, nova.Addr{Namespace: "demo", Stream: "events"}, c); err != nil {
		t.Fatal(err)
	}
	if r.sender, err = r.log.Sender("one", func(reply Reply) { r.replies <- reply }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.sender.Close() })
	r.takeOver()
	r.open("one")
	return r
}

func connect(t *testing.T, dial func(...nats.Option) (*nats.Conn, error)) *nats.Conn {
	t.Helper()
	nc, err := dial(nats.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func (r *rival) takeOver() {
	r.t.Helper()
	var err error
	if r.epoch, err = r.log.TakeOver(r.ctx, "one"); err != nil {
		r.t.Fatal(err)
	}
	r.last = r.epoch.Number
}

// open stores an opening frame of the newest epoch.
func (r *rival) open(node string) uint64 {
	r.t.Helper()
	newest, err := r.log.Last(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	seq, err := r.log.LastSeq(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	reply := r.send(Message{Opens: true, Control: newest.Seq, Last: seq, Payload: framed(seq)}, nil)
	if reply.Kind != protocol.FrameStored {
		r.t.Fatalf("opening frame of %s: %v", node, reply.Err)
	}
	if r.last == seq {
		r.last = reply.Seq
	}
	return reply.Seq
}

func framed(epoch uint64) []byte { return frame.Append(nil, &frame.Frame{Epoch: epoch}) }

// send sends a message, changed by the test, and waits for its answer.
func (r *rival) send(m Message, change func(*nats.Msg)) Reply {
	r.t.Helper()
	r.publish(m, change)
	return r.answer()
}

func (r *rival) publish(m Message, change func(*nats.Msg)) {
	r.t.Helper()
	msg := r.sender.message(1, m)
	if change != nil {
		change(msg)
	}
	if err := r.log.nc.PublishMsg(msg); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rival) answer() Reply {
	r.t.Helper()
	select {
	case reply := <-r.replies:
		return reply
	case <-r.ctx.Done():
		r.t.Fatal("no answer")
		return Reply{}
	}
}

func uncheckedEpoch(m *nats.Msg) {
	m.Header.Del(hdrSubject)
	m.Header.Del(hdrSubjectOf)
}

// TestChainAlone: a frame whose chain check matches by accident after a takeover is stored if the epoch is not checked.
// The first frame of two is lost, and the other node's control message is where it was to be.
func TestChainAlone(t *testing.T) {
	for _, unchecked := range []bool{false, true} {
		r := newRival(t, connect(t, natstest.New(t, natstest.Options{}).Connect), Config{Memory: true})
		second := Message{Control: r.epoch.Control[0], Last: r.last + 1, Payload: framed(r.epoch.Number)}
		other, err := r.log.TakeOver(r.ctx, "two")
		if err != nil {
			t.Fatal(err)
		}
		var change func(*nats.Msg)
		if unchecked {
			change = uncheckedEpoch
		}
		reply := r.send(second, change)
		if stored := reply.Kind == protocol.FrameStored; stored != unchecked {
			t.Errorf("epoch unchecked %v: %+v behind the takeover at %d", unchecked, reply, other.Number)
		}
		if unchecked && reply.Seq != other.Number+1 {
			t.Errorf("the late frame is at %d, the takeover at %d", reply.Seq, other.Number)
		}
	}
}

// TestRenewalOnControl: were a renewal written over the control subject, its sequence could be that of another node's
// takeover, and a frame two behind it, sent before either was answered, would name a control message and a chain that
// are both there, behind the other node's opening frame.
func TestRenewalOnControl(t *testing.T) {
	for _, over := range []bool{false, true} {
		r := newRival(t, connect(t, natstest.New(t, natstest.Options{}).Connect), Config{Memory: true})
		control := r.epoch.Control[0]
		if over {
			control = r.last + 1 // the renewal's place; it is late, like the frame at last+2
		}
		third := Message{Control: control, Last: r.last + 2, Payload: framed(r.epoch.Number)}
		if _, err := r.log.TakeOver(r.ctx, "two"); err != nil {
			t.Fatal(err)
		}
		opened := r.open("two")
		reply := r.send(third, nil)
		if stored := reply.Kind == protocol.FrameStored; stored != over || over && reply.Seq != opened+1 {
			t.Errorf("renewal over the control message %v: %+v behind the opening frame at %d", over, reply, opened)
		}
	}
	// As it is: a renewal is proved by the same checks, moves the chain, and leaves the control message alone.
	r := newRival(t, connect(t, natstest.New(t, natstest.Options{}).Connect), Config{Memory: true})
	for range 3 {
		reply := r.send(Message{Renews: true, Control: r.epoch.Control[0], Last: r.last}, nil)
		if reply.Kind != protocol.FrameStored || reply.Seq != r.last+1 {
			t.Fatalf("renewal: %+v", reply)
		}
		r.last++
		if reply = r.send(Message{Control: r.epoch.Control[0], Last: r.last, Payload: framed(r.epoch.Number)}, nil); reply.Kind != protocol.FrameStored {
			t.Fatalf("a frame behind a renewal: %+v", reply)
		}
		r.last++
	}
	if now, err := r.log.Leader(r.ctx); err != nil || now.Node != "one" || now.Number != r.epoch.Number {
		t.Errorf("the log names %+v, %v", now, err)
	}
	if _, err := r.log.TakeOver(r.ctx, "two"); err != nil {
		t.Fatal(err)
	}
	if reply := r.send(Message{Renews: true, Control: r.epoch.Control[0], Last: r.last + 1}, nil); reply.Kind != protocol.FrameRefused {
		t.Errorf("a renewal of a replaced leader: %+v", reply)
	}
}

// conditional makes a takeover one that has to win a race: the log's last sequence, or the control messages, are those
// that were read.
func conditional(messages []*nats.Msg, last uint64, control []uint64) {
	if control == nil {
		messages[0].Header[hdrLast] = []string{strconv.FormatUint(last, 10)}
		return
	}
	for i, m := range messages {
		m.Header[hdrSubject] = []string{strconv.FormatUint(control[i], 10)}
	}
}

// TestConditionalTakeover: a takeover that expects the log as it was read never comes through while a leader writes; the
// unconditional one does at once.
func TestConditionalTakeover(t *testing.T) {
	r := newRival(t, connect(t, natstest.New(t, natstest.Options{}).Connect), Config{Memory: true})
	for round := range 50 {
		read, err := r.log.LastSeq(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if reply := r.send(Message{Control: r.epoch.Control[0], Last: r.last, Payload: framed(r.epoch.Number)}, nil); reply.Kind != protocol.FrameStored {
			t.Fatalf("frame: %v", reply.Err)
		}
		r.last++
		messages, err := r.log.takeover("two")
		if err != nil {
			t.Fatal(err)
		}
		conditional(messages, read, nil)
		reply, err := r.log.nc.RequestMsgWithContext(r.ctx, messages[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseAck(reply); !errors.Is(err, ErrRefused) {
			t.Fatalf("round %d: a conditional takeover: %v", round, err)
		}
	}
	if now, err := r.log.TakeOver(r.ctx, "two"); err != nil || now.Number != r.last+1 {
		t.Errorf("an unconditional takeover: %+v, %v", now, err)
	}
}

// TestReplicated: what goes wrong only while messages are proposed and not yet applied. All messages of a round are sent
// on one connection without a pause, so they meet in most rounds; a round proves something only once.
func TestReplicated(t *testing.T) {
	c := natstest.NewCluster(t, 3)
	nc := connect(t, func(o ...nats.Option) (*nats.Conn, error) { return c.Connect(0, o...) })
	r := newRival(t, nc, Config{Replicas: 3, Memory: true, Window: 4})
	inbox, err := nc.SubscribeSync(nats.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	// takeover sends one, and what follows it at once, and waits for its answer.
	takeover := func(control []uint64, follow func()) error {
		messages, err := r.log.takeover("two")
		if err != nil {
			t.Fatal(err)
		}
		if control != nil {
			conditional(messages, 0, control)
		}
		messages[len(messages)-1].Reply = inbox.Subject
		for _, m := range messages {
			if err := nc.PublishMsg(m); err != nil {
				t.Fatal(err)
			}
		}
		if follow != nil {
			follow()
		}
		m, err := inbox.NextMsgWithContext(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		seq, err := parseAck(m)
		if err == nil {
			r.epoch, r.last = r.log.epoch("two", seq), seq
		}
		return err
	}
	const rounds = 200
	// late sends a takeover, and at once a frame of the leader before, whose chain check matches.
	late := func(change func(*nats.Msg), slot int) bool {
		before, m := r.epoch, Message{Slot: slot, Control: r.epoch.Control[slot], Last: r.last + uint64(r.log.k), Payload: framed(r.epoch.Number)}
		if err := takeover(nil, func() { r.publish(m, change) }); err != nil {
			t.Fatal(err)
		}
		reply := r.answer()
		if reply.Kind == protocol.FrameUnknown {
			t.Fatalf("late frame: %v", reply.Err)
		}
		if reply.Kind == protocol.FrameStored {
			r.last = reply.Seq
			return before.Number < r.epoch.Number
		}
		return false
	}
	t.Run("wildcard check subject", func(t *testing.T) {
		bad := 0
		for range rounds {
			if late(func(m *nats.Msg) { m.Header[hdrSubjectOf] = []string{subjectOf(r.log.addr) + ".c.*"} }, r.log.k-1) {
				bad++
				break
			}
		}
		if bad == 0 {
			t.Errorf("a wildcard let no frame of a replaced leader pass in %d rounds: is it safe now?", rounds)
		}
	})
	t.Run("check subjects as they are", func(t *testing.T) {
		for round := range 50 {
			if late(nil, round%r.log.k) {
				t.Fatalf("round %d: a frame of a replaced leader is at %d", round, r.last)
			}
		}
	})
	t.Run("conditional takeover", func(t *testing.T) {
		frames := func() (sent int) {
			for i := range r.log.k / 2 {
				r.publish(Message{Slot: i, Control: r.epoch.Control[i], Last: r.last + uint64(i), Payload: framed(r.epoch.Number)}, nil)
				sent++
			}
			return sent
		}
		drain := func(n int) {
			for range n {
				if reply := r.answer(); reply.Kind == protocol.FrameStored {
					r.last = max(r.last, reply.Seq)
				}
			}
		}
		starved, longest := 0, 0
		for range rounds {
			n := frames()
			err := takeover(r.epoch.Control, nil)
			drain(n)
			switch {
			case errors.Is(err, ErrRefused):
				starved++
				longest = max(longest, starved)
			case err != nil:
				t.Fatal(err)
			default:
				starved = 0
			}
			if longest == 10 {
				break
			}
		}
		if longest < 10 {
			t.Errorf("of conditional takeovers at most %d in a row were refused in %d rounds", longest, rounds)
		}
		n := frames()
		if err := takeover(nil, nil); err != nil {
			t.Errorf("an unconditional takeover: %v", err)
		}
		drain(n)
	})
}
