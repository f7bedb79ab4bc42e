package fold

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"

	foldv1 "github.com/typedfold/fold/gen/go/fold/v1"
)

const metaRejected = "rejected"

// rejectedUpdate is one refused update of a segment.
type rejectedUpdate struct {
	at    int32
	table *tableBase
	rej   *Rejection
}

// rejectedKeys counts the keys whose newest message is rejected: while there are none, an accepted update has nothing
// to clean up, and costs nothing.
type rejectedKeys struct {
	n     atomic.Uint64
	delta int64
}

func (r *rejectedKeys) load(g store.Getter) error {
	b, err := store.Meta(g, metaRejected)
	if err != nil || b == nil {
		return err
	}
	n, size := binary.Uvarint(b)
	if size != len(b) {
		return fmt.Errorf("%w: number of rejected keys", store.ErrCorrupt)
	}
	r.n.Store(n)
	return nil
}

func (r *rejectedKeys) applied() {
	r.n.Add(uint64(r.delta))
	r.delta = 0
}

// keyFate is what a batch does to one key that has, or gets, a rejection.
type keyFate struct {
	was      bool // it had a rejection before the batch
	changed  bool // not by an update that leaves everything as it is
	accepted oldRow
	rej      *Rejection
}

// ops appends what is committed beside the raw updates about rejections: the rejection of each key whose newest
// message was refused, with the last accepted record beside it under KEEP_OLD, and the end of both for a key whose
// newest message is accepted again.
func (r *rejectedKeys) ops(g store.Getter, segs []*segment, ops []store.Op) ([]store.Op, error) {
	r.delta = 0
	refused := map[string]bool{}
	for _, s := range segs {
		for _, x := range s.rejected {
			refused[s.updates[x.at].Key] = true
		}
	}
	if len(refused) == 0 && r.n.Load() == 0 {
		return ops, nil
	}
	fates := map[string]*keyFate{}
	var order []string
	for _, s := range segs {
		next := s.rejected
		for i := range s.updates {
			u := &s.updates[i]
			var x *rejectedUpdate
			if len(next) > 0 && int(next[0].at) == i {
				x, next = &next[0], next[1:]
			}
			f, ok := fates[u.Key]
			if !ok {
				var err error
				if f, err = r.fate(g, u.Key, refused[u.Key]); err != nil {
					return ops, err
				}
				fates[u.Key] = f
				if f != nil {
					order = append(order, u.Key)
				}
			}
			if f != nil {
				f.update(u, x)
			}
		}
	}
	for _, key := range order {
		ops = r.keyOps(key, fates[key], ops)
	}
	n := r.n.Load() + uint64(r.delta)
	return append(ops, store.Op{Key: store.MetaKey(metaRejected), Value: binary.AppendUvarint(nil, n)}), nil
}

// fate is where a key stands before the batch; nil when neither has it a rejection nor does it get one.
func (r *rejectedKeys) fate(g store.Getter, key string, refused bool) (*keyFate, error) {
	var f keyFate
	if r.n.Load() > 0 {
		var v store.Value
		was, err := g.Get(store.AppendKey(nil, store.SpaceRejected, key), &v)
		if err != nil {
			return nil, err
		}
		v.Release()
		f.was = was
	}
	if !f.was && !refused {
		return nil, nil
	}
	var err error
	f.accepted, err = acceptedRecord(g, key)
	return &f, err
}

func (f *keyFate) update(u *kv.Update, x *rejectedUpdate) {
	f.changed = f.changed || x != nil || u.Op != kv.OpAgedOut
	switch {
	case x != nil:
		f.rej = x.rej
		if x.table.c.table.OnReject == foldv1.OnReject_ON_REJECT_DROP_ROW {
			f.accepted = oldRow{}
		}
	case u.Op == kv.OpPut:
		f.rej, f.accepted = nil, oldRow{record: store.AppendRecord(nil, u), ok: true}
	case u.Op.Removes():
		f.rej, f.accepted = nil, oldRow{}
	}
}

func (r *rejectedKeys) keyOps(key string, f *keyFate, ops []store.Op) []store.Op {
	if !f.changed {
		return ops
	}
	rejKey, accKey := store.AppendKey(nil, store.SpaceRejected, key), store.AppendKey(nil, store.SpaceAccepted, key)
	if f.rej == nil {
		if f.was {
			r.delta--
			ops = append(ops, store.Op{Key: rejKey, Delete: true}, store.Op{Key: accKey, Delete: true})
		}
		return ops
	}
	if !f.was {
		r.delta++
	}
	value, err := f.rej.AppendBinary(nil)
	if err != nil {
		return ops // the codes of this package are all known to it
	}
	ops = append(ops, store.Op{Key: rejKey, Value: value})
	if f.accepted.ok {
		return append(ops, store.Op{Key: accKey, Value: f.accepted.record})
	}
	return append(ops, store.Op{Key: accKey, Delete: true})
}
