package natskv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// openKind is what a consumer is for.
type openKind uint8

const (
	openWatch openKind = iota
	openEntries
	openKeys // without values
)

// Open begins a watch with a consumer of its own. What can't be resumed without a hole is an *kv.ExpiredError or a
// *kv.LogChangedError, and nothing was consumed.
func (b *Bucket) Open(ctx context.Context, req kv.OpenRequest) (kv.Watch, error) {
	w, err := b.open(ctx, req, openWatch)
	if err != nil {
		return nil, fmt.Errorf("open watch: %w", err)
	}
	return w, nil
}

func (b *Bucket) open(ctx context.Context, req kv.OpenRequest, kind openKind) (_ *watch, err error) {
	ctx, cancel := b.deadline(ctx)
	defer cancel()
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	if err := b.connected(ctx); err != nil {
		return nil, err
	}
	before, err := b.api.streamInfo(ctx, b.stream)
	if err != nil {
		return nil, asBucketError(b.name, err)
	}
	identity, err := b.judge(ctx, req, before)
	if err != nil {
		return nil, err
	}
	w := b.newWatch(req, before)
	w.info.Identity = identity
	w.listing = kind != openWatch
	nc := b.api.nc
	// The subscription comes first, so that nothing is delivered before it is there.
	if w.sub, err = nc.Subscribe(w.inbox+".*", w.onMessage); err != nil {
		return nil, fmt.Errorf("bucket %q: subscribe: %w", b.name, err)
	}
	w.status = nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer func() {
		if err != nil {
			err = errors.Join(err, w.abandon(ctx))
		}
	}()
	if err := w.sub.SetPendingLimits(-1, -1); err != nil { // the requests in flight are the limit
		return nil, fmt.Errorf("bucket %q: subscribe: %w", b.name, err)
	}
	state, err := w.create(ctx, kind == openKeys)
	if err != nil {
		return nil, fmt.Errorf("create consumer: %w", asBucketError(b.name, err))
	}
	after, err := w.bounds(ctx)
	if err != nil {
		return nil, fmt.Errorf("check consumer: %w", asBucketError(b.name, err))
	}
	// The consumer's start tells of a clamp that the stream's bounds may not show yet.
	first := max(after.State.FirstSeq, state.Delivered.Stream+1)
	if !w.relist && !resumeIsWhole(req, first, after) && !gapIsYoung(after, w.lastNano, req.Known.AgeLimit) {
		return nil, &kv.ExpiredError{Bucket: b.name, Cursor: req.After, First: first}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending = state.NumPending
	w.pullLocked()
	return w, nil
}

// judge puts the identity and window kernels to a log before anything is asked of it.
func (b *Bucket) judge(ctx context.Context, req kv.OpenRequest, info *jetstream.StreamInfo) (protocol.LogAnswer, error) {
	cursor := req.After.Revision()
	if _, ok := req.After.Version.Uint64(); !ok && !req.After.IsNone() {
		return 0, &kv.UnsupportedError{Op: "open watch", Setting: "cursor", Detail: fmt.Sprintf("%v is not a stream revision", req.After)}
	}
	seen := protocol.LogSeen{
		NotedCreated: req.Known.CreatedUnixNano,
		Created:      info.Created.UnixNano(),
		Cursor:       cursor,
		Last:         info.State.LastSeq,
	}
	if protocol.LogIsSame(seen) == protocol.LogUnknown { // samples can only tell more
		if err := b.lookUp(ctx, &seen, req.Known.Samples, info.State); err != nil {
			return 0, fmt.Errorf("look up samples: %w", asBucketError(b.name, err))
		}
	}
	answer := protocol.LogIsSame(seen)
	switch answer {
	case protocol.LogReplaced, protocol.LogRewound:
		changed := &kv.LogChangedError{
			Bucket: b.name, Replaced: answer == protocol.LogReplaced, Cursor: req.After, Last: info.State.LastSeq, Created: info.Created,
		}
		if req.Known.CreatedUnixNano != 0 {
			changed.NotedCreated = time.Unix(0, req.Known.CreatedUnixNano)
		}
		return answer, changed
	}
	if req.After.IsNone() {
		return answer, nil
	}
	whole := resumeIsWhole(req, info.State.FirstSeq, info) || gapIsYoung(info, writtenNano(&req), req.Known.AgeLimit)
	if _, ok := protocol.ResumeStart(cursor); !ok || !whole {
		return 0, &kv.ExpiredError{Bucket: b.name, Cursor: req.After, First: info.State.FirstSeq}
	}
	return answer, nil
}

func resumeIsWhole(req kv.OpenRequest, first uint64, info *jetstream.StreamInfo) bool {
	return protocol.ReopenIsWhole(protocol.Reopen{
		Cursor: req.After.Revision(), First: first, Evicts: evictsCurrentValues(&info.Config), Lost: req.Lost.Nanoseconds(),
	})
}

// writtenNano is a time of the server before which nothing after the cursor was written: the last at which a watch of this
// process stood there, or that of the cursor's message. A cursor that has none has that of the last sample before it, which
// is earlier and so proves less; 0 when there is none either.
func writtenNano(req *kv.OpenRequest) int64 {
	at := nanos(req.After.Written())
	if req.Stood.Revision == req.After.Revision() {
		at = max(at, req.Stood.UnixNano)
	}
	if at != 0 {
		return at
	}
	var last kv.Sample
	for _, s := range req.Known.Samples {
		if s.Revision <= req.After.Revision() && s.Revision > last.Revision {
			last = s
		}
	}
	return last.UnixNano
}

// lookUp reads noted messages back from the leader. The time of the last one is known also when it is gone.
func (b *Bucket) lookUp(ctx context.Context, seen *protocol.LogSeen, samples []kv.Sample, log jetstream.StreamState) error {
	for _, s := range samples {
		found, err := b.find(ctx, s, log)
		switch {
		case err != nil:
			return err
		case s.Revision == seen.Cursor:
			seen.AtCursor = found
		default:
			seen.Samples = append(seen.Samples, found)
		}
	}
	return nil
}

func (b *Bucket) find(ctx context.Context, s kv.Sample, log jetstream.StreamState) (protocol.SampleFound, error) {
	switch {
	case s.Revision == 0 || s.Revision > log.LastSeq:
		return protocol.SampleAbsent, nil
	case s.Revision == log.LastSeq && log.LastTime.UnixNano() == s.UnixNano:
		return protocol.SampleMatches, nil
	}
	msg, ok, err := b.api.message(ctx, b.stream, msgGetRequest{Seq: s.Revision})
	switch {
	case err != nil || !ok:
		return protocol.SampleAbsent, err
	case msg.Time.UnixNano() == s.UnixNano:
		return protocol.SampleMatches, nil
	}
	return protocol.SampleDiffers, nil
}

func (b *Bucket) newWatch(req kv.OpenRequest, info *jetstream.StreamInfo) *watch {
	c := &b.cfg.Watch
	now := time.Now()
	w := &watch{
		b:           b,
		req:         req,
		info:        b.logInfo(info),
		createdNano: info.Created.UnixNano(),
		relist:      req.After.IsNone(),
		consumer:    "fold-" + nuid.Next(),
		inbox:       b.api.nc.NewInbox(),
		pullBody:    pullBody(c.Batch, c.MaxBytes, c.Heartbeat),
		wake:        make(chan struct{}, 1),
	}
	w.evicts.Store(w.info.Retention.EvictsCurrentValues)
	w.ageLimit.Store(w.info.Retention.AgeLimit.Nanoseconds())
	w.nextSubject = b.api.prefix + "CONSUMER.MSG.NEXT." + b.stream + "." + w.consumer
	w.probes, w.stopProbes = context.WithCancel(context.Background())
	w.lastRev, w.lastNano = req.After.Revision(), writtenNano(&req)
	w.handed.rev, w.handed.nano = w.lastRev, w.lastNano
	if w.info.Last == w.handed.rev {
		w.handed.pass(w.info.Last, nanos(w.info.ServerTime))
	}
	w.toldNano = nanos(w.info.ServerTime)
	w.heardAt, w.arrivedAt, w.dataAt, w.probedAt, w.probed = now, now, now, now, unprobed
	return w
}

func (w *watch) consumerConfig(headersOnly bool) consumerConfig {
	c := consumerConfig{
		Name:              w.consumer,
		DeliverPolicy:     "last_per_subject",
		AckPolicy:         "none",
		ReplayPolicy:      "instant",
		HeadersOnly:       headersOnly,
		InactiveThreshold: w.b.cfg.Watch.InactiveThreshold,
		Replicas:          1,
		MemoryStorage:     true,
	}
	if !w.relist {
		c.DeliverPolicy = "by_start_sequence"
		c.OptStartSeq, _ = protocol.ResumeStart(w.req.After.Revision()) // judged before
	}
	filters, exact := w.req.Scope.Filters()
	w.exact = exact
	for i, f := range filters {
		filters[i] = w.b.prefix + f
	}
	if len(filters) == 1 {
		c.FilterSubject = filters[0]
	} else {
		c.FilterSubjects = filters
	}
	return c
}

// create makes the consumer. A caller who gives up still gets the answer to a request that is out, within a bound: the
// server works on several requests at once, and one to delete the consumer could be done before it is there.
func (w *watch) create(ctx context.Context, headersOnly bool) (consumerState, error) {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		defer cancel()
		_ = pause(later, abandonTimeout) // ends early with the answer
	})
	defer stop()
	return w.b.api.createConsumer(later, w.b.stream, w.consumerConfig(headersOnly))
}

// abandonTimeout bounds the clean-up after an open that failed, which may be one that its caller gave up.
const abandonTimeout = time.Second

// abandon cleans up after an open that failed; what it can't delete goes by its inactive threshold.
func (w *watch) abandon(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTimeout)
	defer cancel()
	err := w.Close(ctx)
	if err != nil && strings.Contains(err.Error(), nats.ErrNoResponders.Error()) {
		return nil
	}
	return err
}
