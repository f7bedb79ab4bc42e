package fold

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"

	foldv1 "github.com/typedfold/fold/gen/go/fold/v1"
)

// maxUnmatched is how many first tokens of keys of no table are told apart.
const maxUnmatched = 64

// tableSink feeds a fold's tables.
type tableSink struct {
	tables   []anyTable
	byToken  map[string][]anyTable // by the first token of their keys
	only     anyTable              // when there is one table
	store    store.Store
	events   Events
	hydrated atomic.Bool

	commits  sync.Mutex // held from the ops of a batch until its outcome is known
	rejected rejectedKeys

	mu    sync.Mutex
	stats sinkStats
}

// sinkStats are what Status tells of updates.
type sinkStats struct {
	updates    uint64
	rejections uint64
	unmatched  map[string]uint64 // by first token; "" for those past the cap
}

func newTableSink(tables []anyTable, s store.Store, ev Events) *tableSink {
	k := &tableSink{tables: tables, store: s, events: ev, byToken: map[string][]anyTable{}}
	k.stats.unmatched = map[string]uint64{}
	for _, t := range tables {
		first := t.base().c.table.Pattern[0].Literal
		k.byToken[first] = append(k.byToken[first], t)
	}
	if len(tables) == 1 {
		k.only = tables[0]
	}
	return k
}

// table is the table that the key has the shape of, if there is one; patterns don't overlap, so there is at most one.
func (k *tableSink) table(key string) anyTable {
	if k.only != nil {
		if k.only.base().c.table.Matches(key) {
			return k.only
		}
		return nil
	}
	for _, t := range k.byToken[firstToken(key)] {
		if t.base().c.table.Matches(key) {
			return t
		}
	}
	return nil
}

func firstToken(key string) string {
	if dot := strings.IndexByte(key, '.'); dot >= 0 {
		return key[:dot]
	}
	return key
}

func (k *tableSink) prepare(seg *segment, from int) {
	for len(seg.parts) < len(k.tables) {
		seg.parts = append(seg.parts, k.tables[len(seg.parts)].newPart())
	}
	for i := from; i < len(seg.updates); i++ {
		u := &seg.updates[i]
		t := k.table(u.Key)
		if t == nil {
			seg.unmatched = append(seg.unmatched, int32(i))
			continue
		}
		b := t.base()
		rej := seg.parts[b.index].take(i, u)
		switch {
		case rej != nil && u.Op == kv.OpPut:
			u.Rejected = true
			seg.rejected = append(seg.rejected, rejectedUpdate{at: int32(i), table: b, rej: rej})
		case u.Op == kv.OpAgedOut && b.dropsAgedOut():
			u.Op = kv.OpDelete // its reason still says what it was
		}
	}
}

func (k *tableSink) parts(segs []*segment, table int) []part {
	parts := make([]part, len(segs))
	for i, s := range segs {
		parts[i] = s.parts[table]
	}
	return parts
}

func (k *tableSink) hooks(ctx context.Context, segs []*segment) error {
	for _, s := range segs {
		for _, r := range s.rejected {
			if r.table.c.table.OnReject == foldv1.OnReject_ON_REJECT_HALT {
				return &HaltError{Rejection: r.rej}
			}
		}
	}
	for i, t := range k.tables {
		if err := t.runHooks(ctx, k.parts(segs, i), !k.hydrated.Load()); err != nil {
			return err
		}
	}
	return nil
}

// ops locks commits until applied.
func (k *tableSink) ops(segs []*segment, ops []store.Op) (_ []store.Op, err error) {
	k.commits.Lock()
	for i, t := range k.tables {
		parts := k.parts(segs, i)
		if err := t.capture(segs, parts); err != nil {
			return ops, err
		}
		b := t.base()
		places := func(n int) []int32 { return parts[n].places() }
		if ops, err = b.count.ops(k.store, segs, places, ops); err != nil {
			return ops, err
		}
		if b.entries == nil {
			continue
		}
		if k.hydrated.Load() {
			b.entries.fresh = nil // few keys are new from now on
		}
		if ops, err = b.entries.ops(k.store, segs, parts, ops); err != nil {
			return ops, fmt.Errorf("indexes of table %s: %w", b.c.name, err)
		}
	}
	return k.rejected.ops(k.store, segs, ops)
}

func (k *tableSink) applied(err error) {
	if err == nil {
		for _, t := range k.tables {
			t.base().count.applied()
		}
		k.rejected.applied()
	}
	k.commits.Unlock()
}

func (k *tableSink) committed(segs []*segment, _ kv.Cursor) {
	hydrating := !k.hydrated.Load()
	for i, t := range k.tables {
		t.publish(segs, k.parts(segs, i), hydrating)
	}
	if f := k.events.Rejected; f != nil {
		for _, s := range segs {
			for _, r := range s.rejected {
				f(r.rej)
			}
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range segs {
		k.stats.updates += uint64(len(s.updates))
		k.stats.rejections += uint64(len(s.rejected))
		for _, i := range s.unmatched {
			k.stats.countUnmatched(firstToken(s.updates[i].Key))
		}
	}
}

func (s *sinkStats) countUnmatched(token string) {
	if _, ok := s.unmatched[token]; !ok && len(s.unmatched) >= maxUnmatched {
		token = ""
	}
	s.unmatched[strings.Clone(token)]++
}
