// Package sequencer leads one stream: it admits batches at one cursor, chains frames into the log with several in flight,
// and answers nobody before the log has.
package sequencer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore" // bytes in flight, with a context

	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/frame"
	"github.com/typedfold/fold/internal/nova/jslog"
	"github.com/typedfold/fold/runtime/protocol"
)

// Log is what a leader needs of its stream's log; OfJetStream makes one.
type Log interface {
	TakeOver(ctx context.Context, node string) (jslog.Epoch, error)
	Leader(ctx context.Context) (jslog.Epoch, error)
	Last(ctx context.Context) (jslog.Stored, error)
	From(ctx context.Context, seq uint64) (jslog.Stored, error)
	Begun(ctx context.Context) (bool, error)
	Begin(ctx context.Context) error
	Chain(node string, replies func(jslog.Reply)) (Chain, error)
	InFlight() int
	MaxMessage() int
}

// Chain sends messages; see jslog.Sender.
type Chain interface {
	Send(id uint64, m jslog.Message) error
	Close() error
}

// OfJetStream is the log in JetStream.
func OfJetStream(l *jslog.Log) Log { return jetStream{l} }

type jetStream struct{ *jslog.Log }

func (l jetStream) Chain(node string, replies func(jslog.Reply)) (Chain, error) {
	return l.Sender(node, replies)
}

// Options shape a leader. Zero values are the defaults.
type Options struct {
	// Node names this leader's process in the log; it must be another one after each start.
	Node string
	// Window is how many frames may be in flight; default 32, and at most what the log allows.
	Window int
	// AckTimeout is how long the log may take for one frame; default 5 s.
	AckTimeout time.Duration
	// RecoverTimeout bounds the time to find out what became of frames after trouble, and to get one into the log again;
	// default 20 s.
	RecoverTimeout time.Duration
	// MaxBytes bounds the records that are held: queued, or in flight; default 64 MiB. An eighth of it is for one-shots alone.
	MaxBytes int
	// WindowBytes bounds the frames in flight in bytes; default 2 MiB. One may be in flight in any case.
	WindowBytes int
	// Now is the clock of timestamps; default time.Now.
	Now func() time.Time
	// Events tell what the leader does.
	Events Events
}

// Validate reports the first option that makes no sense.
func (o Options) Validate() error {
	switch {
	case o.Node == "":
		return errors.New("a leader needs a node name")
	case o.Window < 0:
		return fmt.Errorf("a window of %d frames; 0 is the default of %d", o.Window, jslog.DefaultWindow)
	case o.WindowBytes < 0:
		return fmt.Errorf("a window of %d bytes; 0 is the default of %d", o.WindowBytes, DefaultWindowBytes)
	case o.MaxBytes < 0:
		return fmt.Errorf("room for %d bytes; 0 is the default of %d", o.MaxBytes, DefaultMaxBytes)
	case o.AckTimeout < 0 || o.RecoverTimeout < 0:
		return fmt.Errorf("a negative timeout: %v for one frame, %v to recover; 0 is the default", o.AckTimeout, o.RecoverTimeout)
	}
	return nil
}

// DefaultMaxBytes bounds the records that one leader holds.
const DefaultMaxBytes = 64 << 20

// DefaultWindowBytes bounds the frames that one leader has in flight. What comes newly waits for as much.
const DefaultWindowBytes = 2 << 20

func (o Options) withDefaults() Options {
	o.Window = cmp.Or(o.Window, jslog.DefaultWindow)
	o.AckTimeout = cmp.Or(o.AckTimeout, 5*time.Second)
	o.RecoverTimeout = cmp.Or(o.RecoverTimeout, 20*time.Second)
	o.MaxBytes = cmp.Or(o.MaxBytes, DefaultMaxBytes)
	o.WindowBytes = cmp.Or(o.WindowBytes, DefaultWindowBytes)
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// shots is how many bytes are for one-shots alone.
func (o *Options) shots() int { return max(o.MaxBytes/8, 1) }

// Append is one batch to be admitted.
type Append struct {
	protocol.Append
	// Flow is whose batch it is. Flows take turns.
	Flow Flow
	// Records are the leader's from then on: it sets their timestamps.
	Records []nova.Record
}

// Result is what came of a batch: Start and End, which is one past its last record, or Err: *FencedError, *MissedError,
// *UnavailableError.
type Result struct {
	Start, End nova.Position
	// Tail is the committed tail.
	Tail nova.Position
	Err  error
}

// Standing is a stream's state that this leader has proved to be current after it was asked.
type Standing struct {
	Tail  nova.Position
	Token string
	Fence uint64
}

// Leader leads one stream until it is stopped, or another node takes over. It is safe for concurrent use.
type Leader struct {
	log   Log
	o     Options
	chain Chain
	bytes *semaphore.Weighted // of flows
	shots *semaphore.Weighted // bytes of one-shots
	wake  chan struct{}
	ended chan struct{}
	limit int // of a frame's payload

	mu    sync.Mutex
	queue []item
	flow  uint64 // the newest
	// submitted counts what was put into the queue.
	submitted uint64
	replies   []jslog.Reply
	closed    bool
	err       error

	// The rest is the loop's own.
	epoch     jslog.Epoch
	window    int
	slot      int
	last      uint64 // the sequence that the log's last message has after all that was sent
	nextID    uint64
	events    uint64      // counts what happens, so that a proof can be told from an earlier write
	cursor    frame.State // behind everything that was admitted
	committed frame.State
	waiting   flows   // to be admitted
	pending   []*link // sent, in order
	unsent    []*link
	troubled  error     // why nothing may be sent
	stuck     time.Time // when the trouble began, if nothing was stored since
	tries     int       // how often the log was led anew since something was stored
	stopping  bool
	handed    bool
	buf       []byte
}

// item is one request in the queue; exactly one of the funcs is set.
type item struct {
	append   *Append
	appended func(Result)
	fence    *string
	stands   func(Standing, error)
	stop     bool
	number   uint64 // in the order of submission, from 1
	held
}

// Start takes the stream over and proves it. ctx bounds only the start.
func Start(ctx context.Context, log Log, o Options) (*Leader, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	l := &Leader{log: log, o: o.withDefaults(), wake: make(chan struct{}, 1), ended: make(chan struct{}), nextID: 1}
	l.bytes, l.shots = semaphore.NewWeighted(int64(l.o.MaxBytes-l.o.shots())), semaphore.NewWeighted(int64(l.o.shots()))
	l.limit = frameLimit(log.MaxMessage())
	var err error
	if l.chain, err = log.Chain(l.o.Node, l.replied); err != nil {
		return nil, err
	}
	state, err := l.begin(ctx)
	if err != nil {
		return nil, errors.Join(err, l.chain.Close())
	}
	l.cursor, l.committed = state, state
	go l.run()
	return l, nil
}

// begin leads a log, which gets its first frame if its creation was cut off before.
func (l *Leader) begin(ctx context.Context) (frame.State, error) {
	for {
		seen, err := l.look(ctx)
		if err != nil {
			return frame.State{}, err
		}
		switch protocol.StartLog(seen) {
		case protocol.LogLeads:
			return l.lead(ctx)
		case protocol.LogBegins:
			if err := l.log.Begin(ctx); err != nil {
				return frame.State{}, err
			}
		default:
			return frame.State{}, fmt.Errorf("%w: it has begun, and lost all its frames; a log in memory does when all its servers are restarted", jslog.ErrDamaged)
		}
	}
}

// look finds out how to start with the log.
func (l *Leader) look(ctx context.Context) (seen protocol.LogStartSeen, err error) {
	if seen.Begun, err = l.log.Begun(ctx); err != nil || !seen.Begun {
		return seen, err
	}
	_, err = l.newest(ctx)
	if seen.HasFrame = err == nil; errors.Is(err, errOutdated) && ctx.Err() == nil {
		err = nil
	}
	return seen, err
}

// Done is closed when the leader has ended; Err says why.
func (l *Leader) Done() <-chan struct{} { return l.ended }

// Err is why the leader ended; nil while it leads.
func (l *Leader) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Node is the name that the log knows this leader by.
func (l *Leader) Node() string { return l.o.Node }

// Submit hands a batch over. done is called once, on the leader's goroutine, for the batches of a flow in the order of
// submissions where those are acknowledged; it must not block. Submit itself waits while too many bytes are held.
func (l *Leader) Submit(ctx context.Context, a Append, done func(Result)) error {
	if err := l.check(&a); err != nil {
		return err
	}
	room, most := l.bytes, l.o.MaxBytes-l.o.shots()
	if a.Flow.id == 0 {
		room, most = l.shots, l.o.shots()
	}
	h := held{room: room, size: min(int64(nova.BatchBytes(a.Records)), int64(most))}
	if err := room.Acquire(ctx, h.size); err != nil {
		return &UnavailableError{Err: fmt.Errorf("wait for room for %d bytes: %w", h.size, err)}
	}
	return l.enqueue(item{append: &a, appended: done, held: h})
}

// NewFlow is a flow for the batches of one session.
func (l *Leader) NewFlow() Flow {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flow++
	return Flow{id: l.flow, after: l.submitted}
}

// held are bytes that count in one of the leader's bounds until they are released.
type held struct {
	room *semaphore.Weighted
	size int64
}

func (h held) release() {
	if h.size > 0 {
		h.room.Release(h.size)
	}
}

func (l *Leader) check(a *Append) error {
	return CheckBatch(&frame.Batch{Token: a.Token, Records: a.Records}, l.limit)
}

// CheckBatch is what a batch has to be for a leader whose log takes messages of so many bytes; else it is nova.ErrInvalid.
func CheckBatch(b *frame.Batch, maxMessage int) error {
	if err := nova.CheckToken(b.Token); err != nil {
		return err
	}
	if err := nova.CheckBatch(b.Records, nova.MaxBatchBytes); err != nil {
		return err
	}
	if n, most := frame.Head+frame.BatchSize(b), frameLimit(maxMessage); n > most {
		return fmt.Errorf("%w: the batch makes a message of %d bytes, the log takes %d", nova.ErrInvalid, n, most)
	}
	return nil
}

// frameLimit is the largest payload of a frame in a log that takes messages of so many bytes.
func frameLimit(maxMessage int) int { return min(maxMessage, nova.MaxBatchBytes+nova.MaxBatchBytes/8) }

// Append submits a batch and waits for its result. When ctx ends first, the batch may still come to be.
func (l *Leader) Append(ctx context.Context, a Append) (Result, error) {
	got := make(chan Result, 1)
	if err := l.Submit(ctx, a, func(r Result) { got <- r }); err != nil {
		return Result{}, err
	}
	select {
	case r := <-got:
		return r, r.Err
	case <-ctx.Done():
		return Result{}, &UnavailableError{Err: ctx.Err(), Indefinite: true}
	}
}

// Fence installs, rotates or clears the token, and answers the tail when that is in the log: every record below it was
// admitted under the token before. An equal token changes nothing.
func (l *Leader) Fence(ctx context.Context, token string) (nova.Position, error) {
	if err := nova.CheckToken(token); err != nil {
		return nova.Position{}, err
	}
	s, err := l.ask(ctx, item{fence: &token})
	return s.Tail, err
}

// Stands is the stream's state at some moment after the call.
func (l *Leader) Stands(ctx context.Context) (Standing, error) { return l.ask(ctx, item{}) }

func (l *Leader) ask(ctx context.Context, it item) (Standing, error) {
	type answer struct {
		s   Standing
		err error
	}
	got := make(chan answer, 1)
	it.stands = func(s Standing, err error) { got <- answer{s, err} }
	if err := l.enqueue(it); err != nil {
		return Standing{}, err
	}
	select {
	case a := <-got:
		return a.s, a.err
	case <-ctx.Done():
		return Standing{}, &UnavailableError{Err: ctx.Err(), Indefinite: it.fence != nil}
	}
}

// Stop refuses what comes from now on, commits what was admitted, hands the stream back, and ends the leader.
func (l *Leader) Stop(ctx context.Context) error {
	if err := l.enqueue(item{stop: true}); err != nil {
		return nil // it has ended
	}
	select {
	case <-l.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop leader: %w", ctx.Err())
	}
}

func (l *Leader) enqueue(it item) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		it.release()
		return &UnavailableError{Err: l.err}
	}
	l.submitted++
	it.number = l.submitted
	l.queue = append(l.queue, it)
	l.signal()
	return nil
}

func (l *Leader) replied(r jslog.Reply) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replies = append(l.replies, r)
	l.signal()
}

func (l *Leader) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}
