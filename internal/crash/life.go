package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/storetest"
)

// life is a store's life on a disk whose power is cut all along.
type life struct {
	name  string
	line  string // the command that lives it again
	seed  uint64
	mode  storetest.Mode
	truth *truth
	disk  func() disk
	plan  plan
	again plan // for the disks that are opened with power cuts of their own
	tally *tally

	looked atomic.Int64
}

// run lives the life, and looks at all disks that the power cuts left.
func (l *life) run(ctx context.Context) {
	left := newParallel(func(m moment) { l.judge(ctx, &m) })
	d := l.disk()
	w := &watch{plan: l.plan, disk: d, out: left.add}
	err := l.live(ctx, d, w)
	left.wait()
	l.tally.failed(l.name, err, l.replay(nil))
}

// replay is the command that shows the moment again.
func (l *life) replay(m *moment) string {
	if m == nil {
		return l.line
	}
	return fmt.Sprintf("%s -op %d -percent %d -cut %d", l.line, m.op, m.percent, m.seed)
}

// live is the life itself: two times it is opened and closed, with batches, syncs, a settling and two exports.
func (l *life) live(ctx context.Context, d disk, w *watch) error {
	for _, run := range []lifeRun{
		{from: 1, to: 60, sync: 12, export: 25, settle: 45},
		{from: 61, to: 85, sync: 64, export: 75},
	} {
		if err := l.liveOnce(ctx, d, w, run); err != nil {
			return err
		}
	}
	w.end()
	return nil
}

// lifeRun is one time that a store is open: the batches, and those after which there is more to do.
type lifeRun struct {
	from, to, sync, export, settle uint64
}

func (l *life) liveOnce(ctx context.Context, d disk, w *watch, r lifeRun) error {
	s, err := d.open(storeDir, l.mode, w.tell)
	if err != nil {
		return err
	}
	w.uses(s)
	for n := r.from; n <= r.to && err == nil; n++ {
		if err = l.apply(ctx, s, w, n); err != nil {
			break
		}
		switch n {
		case r.sync:
			if err = s.Sync(ctx); err == nil {
				w.promised(n)
			}
		case r.settle:
			err = s.Settle(ctx)
		case r.export:
			dir := fmt.Sprintf("exports/%d", n)
			w.exporting(dir, n)
			if err = s.Export(ctx, dir); err == nil {
				w.exported()
			}
		}
	}
	err = errors.Join(err, s.Close())
	w.uses(nil)
	if err == nil {
		w.promised(r.to)
	}
	return err
}

func (l *life) apply(ctx context.Context, s store.Store, w *watch, n uint64) error {
	w.begin(n)
	b, c := l.truth.batch(n)
	if err := s.Apply(ctx, b, c); err != nil {
		return err
	}
	if l.mode == storetest.ModeSync {
		w.promised(n)
	}
	return nil
}

// judge looks at one disk, and counts it.
func (l *life) judge(ctx context.Context, m *moment) {
	nth := l.looked.Add(1)
	var again disk
	if l.plan.nested != 0 && nth%int64(l.plan.nested) == 0 {
		again = m.disk.cut(0, nil) // all that a power cut left is on the disk
	}
	err := within(lookLimit, func() error { return l.look(ctx, m) })
	if err != nil {
		err = fmt.Errorf("%v: %w", m, err)
	}
	l.tally.clone(l.name, err, l.replay(m))
	if again != nil {
		l.reopen(ctx, again, m)
	}
}

// reopen opens what a power cut left, with power cuts all along.
func (l *life) reopen(ctx context.Context, d disk, m *moment) {
	var left []moment
	w := &watch{plan: l.again, disk: d, durable: m.durable, begun: m.begun, out: func(m moment) { left = append(left, m) }}
	err := l.reopened(ctx, d, w)
	if err != nil {
		l.tally.failed(l.name+" opened again", fmt.Errorf("%v: %w", m, err), l.replay(m))
	}
	for _, n := range left {
		err := within(lookLimit, func() error { return l.look(ctx, &n) })
		if err != nil {
			err = fmt.Errorf("%v; opened again, %v: %w", m, &n, err)
		}
		l.tally.clone(l.name+" opened again", err, l.replay(m))
	}
}

func (l *life) reopened(ctx context.Context, d disk, w *watch) error {
	s, err := d.open(storeDir, l.mode, w.tell)
	if err != nil {
		return err
	}
	w.uses(s)
	n := s.Cursor().Revision()
	err = errors.Join(l.apply(ctx, s, w, n+1), l.apply(ctx, s, w, n+2), s.Close())
	w.uses(nil)
	if err == nil {
		w.promised(n + 2)
	}
	w.end()
	return err
}

// look opens the disk and applies the oracle: the store holds the fold at its own cursor, which is not behind what was
// durable; a second power cut changes nothing; an export opens at the same cursor; and the store goes on.
func (l *life) look(ctx context.Context, m *moment) (err error) {
	s, err := m.disk.open(storeDir, l.mode, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := l.truth.checkAt(s, m.durable, m.begun); err != nil {
		return err
	}
	c := s.Cursor()
	if c.Revision() < m.begun {
		l.tally.note(l.name + ", lost a tail")
	}
	if err := l.same(m.disk.cut(0, nil), c); err != nil {
		return fmt.Errorf("a second power cut: %w", err)
	}
	if err := s.Export(ctx, "exports/after"); err != nil {
		return err
	}
	if err := l.copyAt(m.disk, "exports/after", c); err != nil {
		return fmt.Errorf("its export: %w", err)
	}
	if err := l.copies(m); err != nil {
		return err
	}
	b, next := l.truth.batch(c.Revision() + 1)
	if err := s.Apply(ctx, b, next); err != nil {
		return err
	}
	if err := l.truth.scan(s); err != nil {
		return fmt.Errorf("going on: %w", err)
	}
	return nil
}

// same tells whether the store on d opens at cursor c.
func (l *life) same(d disk, c kv.Cursor) error {
	s, err := d.open(storeDir, l.mode, nil)
	if err != nil {
		return err
	}
	if s.Cursor() != c {
		err = fmt.Errorf("cursor %v after %v", s.Cursor(), c)
	}
	return errors.Join(err, l.truth.scan(s), s.Close())
}

func (l *life) copyAt(d disk, dir string, c kv.Cursor) error {
	s, err := d.openCopy(dir)
	if err != nil {
		return err
	}
	if s.Cursor() != c {
		err = fmt.Errorf("cursor %v, want %v", s.Cursor(), c)
	}
	return errors.Join(err, l.truth.scan(s), s.Close())
}

// copies looks at the exports that were made before the power cut. One that was done is there. What there is of one that
// was not does not open, or can't be read, or is a fold at its own cursor.
func (l *life) copies(m *moment) error {
	for _, e := range m.exports {
		if e.done {
			_, c := l.truth.batch(e.revision)
			if err := l.copyAt(m.disk, e.dir, c); err != nil {
				return fmt.Errorf("the export at %d: %w", e.revision, err)
			}
			continue
		}
		s, err := m.disk.openCopy(e.dir)
		if err != nil {
			continue
		}
		l.tally.note(l.name + ", opened an export that was not done")
		err = l.truth.scan(s)
		_ = s.Close()
		var wrong *rowError
		if errors.As(err, &wrong) {
			return fmt.Errorf("what there is of the export at %d: %w", e.revision, err)
		}
		if err != nil {
			l.tally.note(l.name + ", such an export that can't be read")
		}
	}
	return nil
}
