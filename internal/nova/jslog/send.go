package jslog

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/typedfold/fold/runtime/protocol"
)

// Message is one link of a leader's chain.
type Message struct {
	// Slot is the control subject that is checked; Control is the sequence that its newest message must have.
	Slot    int
	Control uint64
	// Last is the sequence that the log's last message must have: the message is stored at Last+1, or not at all.
	Last uint64
	// Payload is the frame. Send does not keep it.
	Payload []byte
	// Renews: the message is no frame, and only proves that this leader leads. It lies on a subject that nothing checks. On
	// a control subject it would have a sequence that another node's takeover may get as well, and a frame behind it, that
	// names this sequence, would pass both checks after that takeover.
	Renews bool
	// HandsBack: the message is the last control subject's own written again, and says that nobody leads any more. Nothing
	// may be sent behind it.
	HandsBack bool
	// Opens: the first frame of an epoch. It checks that the newest frame has sequence Control, and no control subject:
	// that its epoch is the newest one, Last says.
	Opens bool
}

// Reply is the log's answer to one message.
type Reply struct {
	ID   uint64
	Kind protocol.FrameReply
	Seq  uint64 // when stored
	Err  error  // when not
}

// Sender sends one leader's messages, and hands their replies to a function, which is called on one goroutine. Close it.
type Sender struct {
	l      *Log
	prefix string
	node   []byte
	sub    *nats.Subscription
	closed atomic.Bool
}

// nobody is the control message of a leader that has stopped.
var nobody = []byte(`{"node":""}`)

// Sender begins one for the node. replies must not block for long.
func (l *Log) Sender(node string, replies func(Reply)) (*Sender, error) {
	body, err := json.Marshal(leaderRecord{Node: node})
	if err != nil {
		return nil, err
	}
	s := &Sender{l: l, prefix: nats.NewInbox() + ".", node: body}
	s.sub, err = l.nc.Subscribe(s.prefix+"*", func(m *nats.Msg) {
		id, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, s.prefix), 10, 64)
		if err != nil || s.closed.Load() {
			return
		}
		replies(replyOf(id, m))
	})
	if err != nil {
		return nil, fmt.Errorf("replies of %s: %w", l.addr, err)
	}
	if err := s.sub.SetPendingLimits(-1, -1); err != nil {
		return nil, errors.Join(err, s.sub.Unsubscribe())
	}
	return s, nil
}

// Close ends the replies.
func (s *Sender) Close() error {
	s.closed.Store(true)
	return s.sub.Unsubscribe()
}

// Send sends one message. Its reply, if one comes, has the same id. An error says that the message was not sent, and
// never will be, provided that the connection keeps nothing for later (nats.ReconnectBufSize(-1)).
func (s *Sender) Send(id uint64, m Message) error {
	if err := s.l.nc.PublishMsg(s.message(id, m)); err != nil {
		return fmt.Errorf("send to %s: %w", s.l.addr, err)
	}
	return nil
}

func (s *Sender) message(id uint64, m Message) *nats.Msg {
	msg := &nats.Msg{
		Subject: s.l.record, Reply: s.prefix + strconv.FormatUint(id, 10), Data: m.Payload,
		Header: nats.Header{
			hdrStream:    {s.l.name},
			hdrLast:      {strconv.FormatUint(m.Last, 10)},
			hdrSubject:   {strconv.FormatUint(m.Control, 10)},
			hdrSubjectOf: {s.l.control(m.Slot)},
		},
	}
	switch {
	case m.Opens:
		msg.Header[hdrSubjectOf] = []string{s.l.record}
	case m.Renews, m.HandsBack:
		msg.Subject, msg.Data = s.l.renewal, s.node
		if m.HandsBack {
			msg.Subject, msg.Data = s.l.control(m.Slot), nobody
		}
		msg.Header[hdrTTL], msg.Header[hdrRollup] = []string{never}, []string{rollupSubject}
	}
	return msg
}

func replyOf(id uint64, m *nats.Msg) Reply {
	seq, err := parseAck(m)
	switch {
	case err == nil:
		return Reply{ID: id, Kind: protocol.FrameStored, Seq: seq}
	case errors.Is(err, ErrRefused), errors.Is(err, nats.ErrNoResponders):
		return Reply{ID: id, Kind: protocol.FrameRefused, Err: err}
	}
	return Reply{ID: id, Kind: protocol.FrameUnknown, Err: err}
}

// parseAck is the sequence of a stored message, or why it was not stored. ErrRefused is said only where the server says
// that it stored nothing: with code 400, as for 10071 (another last sequence than expected), 10164 (the checked subject is in
// flight, on replicas) and 10060 (another stream).
func parseAck(m *nats.Msg) (uint64, error) {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return 0, nats.ErrNoResponders
	}
	ack, err := readAck(m.Data)
	if err != nil {
		return 0, err
	}
	switch {
	case ack.Error != nil && ack.Error.Code == 400:
		return 0, fmt.Errorf("%w: %w", ErrRefused, ack.Error)
	case ack.Error != nil:
		return 0, ack.Error
	case ack.Seq == 0:
		return 0, errors.New("the log's answer has no sequence")
	}
	return ack.Seq, nil
}
