package fold

import (
	"bytes"
	"context"
	"encoding/binary"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/schema"
	"github.com/typedfold/fold/runtime/store"

	foldv1 "github.com/typedfold/fold/gen/go/fold/v1"
)

// refoldRows is how many rows a refold looks at in one batch, and between two reports of progress.
const refoldRows = 16_384

// refold judges every stored value of one table by its schema of now, in batches at an unchanged cursor. The first batch
// marks the table's record and the last one replaces it, so after a crash in between the next start, with whichever
// schema, judges all of them again. A batch depends on nothing but the rows, so it may come again.
type refold struct {
	*evolution
	plan     *tablePlan
	part     part
	progress RebuildProgress

	begun    bool
	rejected uint64 // keys with a rejected newest message, of all tables
	batch    store.Batch
	size     int
	value    store.Value

	refused, taken uint64 // rows that were accepted before, or were not
}

func (r *refold) run(ctx context.Context) error {
	var keys rejectedKeys
	if err := keys.load(r.store); err != nil {
		return err
	}
	r.rejected = keys.n.Load()
	table := r.plan.base().c.table
	for from := []byte(nil); ; {
		last, looked := true, 0
		err := eachStored(ctx, r.store, table, from, func(key []byte, nats string, at store.Iterator) (bool, error) {
			if looked == r.rows || r.full() {
				from, last = bytes.Clone(key), false
				return false, nil
			}
			value, err := at.Value()
			if err != nil {
				return false, err
			}
			rec, err := store.ParseRecord(value)
			if err != nil {
				return false, err
			}
			looked++
			return true, r.row(nats, &rec)
		})
		if err != nil {
			return err
		}
		if err := r.flush(ctx, last); err != nil {
			return err
		}
		r.progress.Done += uint64(looked)
		r.tell()
		if last {
			break
		}
	}
	r.log.Info("fold: rows judged again", "table", r.progress.Table, "rows", r.progress.Done, "class", r.plan.verdict.Class.String(),
		"rejected_now", r.refused, "accepted_now", r.taken)
	return nil
}

// judge is what the fold itself would say of the update.
func (r *refold) judge(u *kv.Update) *Rejection {
	defer r.part.reset()
	return r.part.take(0, u)
}

// row adds to the batch what the judgement of one key's newest value changes.
func (r *refold) row(key string, rec *store.Record) error {
	u := putOf(key, rec)
	rej := r.judge(&u)
	rejKey := store.AppendKey(nil, store.SpaceRejected, key)
	accKey := store.AppendKey(nil, store.SpaceAccepted, key)
	switch {
	case rej == nil && !rec.Rejected:
		return nil
	case rej == nil:
		r.taken++
		r.rejected--
		r.put(&u, false)
		r.op(store.Op{Key: rejKey, Delete: true})
		r.op(store.Op{Key: accKey, Delete: true})
		return nil
	case r.plan.base().c.table.OnReject == foldv1.OnReject_ON_REJECT_HALT:
		return &HaltError{Rejection: rej, Stored: true}
	}
	value, err := rej.AppendBinary(nil)
	if err != nil {
		return err
	}
	if !rec.Rejected {
		// The value was the last accepted one itself: there is no other to serve.
		r.refused++
		r.rejected++
		r.put(&u, true)
		r.op(store.Op{Key: rejKey, Value: value})
		r.op(store.Op{Key: accKey, Delete: true})
		return nil
	}
	same, err := r.is(rejKey, value)
	if err != nil {
		return err
	}
	if !same {
		r.op(store.Op{Key: rejKey, Value: value})
	}
	return r.accepted(key, accKey)
}

// accepted takes away the last accepted record of a rejected key when the schema does not serve it.
func (r *refold) accepted(key string, accKey []byte) error {
	ok, err := r.store.Get(accKey, &r.value)
	if err != nil || !ok {
		return err
	}
	defer r.value.Release()
	rec, err := store.ParseRecord(r.value.Bytes)
	if err != nil {
		return err
	}
	u := putOf(key, &rec)
	if r.plan.base().c.table.OnReject == foldv1.OnReject_ON_REJECT_DROP_ROW || r.judge(&u) != nil {
		r.op(store.Op{Key: accKey, Delete: true})
	}
	return nil
}

func (r *refold) is(key, value []byte) (bool, error) {
	ok, err := r.store.Get(key, &r.value)
	if err != nil || !ok {
		return false, err
	}
	defer r.value.Release()
	return bytes.Equal(r.value.Bytes, value), nil
}

// putOf is the update that a record was made of. Its value aliases the record's.
func putOf(key string, rec *store.Record) kv.Update {
	return kv.Update{Key: key, Value: rec.Value, ContentType: rec.ContentType, Version: rec.Version, UnixNano: rec.UnixNano,
		Op: kv.OpPut, Reason: kv.ReasonUser}
}

func (r *refold) put(u *kv.Update, rejected bool) {
	next := *u
	next.Value, next.Rejected = bytes.Clone(u.Value), rejected
	r.batch.Updates = append(r.batch.Updates, next)
	r.size += next.Size()
}

func (r *refold) op(op store.Op) {
	r.batch.Ops = append(r.batch.Ops, op)
	r.size += len(op.Key) + len(op.Value)
}

func (r *refold) full() bool {
	return len(r.batch.Ops)+len(r.batch.Updates) >= rebuildOps || r.size >= rebuildBytes
}

// flush commits what was gathered. The last batch is never left out: it has the table's record.
func (r *refold) flush(ctx context.Context, last bool) error {
	if !last && r.size == 0 {
		return nil
	}
	if r.size > 0 {
		r.op(store.Op{Key: store.MetaKey(metaRejected), Value: binary.AppendUvarint(nil, r.rejected)})
	}
	if !r.begun {
		if err := r.begin(last); err != nil {
			return err
		}
	}
	if last {
		if err := r.end(); err != nil {
			return err
		}
	}
	if err := r.store.Apply(ctx, &r.batch, r.store.Cursor()); err != nil {
		return err
	}
	r.begun = true
	clear(r.batch.Updates)
	clear(r.batch.Ops)
	r.batch.Updates, r.batch.Ops, r.size = r.batch.Updates[:0], r.batch.Ops[:0], 0
	return nil
}

// begin takes away what rests on the old judgement, and marks the table's record unless the batch is the only one.
func (r *refold) begin(only bool) error {
	if !only {
		r.op(r.plan.record(schema.Again(r.plan.stored, schema.AgainRefold)))
	}
	message := r.plan.message()
	r.op(store.Op{Key: store.MetaKey(metaCount + message), Delete: true})
	return eachKey(r.store, store.MetaKey(store.MetaIndex+message), func(key, _ []byte) {
		if of, _, ok := store.ParseIndexMark(key); ok && of == message {
			r.op(store.Op{Key: bytes.Clone(key), Delete: true})
		}
	})
}

// end notes the schema that the rows are judged by now. Where retention has been seen to remove values, and the table
// would have dropped such rows but did not, the fold can't be sure of what it holds, and says so.
func (r *refold) end() error {
	r.op(r.plan.record(r.plan.now))
	cursor := r.store.Cursor()
	if !r.plan.verdict.AgedOut || !cursor.SeenEvicting {
		return nil
	}
	owed, err := store.OwedOf(r.store)
	if err != nil {
		return err
	}
	owed = owed.Add(kv.OwesListing, cursor.Revision())
	r.log.Warn("fold: the table drops rows that retention removes, and may hold some that it removed before", "table", r.progress.Table)
	r.op(store.Op{Key: store.MetaKey(store.MetaOwed), Value: owed.AppendBytes(nil)})
	return nil
}

func (r *refold) tell() {
	r.log.Debug("fold: judging rows again", "table", r.progress.Table, "done", r.progress.Done, "total", r.progress.Total)
	if r.told != nil {
		r.told(r.progress)
	}
}
