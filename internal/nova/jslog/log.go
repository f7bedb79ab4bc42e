// Package jslog keeps one Nova stream in one JetStream stream. Frames lie on one subject, and the leader's epoch on K
// control subjects, whose newest messages every frame checks in turn: a leader that another one has replaced can store
// nothing any more. Only the servers' own credentials may publish to these subjects.
package jslog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/typedfold/fold/internal/nova"
)

var (
	// ErrNotFound: there is no such stream.
	ErrNotFound = errors.New("stream not found")
	// ErrExists: a stream of that name is there already.
	ErrExists = errors.New("stream exists already")
	// ErrDamaged: the stream's messages are not what its servers leave; its numbers can't be continued.
	ErrDamaged = errors.New("stream damaged")
	// ErrNewborn: the stream is being created, or its creation was cut off before its first frame. The next who leads it
	// finishes that.
	ErrNewborn = errors.New("the stream has no first frame yet")
	// ErrRefused: the log refused a message because of what it expected; nothing of it is stored.
	ErrRefused = errors.New("refused by the log")
)

// StreamName is the JetStream stream of an address. '=' is in no name, so two addresses never share one.
func StreamName(a nova.Addr) string { return streamPrefix + a.Namespace + "=" + a.Stream }

const (
	streamPrefix  = "NOVA="
	subjectPrefix = "nova."
)

func subjectOf(a nova.Addr) string { return subjectPrefix + a.Namespace + "." + a.Stream }

// Epoch is one leader's time: from its takeover to the next.
type Epoch struct {
	// Number is the sequence of the last message of the takeover; epochs of a stream go up.
	Number uint64
	// Control are the sequences of the newest message of each control subject.
	Control []uint64
	// Node is who leads.
	Node string
}

// Log is one stream's log. It is safe for concurrent use.
type Log struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream
	addr   nova.Addr
	name   string
	record string // subject of frames
	// renewal is the subject of messages that prove a lead, of which the newest one is kept.
	renewal string
	k       int
	// creation tells the stream from one that was made anew under its name.
	creation string
	// MaxMessage is the largest payload of a frame, in bytes.
	maxMessage int
	begun      atomic.Bool // see Begun
	replicas   atomic.Int32
}

// headerRoom is what the server counts of a frame beside its payload.
const headerRoom = 1024

func newLog(nc *nats.Conn, js jetstream.JetStream, s jetstream.Stream, a nova.Addr) (*Log, error) {
	k, err := strconv.Atoi(s.CachedInfo().Config.Metadata[metaControls])
	if err != nil || k < 1 || k > maxControls {
		return nil, fmt.Errorf("%w: JetStream stream %s has metadata %s=%q", ErrDamaged, StreamName(a), metaControls, s.CachedInfo().Config.Metadata[metaControls])
	}
	limit := int(nc.MaxPayload())
	if own := int(s.CachedInfo().Config.MaxMsgSize); own > 0 {
		limit = min(limit, own)
	}
	l := &Log{nc: nc, js: js, stream: s, addr: a, name: StreamName(a), record: subjectOf(a) + ".r", renewal: subjectOf(a) + ".c.renewal", k: k,
		creation: s.CachedInfo().Config.Metadata[metaCreation], maxMessage: limit - headerRoom}
	l.begun.Store(s.CachedInfo().Config.DenyDelete)
	l.replicas.Store(int32(s.CachedInfo().Config.Replicas))
	return l, nil
}

// Open opens the log of a stream that is there.
func Open(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, a nova.Addr) (*Log, error) {
	s, err := asked(ctx, func(ctx context.Context) (jetstream.Stream, error) { return js.Stream(ctx, StreamName(a)) })
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", a, translate(err))
	}
	return newLog(nc, js, s, a)
}

// Addr is the stream's address.
func (l *Log) Addr() nova.Addr { return l.addr }

// InFlight is how many messages of a leader may be in flight: on replicas half the control subjects, since the log refuses a
// message whose checked subject another one in flight has checked, and one at a time on a single subject, which is what a
// stream of one server has that was given replicas later. 0 is no bound. Current finds out anew.
func (l *Log) InFlight() int {
	if l.replicas.Load() <= 1 {
		return 0
	}
	return max(l.k/2, 1)
}

// MaxMessage is the largest payload that Send takes, in bytes.
func (l *Log) MaxMessage() int { return l.maxMessage }

// requestTimeout bounds each request to the log: while it has no leader, nobody answers, and asking again is right.
const requestTimeout = 2 * time.Second

// asked bounds one request to the log. When no answer comes in time, that is nats.ErrTimeout: context.DeadlineExceeded is the
// caller's deadline, behind which nobody asks again.
func asked[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	asking, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := request(asking)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("%w: no answer within %v", nats.ErrTimeout, requestTimeout)
	}
	return answer, err
}

func (l *Log) control(i int) string { return subjectOf(l.addr) + ".c." + strconv.Itoa(i) }

// leaderRecord is the body of a control message.
type leaderRecord struct {
	Node string `json:"node"`
}

const (
	hdrStream     = "Nats-Expected-Stream"
	hdrLast       = "Nats-Expected-Last-Sequence"
	hdrSubject    = "Nats-Expected-Last-Subject-Sequence"
	hdrSubjectOf  = "Nats-Expected-Last-Subject-Sequence-Subject"
	hdrTTL        = "Nats-TTL"
	hdrRollup     = "Nats-Rollup"
	hdrBatch      = "Nats-Batch-Id"
	hdrBatchSeq   = "Nats-Batch-Sequence"
	hdrCommit     = "Nats-Batch-Commit"
	never         = "never"
	rollupSubject = "sub"
)

// TakeOver makes node the leader: an unconditional write of all control subjects, all or none. Whoever led before can
// store nothing from then on. It expects nothing of the log: a takeover that had to win a race could be starved by a busy leader.
func (l *Log) TakeOver(ctx context.Context, node string) (Epoch, error) {
	messages, err := l.takeover(node)
	if err != nil {
		return Epoch{}, err
	}
	if err := l.Current(ctx); err != nil {
		return Epoch{}, fmt.Errorf("take %s over: %w", l.addr, err)
	}
	for _, m := range messages[:l.k-1] {
		if err := l.nc.PublishMsg(m); err != nil {
			return Epoch{}, fmt.Errorf("take %s over: %w", l.addr, err)
		}
	}
	reply, err := asked(ctx, func(ctx context.Context) (*nats.Msg, error) { return l.nc.RequestMsgWithContext(ctx, messages[l.k-1]) })
	if err != nil {
		return Epoch{}, fmt.Errorf("take %s over: %w", l.addr, err)
	}
	last, err := parseAck(reply)
	if err != nil {
		return Epoch{}, fmt.Errorf("take %s over: %w", l.addr, err)
	}
	return l.epoch(node, last), nil
}

// Current is ErrNotFound when the stream is gone, or was made anew, with other control subjects perhaps.
func (l *Log) Current(ctx context.Context) error {
	now, err := asked(ctx, func(ctx context.Context) (jetstream.Stream, error) { return l.js.Stream(ctx, l.name) })
	if err != nil {
		return translate(err)
	}
	if now.CachedInfo().Config.Metadata[metaCreation] != l.creation {
		return fmt.Errorf("%w: it was deleted, and made anew", ErrNotFound)
	}
	l.replicas.Store(int32(now.CachedInfo().Config.Replicas))
	return nil
}

// epoch is that of a takeover whose last message has this sequence.
func (l *Log) epoch(node string, last uint64) Epoch {
	e := Epoch{Number: last, Node: node, Control: make([]uint64, l.k)}
	for i := range e.Control {
		e.Control[i] = last - uint64(l.k-1-i)
	}
	return e
}

// takeover is one message for each control subject; more than one are a batch, which the last one commits.
func (l *Log) takeover(node string) ([]*nats.Msg, error) {
	body, err := json.Marshal(leaderRecord{Node: node})
	if err != nil {
		return nil, err
	}
	id := nuid.Next()
	messages := make([]*nats.Msg, l.k)
	for i := range messages {
		messages[i] = l.controlMessage(i, body)
		if l.k > 1 {
			messages[i].Header[hdrBatch] = []string{id}
			messages[i].Header[hdrBatchSeq] = []string{strconv.Itoa(i + 1)}
		}
	}
	if l.k > 1 {
		messages[l.k-1].Header[hdrCommit] = []string{"1"}
	}
	return messages, nil
}

func (l *Log) controlMessage(i int, body []byte) *nats.Msg {
	return &nats.Msg{Subject: l.control(i), Data: body, Header: nats.Header{
		hdrStream: {l.name}, hdrTTL: {never}, hdrRollup: {rollupSubject},
	}}
}

// Leader is who took the log over last. Node is "" when a leader handed it back, or when there never was one. Number is the
// sequence of the last control subject's message; Control is not filled. It is a read, so
// it proves nothing: a partitioned server can answer it for seconds after it was replaced.
func (l *Log) Leader(ctx context.Context) (Epoch, error) {
	m, err := l.last(ctx, l.control(l.k-1))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return Epoch{}, nil
	}
	if err != nil {
		return Epoch{}, fmt.Errorf("leader of %s: %w", l.addr, translate(err))
	}
	var r leaderRecord
	if err := json.Unmarshal(m.Data, &r); err != nil {
		return Epoch{}, fmt.Errorf("leader of %s: %w: %w", l.addr, ErrDamaged, err)
	}
	return Epoch{Number: m.Sequence, Node: r.Node}, nil
}

// last is the newest message of a subject.
func (l *Log) last(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	return asked(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return l.stream.GetLastMsgForSubject(ctx, subject)
	})
}

// Stored is one frame as it lies in the log.
type Stored struct {
	Seq     uint64 // of the log
	Payload []byte
	Time    time.Time
}

// Last is the newest frame; its Seq is 0 when there is none.
func (l *Log) Last(ctx context.Context) (Stored, error) {
	m, err := l.last(ctx, l.record)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return Stored{}, nil
	}
	if err != nil {
		return Stored{}, fmt.Errorf("last frame of %s: %w", l.addr, translate(err))
	}
	return Stored{Seq: m.Sequence, Payload: m.Data, Time: m.Time}, nil
}

// From is the first frame at or after a sequence of the log; its Seq is 0 when there is none.
func (l *Log) From(ctx context.Context, seq uint64) (Stored, error) {
	m, err := asked(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return l.stream.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(l.record))
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return Stored{}, nil
	}
	if err != nil {
		return Stored{}, fmt.Errorf("frame of %s at log sequence %d: %w", l.addr, seq, translate(err))
	}
	return Stored{Seq: m.Sequence, Payload: m.Data, Time: m.Time}, nil
}

// translate gives JetStream's errors the names of this package.
func translate(err error) error {
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case errors.Is(err, jetstream.ErrStreamNameAlreadyInUse):
		return fmt.Errorf("%w: %w", ErrExists, err)
	}
	return err
}
