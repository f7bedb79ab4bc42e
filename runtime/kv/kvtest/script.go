package kvtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/typedfold/fold/runtime/kv"
)

// ErrScriptOver is what an open past the end of the script returns.
var ErrScriptOver = errors.New("the script is over")

// Turn is what one Next call does.
type Turn struct {
	// Wait, when not nil, is waited for first, or until the context ends.
	Wait <-chan struct{}
	// Delivery is handed out as it is, whatever the caller's limits are.
	Delivery kv.Delivery
	// Err, when not nil, is returned instead; the watch has ended then.
	Err error
}

// Deliver is a turn that hands out these updates, with the last one's revision as the frontier.
func Deliver(updates ...kv.Update) Turn {
	d := kv.Delivery{Updates: updates}
	if len(updates) > 0 {
		d.Frontier = updates[len(updates)-1].Version.Rank()
	}
	return Turn{Delivery: d}
}

// Opening is one answer to Open.
type Opening struct {
	// Err, when not nil, is what Open returns.
	Err error
	// Info is the watch's Info.
	Info kv.LogInfo
	// Turns are what Next does, in order.
	Turns []Turn
	// End, when not nil, is what Next returns after the last turn; else it waits until its context ends or the watch is
	// closed.
	End error
}

// Script is a kv.Watcher that does what a test wrote down and notes what it was asked. It is safe for concurrent use.
type Script struct {
	mu       sync.Mutex
	info     kv.LogInfo
	infoErr  error
	openings []Opening
	opens    []kv.OpenRequest
	closed   int
}

var _ kv.Watcher = (*Script)(nil)

// NewScript is a watcher whose opens get these answers, in order. Further opens fail with ErrScriptOver.
func NewScript(info kv.LogInfo, openings ...Opening) *Script {
	return &Script{info: info, openings: openings}
}

// Then adds answers.
func (s *Script) Then(openings ...Opening) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.openings = append(s.openings, openings...)
}

// SetInfo changes the answer of Info.
func (s *Script) SetInfo(info kv.LogInfo, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info, s.infoErr = info, err
}

// Opens are the requests so far.
func (s *Script) Opens() []kv.OpenRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.opens)
}

// Closed is how many of the watches were closed.
func (s *Script) Closed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Info is the scripted answer.
func (s *Script) Info(ctx context.Context) (kv.LogInfo, error) {
	if err := ctx.Err(); err != nil {
		return kv.LogInfo{}, fmt.Errorf("read log info: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info, s.infoErr
}

// Open notes the request and gives the next answer.
func (s *Script) Open(ctx context.Context, req kv.OpenRequest) (kv.Watch, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open watch: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opens = append(s.opens, req)
	if len(s.openings) == 0 {
		return nil, fmt.Errorf("open watch: %w", ErrScriptOver)
	}
	o := s.openings[0]
	s.openings = s.openings[1:]
	if o.Err != nil {
		return nil, o.Err
	}
	return &scriptedWatch{script: s, opening: o, done: make(chan struct{})}, nil
}

type scriptedWatch struct {
	script  *Script
	opening Opening
	turn    int
	err     error
	close   sync.Once
	done    chan struct{}
}

func (w *scriptedWatch) Info() kv.LogInfo { return w.opening.Info }

func (w *scriptedWatch) Next(ctx context.Context, into kv.Delivery, _, _ int) (kv.Delivery, error) {
	if w.err != nil {
		return into, w.err
	}
	t := Turn{Err: w.opening.End}
	if w.turn < len(w.opening.Turns) {
		t = w.opening.Turns[w.turn]
		w.turn++
	} else if t.Err == nil {
		t.Wait = make(chan struct{})
	}
	if w.err = w.wait(ctx, t.Wait); w.err == nil {
		w.err = t.Err
	}
	if w.err != nil {
		return into, w.err
	}
	into.Updates = append(into.Updates, t.Delivery.Updates...)
	into.Frontier, into.Pending = t.Delivery.Frontier, t.Delivery.Pending
	return into, nil
}

func (w *scriptedWatch) wait(ctx context.Context, until <-chan struct{}) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	select {
	case <-w.done:
		return fmt.Errorf("watch closed: %w", kv.ErrWatchLost)
	default:
	}
	if until == nil {
		return nil
	}
	select {
	case <-until:
		return nil
	case <-w.done:
		return fmt.Errorf("watch closed: %w", kv.ErrWatchLost)
	case <-ctx.Done():
		return fmt.Errorf("watch: %w", ctx.Err())
	}
}

func (w *scriptedWatch) Close(context.Context) error {
	w.close.Do(func() {
		w.script.mu.Lock()
		w.script.closed++
		w.script.mu.Unlock()
		close(w.done)
	})
	return nil
}
