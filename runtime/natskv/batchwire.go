package natskv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/typedfold/fold/runtime/kv"
)

// How a batch stands on the wire: messages of one id, numbered from 1, of which the last one has the server check and
// store them all. It keeps these headers with what it stores.
const (
	headerBatchID      = "Nats-Batch-Id"
	headerBatchSeq     = "Nats-Batch-Sequence"
	headerBatchCommit  = "Nats-Batch-Commit"
	headerExpectedLast = "Nats-Expected-Last-Sequence"

	batchCommit = "1"
)

// Looking up a batch whose answer is lost.
const (
	lookupTimeout = 5 * time.Second
	lookupReads   = 5
	lookupPause   = 50 * time.Millisecond
)

// outgoing is a batch on its way.
type outgoing struct {
	b     *Bucket
	id    string
	ops   []kv.BatchOp
	lead  int // messages before those of the operations
	msgs  []*nats.Msg
	inbox string
	sub   *nats.Subscription
}

// publishBatch sends the batch once and reads the acknowledgement, which is the last operation's revision. What the
// server refused is a *refusedBatch. lookup bounds the look for a batch whose answer is lost.
func (b *Bucket) publishBatch(ctx, lookup context.Context, s *sending) (last uint64, err error) {
	o := &outgoing{b: b, id: nuid.Next(), ops: s.batch.Ops, lead: s.lead(), inbox: b.api.nc.NewInbox() + "."}
	if err := o.build(s); err != nil {
		return 0, err
	}
	ctx, stop := b.api.whileConnected(ctx)
	defer stop()
	if o.sub, err = b.api.nc.SubscribeSync(o.inbox + "*"); err != nil {
		return 0, fmt.Errorf("nothing stored: subscribe: %w", err)
	}
	defer func() { _ = o.sub.Unsubscribe() }()             // it fails only where the connection has ended, and the subscription with it
	if err := o.sub.SetPendingLimits(-1, -1); err != nil { // an answer for each message at most
		return 0, fmt.Errorf("nothing stored: subscribe: %w", err)
	}
	if err := o.begin(ctx); err != nil {
		return 0, err
	}
	last, err = o.commit(ctx)
	if !errors.Is(err, kv.ErrOutcomeUnknown) {
		return last, err
	}
	if last, ok := o.lookUp(lookup); ok {
		return last, nil
	}
	return 0, err
}

// build makes all messages, so that nothing is sent of a batch that has one too large.
func (o *outgoing) build(s *sending) error {
	limit := o.b.api.nc.MaxPayload()
	n := o.lead + len(o.ops)
	carrier := s.carrier()
	for number := 1; number <= n; number++ {
		i := number - 1 - o.lead
		h, key, value := nats.Header{}, "", proofValue
		if i < 0 {
			key = kv.CheckKey(s.check.key)
			s.check.set(o.b, h, expectAny)
		} else {
			op := &o.ops[i]
			key, value = op.Key, op.Value
			h = opHeader(op)
			var check fenceCheck
			if i == carrier {
				check = s.check
			}
			check.set(o.b, h, s.expect[i])
		}
		if s.forever {
			h[headerTTL] = []string{ttlNever}
		}
		h[headerBatchID] = []string{o.id}
		h[headerBatchSeq] = []string{strconv.Itoa(number)}
		if number == 1 && s.batch.Match != nil {
			h[headerExpectedLast] = []string{strconv.FormatUint(*s.batch.Match, 10)}
		}
		if number == n {
			h[headerBatchCommit] = []string{batchCommit}
		}
		if size := headerSize(h) + int64(len(value)); size > limit {
			return &kv.BatchError{Index: i, Key: key, Err: fmt.Errorf("message of %d bytes, the server takes %d: %w", size, limit, nats.ErrMaxPayload)}
		}
		o.msgs = append(o.msgs, &nats.Msg{Subject: o.b.putPrefix + key, Reply: o.inbox + strconv.Itoa(number), Header: h, Data: value})
	}
	return nil
}

// opHeader is what an operation is on the wire, without what it asks for.
func opHeader(op *kv.BatchOp) nats.Header {
	h := putHeader(op.Put)
	if op.Kind == kv.BatchDelete {
		_, h = deleteHeader(op.Purge)
	}
	if h == nil {
		h = nats.Header{}
	}
	return h
}

// headerSize is what a header takes of a message.
func headerSize(h nats.Header) int64 {
	n := len("NATS/1.0\r\n") + len("\r\n")
	for name, values := range h {
		for _, v := range values {
			n += len(name) + len(": ") + len(v) + len("\r\n")
		}
	}
	return int64(n)
}

// begin sends all but the last message. The others follow only when the server has taken the first one, as of a batch:
// one that does not know batches has then stored that message at most. Until the last message is sent nothing is stored.
func (o *outgoing) begin(ctx context.Context) error {
	n := len(o.msgs)
	for i, m := range o.msgs[:n-1] {
		if err := o.send(ctx, m); err != nil {
			return err
		}
		if i > 0 {
			continue
		}
		if _, err := o.answer(ctx, 1); err != nil {
			return o.notStored(err)
		}
	}
	return nil
}

func (o *outgoing) send(ctx context.Context, m *nats.Msg) error {
	err := context.Cause(ctx)
	if err == nil {
		err = o.b.api.nc.PublishMsg(m)
	}
	if err != nil {
		return fmt.Errorf("nothing stored: %w", err)
	}
	return nil
}

// notStored is why the last message was not sent.
func (o *outgoing) notStored(err error) error {
	var refused *refusedBatch
	switch {
	case errors.As(err, &refused):
		return err
	case errors.Is(err, errNoBatch):
		return outcomeUnknown(o.ops, err)
	}
	return fmt.Errorf("nothing stored: %w", err)
}

// commit sends the last message and waits for what the server says of the batch.
func (o *outgoing) commit(ctx context.Context) (uint64, error) {
	n := len(o.msgs)
	if err := o.send(ctx, o.msgs[n-1]); err != nil {
		return 0, err
	}
	seq, err := o.answer(ctx, n)
	var refused *refusedBatch
	switch {
	case err == nil:
		return seq, nil
	case errors.As(err, &refused):
		return 0, err
	}
	return 0, outcomeUnknown(o.ops, err)
}

// answer reads answers up to that of message number until, or the first refusal. The server answers a message that it has
// put aside without a word.
func (o *outgoing) answer(ctx context.Context, until int) (seq uint64, err error) {
	for {
		msg, err := o.sub.NextMsgWithContext(ctx)
		if errors.Is(err, nats.ErrNoResponders) { // to one of the messages, and without it the batch is not whole
			return 0, &refusedBatch{index: until - 1 - o.lead, begun: until > 1, err: err}
		}
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return 0, err
		}
		number, err := strconv.Atoi(strings.TrimPrefix(msg.Subject, o.inbox))
		if err != nil || number < 1 || number > len(o.msgs) {
			continue
		}
		seq, err := o.read(number, msg)
		if err != nil || number == until {
			return seq, err
		}
	}
}

func (o *outgoing) read(number int, msg *nats.Msg) (uint64, error) {
	last := number == len(o.msgs)
	refused := &refusedBatch{index: number - 1 - o.lead, begun: number > 1}
	if len(msg.Data) == 0 && !last {
		return 0, nil
	}
	var ack struct {
		Error *APIError `json:"error"`
		Seq   uint64    `json:"seq"`
		Batch string    `json:"batch"`
		Count int       `json:"count"`
	}
	if err := json.Unmarshal(msg.Data, &ack); err != nil {
		return 0, fmt.Errorf("%w: %w", errUnparsable, err)
	}
	switch {
	case ack.Error != nil:
		refused.err = ack.Error
		return 0, refused
	case !last || ack.Batch != o.id || ack.Count != len(o.msgs) || ack.Seq < uint64(len(o.msgs)):
		return 0, fmt.Errorf("%w: the server stored message %d at revision %d, and not as one of a batch", errNoBatch, number, ack.Seq)
	}
	return ack.Seq, nil
}

// errNoBatch is a server that does not know batches, though the bucket's settings say that it does.
var errNoBatch = errors.New("no batch")

// lookUp looks for a batch whose answer is lost. Where one of its messages is stored all are, since nobody sees some of
// them only. Where none is found it may have been overwritten, or still be on its way.
func (o *outgoing) lookUp(ctx context.Context) (last uint64, found bool) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	n := len(o.ops)
	for range lookupReads {
		for _, i := range []int{0, n - 1} {
			msg, ok, err := o.b.api.message(ctx, o.b.stream, msgGetRequest{LastFor: o.b.prefix + o.ops[i].Key})
			if err == nil && ok && o.owns(msg, i) {
				return msg.Seq + uint64(n-1-i), true
			}
		}
		if pause(ctx, lookupPause) != nil {
			break
		}
	}
	return 0, false
}

// owns reports whether a stored message is the batch's operation.
func (o *outgoing) owns(msg storedMsg, index int) bool {
	if len(msg.Header) == 0 {
		return false
	}
	h, err := nats.DecodeHeadersMsg(msg.Header)
	return err == nil && first(h, headerBatchID) == o.id && first(h, headerBatchSeq) == strconv.Itoa(index+1+o.lead)
}
