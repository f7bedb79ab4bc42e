package fold

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/puzpuzpuz/xsync/v4" // the concurrent map of Resident tables: reads without locks

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"

	foldv1 "github.com/typedfold/fold/gen/go/fold/v1"
)

// anyTable is a registered table without its types: what the sink drives.
type anyTable interface {
	base() *tableBase
	newPart() part
	// load fills residents and runs Load hooks from the store as it is on disk.
	load(context.Context, store.Store) error
	// runHooks runs Apply on the parts' events.
	runHooks(ctx context.Context, parts []part, hydrating bool) error
	// capture notes the rows before the batch for watchers that want them.
	capture(segs []*segment, parts []part) error
	// publish hands the parts' changes to residents and watchers, after they are committed.
	publish(segs []*segment, parts []part, hydrating bool)
	// stop ends the watchers.
	stop(error)
}

// part is one segment's share of one table.
type part interface {
	// take judges an update that has the table's key shape and keeps its place i.
	take(i int, u *kv.Update) *Rejection
	// places are where in the segment the table's row-changing updates are.
	places() []int32
	// decoded is the value of the update at a place, in the order of places; nil when the table does not decode.
	decoded(n int) proto.Message
	reset()
}

// tableBase is the part of a table's state that has no types.
type tableBase struct {
	c     *compiled
	index int
	count rowCounter

	indexes *tableIndexes // nil without
	entries *indexWriter  // nil without

	ready atomic.Bool // the store can be read
	shut  atomic.Bool // the fold is closing its store
}

func (b *tableBase) dropsAgedOut() bool { return b.c.table.OnAgeOut == foldv1.OnAgeOut_ON_AGE_OUT_DROP }

// removes reports whether the row is gone after an event of this kind.
func (b *tableBase) removes(op Op) bool { return op.Removes() || op == OpAgedOut && b.dropsAgedOut() }

// tableState is a registered table.
type tableState[K Key, V proto.Message] struct {
	tableBase
	desc      *Desc[K, V]
	hooks     Hooks[K, V]
	residents *xsync.Map[K, V] // nil unless Resident
	feed      feed
	store     store.Store // once ready
}

// started is nil once the fold has been started.
func (b *tableBase) started() error {
	if !b.ready.Load() {
		return fmt.Errorf("table %s: %w", b.c.name, ErrNotStarted)
	}
	return nil
}

// live is the store, from the fold's start until it closes it.
func (t *tableState[K, V]) live() (store.Store, error) {
	if err := t.started(); err != nil {
		return nil, err
	}
	if t.shut.Load() {
		return nil, fmt.Errorf("table %s: %w", t.c.name, store.ErrClosed)
	}
	return t.store, nil
}

func (t *tableState[K, V]) base() *tableBase { return &t.tableBase }

// decodes reports whether updates are decoded when they come, not only checked.
func (t *tableState[K, V]) decodes() bool { return t.residents != nil || t.hooks.Apply != nil }

func (t *tableState[K, V]) newPart() part { return &tablePart[K, V]{t: t} }

// tablePart is one segment's share of a table.
type tablePart[K Key, V proto.Message] struct {
	t       *tableState[K, V]
	at      []int32       // places in the segment of updates that change a row, dropped rows too
	events  []Event[K, V] // beside at, when the table decodes
	olds    []oldRow      // beside at, when a watcher wants old values
	scratch checkScratch
}

func (p *tablePart[K, V]) places() []int32 { return p.at }

func (p *tablePart[K, V]) decoded(n int) proto.Message {
	if n >= len(p.events) || p.events[n].Op != OpPut {
		return nil
	}
	return p.events[n].New
}

func (p *tablePart[K, V]) reset() {
	clear(p.events)
	clear(p.olds)
	p.at, p.events, p.olds = p.at[:0], p.events[:0], p.olds[:0]
}

func (p *tablePart[K, V]) take(i int, u *kv.Update) *Rejection {
	t := p.t
	if !t.decodes() {
		var rej *Rejection
		if u.Op == kv.OpPut {
			rej = t.desc.check(t.c, u, &p.scratch)
		} else if _, err := t.desc.cfg.ParseKey(u.Key); err != nil {
			rej = t.c.reject(u, KeySegment, err)
		}
		if rej == nil {
			p.at = append(p.at, int32(i))
		} else {
			p.drop(i, u)
		}
		return rej
	}
	ev, rej := t.desc.event(t.c, u)
	if rej != nil {
		p.drop(i, u)
		return rej
	}
	p.at = append(p.at, int32(i))
	p.events = append(p.events, ev)
	return nil
}

// drop notes the end of a row whose newest value was rejected, where that is what the table asked for.
func (p *tablePart[K, V]) drop(i int, u *kv.Update) {
	if p.t.c.table.OnReject != foldv1.OnReject_ON_REJECT_DROP_ROW {
		return
	}
	k, err := p.t.desc.cfg.ParseKey(u.Key)
	if err != nil {
		return // there is no row of such a key
	}
	p.at = append(p.at, int32(i))
	if !p.t.decodes() {
		return
	}
	p.events = append(p.events, Event[K, V]{Op: OpDelete, Reason: u.Reason, Key: k, Rev: Rev[K]{key: k, seq: u.Version.Rank()}, Time: u.Time()})
}

func (t *tableState[K, V]) runHooks(ctx context.Context, parts []part, hydrating bool) error {
	if t.hooks.Apply == nil {
		return nil
	}
	b := &hookBatch[K, V]{t: t, g: t.store}
	for _, p := range parts {
		b.events = append(b.events, p.(*tablePart[K, V]).events...)
	}
	if len(b.events) == 0 {
		return nil
	}
	for i := range b.events {
		e := &b.events[i]
		e.old, e.at, e.Hydrating = b, i, hydrating
	}
	return t.callApply(ctx, b.events)
}

func (t *tableState[K, V]) callApply(ctx context.Context, events []Event[K, V]) (err error) {
	fail := func(panicked bool, err error) error {
		return &HookError{Table: t.c.name, First: events[0].Rev.seq, Last: events[len(events)-1].Rev.seq, Panicked: panicked, Err: err}
	}
	defer func() {
		if p := recover(); p != nil {
			err = fail(true, fmt.Errorf("%v\n%s", p, debug.Stack()))
		}
	}()
	if err := t.hooks.Apply(ctx, events); err != nil {
		return fail(false, err)
	}
	return nil
}

func (t *tableState[K, V]) publish(segs []*segment, parts []part, hydrating bool) {
	if t.residents != nil {
		for _, p := range parts {
			t.publishResidents(p.(*tablePart[K, V]).events)
		}
	}
	if t.feed.active() {
		for i, p := range parts {
			p := p.(*tablePart[K, V])
			t.feed.publish(segs[i].updates, p.at, p.olds, hydrating)
		}
	}
}

func (t *tableState[K, V]) publishResidents(events []Event[K, V]) {
	for i := range events {
		switch e := &events[i]; {
		case e.Op == OpPut:
			t.residents.Store(e.Key, e.New)
		case t.removes(e.Op):
			t.residents.Delete(e.Key)
		}
	}
}

func (t *tableState[K, V]) stop(err error) { t.feed.stop(err) }

func (t *tableState[K, V]) load(ctx context.Context, s store.Store) error {
	t.store = s
	defer t.ready.Store(true)
	if t.residents == nil && t.hooks.Load == nil {
		return nil
	}
	snap, err := s.Snapshot()
	if err != nil {
		return fmt.Errorf("load table %s: %w", t.c.name, err)
	}
	defer func() { _ = snap.Close() }()
	view := &Table[K, V]{t: t, view: snap}
	if t.residents != nil {
		for row, err := range view.List(ctx, view.all()) {
			if err != nil {
				return fmt.Errorf("load table %s: %w", t.c.name, err)
			}
			t.residents.Store(row.Key, row.Value)
		}
	}
	if t.hooks.Load == nil {
		return nil
	}
	t.ready.Store(true) // the hook may read what is on disk
	return t.callLoad(ctx, view)
}

func (t *tableState[K, V]) callLoad(ctx context.Context, view *Table[K, V]) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &HookError{Table: t.c.name, Panicked: true, Err: fmt.Errorf("%v\n%s", p, debug.Stack())}
		}
	}()
	if err := t.hooks.Load(ctx, view.List(ctx, view.all())); err != nil {
		return &HookError{Table: t.c.name, Err: err}
	}
	return nil
}
