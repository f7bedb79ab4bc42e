package sequencer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/typedfold/fold/internal/nova/frame"
	"github.com/typedfold/fold/internal/nova/jslog"
	"github.com/typedfold/fold/runtime/protocol"
)

// verdict is what the network does with a message, or with its answer.
type verdict uint8

const (
	delivers verdict = iota
	losesAnswer
	losesMessage
	delays // until land is called
	refuses
	failsSend
)

var (
	errAway    = errors.New("the log is away")
	errRefused = fmt.Errorf("%w: as the test says", jslog.ErrRefused)
)

// fakeLog is a log in memory that checks what JetStream does, behind a network that does as it is told.
type fakeLog struct {
	t testing.TB

	mu      sync.Mutex
	seq     uint64
	frames  []jslog.Stored
	control []uint64
	holder  string
	// onSend is the verdict on each message but opening ones, which are all delivered; nil delivers.
	onSend func(n int, m jslog.Message) verdict
	sent   int
	late   []func()
	away   bool // nothing reaches the log, and no answer comes
	// outdated is how many answers to From are of the log as it began.
	outdated int
	// newborn is how many answers to Last are of the log before its first frame.
	newborn   int
	takeovers int
}

func newFakeLog(t testing.TB, controls int) *fakeLog {
	l := &fakeLog{t: t, control: make([]uint64, controls)}
	l.store(frame.Append(nil, &frame.Frame{}))
	return l
}

func (l *fakeLog) store(payload []byte) uint64 {
	l.seq++
	l.frames = append(l.frames, jslog.Stored{Seq: l.seq, Payload: append([]byte(nil), payload...)})
	return l.seq
}

func (l *fakeLog) InFlight() int   { return len(l.control) / 2 }
func (l *fakeLog) MaxMessage() int { return 1 << 20 }

func (l *fakeLog) TakeOver(_ context.Context, node string) (jslog.Epoch, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		return jslog.Epoch{}, errAway
	}
	for i := range l.control {
		l.seq++
		l.control[i] = l.seq
	}
	l.holder = node
	l.takeovers++
	return jslog.Epoch{Number: l.seq, Control: append([]uint64(nil), l.control...), Node: node}, nil
}

func (l *fakeLog) Leader(context.Context) (jslog.Epoch, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		return jslog.Epoch{}, errAway
	}
	return jslog.Epoch{Number: l.control[len(l.control)-1], Node: l.holder}, nil
}

func (l *fakeLog) Last(context.Context) (jslog.Stored, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		return jslog.Stored{}, errAway
	}
	if l.newborn > 0 {
		l.newborn--
		return jslog.Stored{}, nil
	}
	return l.frames[len(l.frames)-1], nil
}

func (l *fakeLog) From(_ context.Context, seq uint64) (jslog.Stored, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		return jslog.Stored{}, errAway
	}
	frames := l.frames
	if l.outdated > 0 {
		l.outdated--
		frames = frames[:1]
	}
	for _, f := range frames {
		if f.Seq >= seq {
			return f, nil
		}
	}
	return jslog.Stored{}, nil
}

// Begun says that the log has begun, which it has.
func (l *fakeLog) Begun(context.Context) (bool, error) { return true, nil }

func (l *fakeLog) Begin(context.Context) error { return errors.New("the log has begun") }

func (l *fakeLog) Chain(node string, replies func(jslog.Reply)) (Chain, error) {
	return &fakeChain{l: l, node: node, replies: replies}, nil
}

// land lets the messages arrive that are on their way.
func (l *fakeLog) land() {
	l.mu.Lock()
	late := l.late
	l.late = nil
	l.mu.Unlock()
	for _, f := range late {
		f()
	}
}

func (l *fakeLog) script(onSend func(n int, m jslog.Message) verdict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent, l.onSend = 0, onSend
}

func (l *fakeLog) setAway(away bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = away
}

// outdate has so many answers to From be of an older log.
func (l *fakeLog) outdate(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outdated = n
}

// name has the log name a node that leads.
func (l *fakeLog) name(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holder = node
}

// cut leaves the frames from one to the other.
func (l *fakeLog) cut(from, to int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frames = l.frames[from:to]
}

// all are the log's frames, which follow each other.
func (l *fakeLog) all() []frame.Frame {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []frame.Frame
	var state frame.State
	for i, s := range l.frames {
		f, err := frame.Parse(s.Payload)
		if err != nil {
			l.t.Fatal(err)
		}
		if i > 0 && f.State.Next != state.Next {
			l.t.Fatalf("the frame at log sequence %d begins at %d, not at %d", s.Seq, f.State.Next, state.Next)
		}
		state = f.After()
		all = append(all, f)
	}
	return all
}

// bodies are those of the records from the log's first frame on.
func (l *fakeLog) bodies() []string {
	var all []string
	for _, f := range l.all() {
		for _, b := range f.Batches {
			for _, r := range b.Records {
				all = append(all, string(r.Body))
			}
		}
	}
	return all
}

type fakeChain struct {
	l       *fakeLog
	node    string
	replies func(jslog.Reply)
}

func (c *fakeChain) Close() error { return nil }

func (c *fakeChain) Send(id uint64, m jslog.Message) error {
	l := c.l
	l.mu.Lock()
	v := delivers
	if !m.Opens {
		l.sent++
		if l.onSend != nil {
			v = l.onSend(l.sent, m)
		}
	}
	if l.away {
		v = losesMessage
	}
	m.Payload = append([]byte(nil), m.Payload...)
	var answer *jslog.Reply
	switch v {
	case delivers:
		answer = l.check(id, c.node, m)
	case losesAnswer:
		l.check(id, c.node, m)
	case refuses:
		answer = &jslog.Reply{ID: id, Kind: protocol.FrameRefused, Err: errRefused}
	case delays:
		l.late = append(l.late, func() {
			l.mu.Lock()
			r := l.check(id, c.node, m)
			l.mu.Unlock()
			c.replies(*r)
		})
	case failsSend:
		l.mu.Unlock()
		return errAway
	}
	l.mu.Unlock()
	if answer != nil {
		c.replies(*answer)
	}
	return nil
}

// check stores a message, or refuses it.
func (l *fakeLog) check(id uint64, node string, m jslog.Message) *jslog.Reply {
	subject := l.control[m.Slot]
	if m.Opens {
		subject = l.frames[len(l.frames)-1].Seq
	}
	if m.Last != l.seq || m.Control != subject {
		return &jslog.Reply{ID: id, Kind: protocol.FrameRefused, Err: jslog.ErrRefused}
	}
	if m.Renews {
		l.seq++
		if m.HandsBack {
			l.control[m.Slot], l.holder = l.seq, ""
		}
		return &jslog.Reply{ID: id, Kind: protocol.FrameStored, Seq: l.seq}
	}
	return &jslog.Reply{ID: id, Kind: protocol.FrameStored, Seq: l.store(m.Payload)}
}
