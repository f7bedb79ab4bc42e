package kvtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/typedfold/fold/runtime/kv"
)

// ErrInjected is what a failing Fault returns when it names no error of its own.
var ErrInjected = errors.New("injected fault")

// Point is a kind of call where a Fault takes effect.
type Point uint8

const (
	// PointInfo is Log.Info.
	PointInfo Point = iota
	// PointOpen is Log.Open.
	PointOpen
	// PointNext is Next of any of the log's watches.
	PointNext
	// PointDelivery is a Next that is about to return updates.
	PointDelivery
	// PointRead is Log.Get and Log.Entry.
	PointRead
	// PointList is Log.Keys, Log.LastVersions and Log.Scan, when iteration begins.
	PointList
	// PointWrite is Put, Create, Update, Delete and WriteBatch.
	PointWrite

	pointCount
)

// Shape is how a delivery is bent.
type Shape uint8

const (
	// ShapeTrue leaves the delivery as it is.
	ShapeTrue Shape = iota
	// ShapeDuplicate delivers again what the watch delivered last, before the new updates; on the first delivery its
	// own first update comes twice.
	ShapeDuplicate
	// ShapeUnknownVersion takes the version off the delivery's last update, and the frontier stays before it.
	ShapeUnknownVersion
	// ShapeGap loses the delivery's first update without a word.
	ShapeGap
)

// Fault is one scripted misbehaviour. Its effects happen in the order of the fields.
type Fault struct {
	// At is where; Skip is how many calls of that point pass first, counted from Inject; Times is how many calls it
	// then hits, default 1.
	At    Point
	Skip  int
	Times int

	// Do runs first, with no lock held: for a writer, an eviction or an edit that comes in between.
	Do func(l *Log)
	// Delay holds the call that long, or until its context ends; negative is until its context ends. A write held till
	// then was not done, and its caller is told that it can't know.
	Delay time.Duration
	// Err fails the call; nothing was done. Fail is the same with ErrInjected (at PointNext: kv.ErrWatchLost).
	Err  error
	Fail bool

	// After (PointList): the fault takes effect once this many of the keys' last messages have been listed, tombstones
	// included; on a listing of fewer it has none. Short ends the listing there without a word, as one that misses the rest.
	After int
	Short bool
	// AnswerLost (PointWrite): the write is done, and the caller gets kv.ErrOutcomeUnknown.
	AnswerLost bool
	// Unchecked (PointOpen): the window and identity checks are left out, as JetStream does: a start below the first
	// revision is clamped and one past the end waits, both without a word.
	Unchecked bool
	// Stale (PointInfo): the answer of the Info call before.
	Stale bool
	// Limit (PointNext): at most this many updates, when not 0.
	Limit int
	// Shape (PointDelivery) bends the delivery.
	Shape Shape
}

type armedFault struct {
	Fault
	from, to int // call numbers, both inclusive
}

// Inject arms faults; several may hit the same call.
func (l *Log) Inject(faults ...Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range faults {
		from := l.calls[f.At] + f.Skip + 1
		l.faults = append(l.faults, &armedFault{Fault: f, from: from, to: from + max(f.Times, 1) - 1})
	}
}

// Calls is how many calls of a point there were, for tests that place a fault at each of them in turn.
func (l *Log) Calls(p Point) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls[p]
}

// ClearFaults disarms all faults.
func (l *Log) ClearFaults() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = nil
}

// effects are what is left of a call's faults once Do, Delay and Err have had their turn.
type effects struct {
	answerLost, unchecked, stale bool
	limit                        int
	shape                        Shape
	short                        bool
	later                        []Fault // of a listing that has begun
}

// enter counts a call and lets its faults act; an error is what the call returns.
func (l *Log) enter(ctx context.Context, p Point, op string) (effects, error) {
	var e effects
	if err := ctx.Err(); err != nil {
		return e, fmt.Errorf("%s: %w", op, err)
	}
	for _, f := range l.hit(p) {
		if p == PointList && f.After > 0 {
			e.later = append(e.later, f)
		} else if err := l.act(ctx, f, &e); err != nil {
			return e, fmt.Errorf("%s: %w", op, err)
		}
	}
	return e, nil
}

// act lets one fault act; an error is what the call fails with.
func (l *Log) act(ctx context.Context, f Fault, e *effects) error {
	if f.Do != nil {
		f.Do(l)
	}
	if err := hold(ctx, f.Delay); err != nil && f.At == PointWrite {
		return fmt.Errorf("%w: %w", kv.ErrOutcomeUnknown, err)
	} else if err != nil {
		return err
	}
	if err := f.failure(); err != nil {
		return err
	}
	e.answerLost = e.answerLost || f.AnswerLost
	e.unchecked = e.unchecked || f.Unchecked
	e.stale = e.stale || f.Stale
	e.short = e.short || f.Short
	if f.Limit > 0 && (e.limit == 0 || f.Limit < e.limit) {
		e.limit = f.Limit
	}
	e.shape = max(e.shape, f.Shape)
	return nil
}

// listed lets the faults of a listing act that wait for n of its messages.
func (l *Log) listed(ctx context.Context, n int, e *effects) error {
	for _, f := range e.later {
		if f.After == n {
			if err := l.act(ctx, f, e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *Log) hit(p Point) []Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[p]++
	n := l.calls[p]
	var hit []Fault
	l.faults = slices.DeleteFunc(l.faults, func(f *armedFault) bool {
		if f.At != p || n < f.from {
			return false
		}
		if n <= f.to {
			hit = append(hit, f.Fault)
		}
		return n >= f.to
	})
	return hit
}

func (f *Fault) failure() error {
	switch {
	case f.Err != nil:
		return f.Err
	case f.Fail && f.At == PointNext:
		return fmt.Errorf("%w: %w", kv.ErrWatchLost, ErrInjected)
	case f.Fail:
		return ErrInjected
	}
	return nil
}

func hold(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	var over <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
