package fold

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/repair"
	"github.com/typedfold/fold/runtime/schema"
	"github.com/typedfold/fold/runtime/store"
)

// evolution makes what a store says of its tables' schemas, and the judgement of its rows, that of the tables of this
// run, before anything is folded.
type evolution struct {
	store  store.Store
	tables []anyTable
	log    *slog.Logger
	told   func(RebuildProgress)
	rows   int // looked at in one batch
}

// tablePlan is what is to be done about one table.
type tablePlan struct {
	table   anyTable
	stored  string // its record in the store; "" for none
	now     string
	verdict schema.Verdict
	rows    uint64 // stored values under its keys, counted where they are to be judged again
}

func (p *tablePlan) base() *tableBase { return p.table.base() }

func (p *tablePlan) message() string { return string(p.base().c.table.Message) }

// record is the op that notes the table's schema.
func (p *tablePlan) record(text string) store.Op {
	return store.Op{Key: store.MetaKey(store.MetaSchema + p.message()), Value: []byte(text)}
}

// plan judges every table's schema by the records in the store. A schema that does not fit is refused before anything is
// changed.
func (e *evolution) plan(ctx context.Context) ([]*tablePlan, error) {
	var plans []*tablePlan
	refused, err := renamed(e.store, e.tables)
	if err != nil {
		return nil, err
	}
	for _, t := range e.tables {
		p := &tablePlan{table: t, now: t.base().c.table.Record()}
		stored, err := store.Meta(e.store, store.MetaSchema+p.message())
		if err != nil {
			return nil, err
		}
		p.stored = string(stored)
		p.verdict = schema.Classify(p.stored, p.now)
		if p.verdict.Class == schema.Breaking {
			refused = append(refused, schemaError(p.message(), p.stored, p.now, p.verdict))
		}
		plans = append(plans, p)
	}
	if len(refused) > 0 {
		return nil, errors.Join(refused...)
	}
	for _, p := range plans {
		if p.verdict.Class != schema.Refold {
			continue
		}
		err := eachStored(ctx, e.store, p.base().c.table, nil, func([]byte, string, store.Iterator) (bool, error) { p.rows++; return true, nil })
		if err != nil {
			return nil, fmt.Errorf("count rows of table %s: %w", p.base().c.name, err)
		}
	}
	return plans, nil
}

// renamed finds the tables whose keys were those of another message: the store has its record, and it is not among the
// tables, which could not both be registered.
func renamed(g store.Getter, tables []anyTable) (refused []error, err error) {
	have := map[string]bool{}
	for _, t := range tables {
		have[string(t.base().c.table.Message)] = true
	}
	prefix := store.MetaKey(store.MetaSchema)
	err = eachKey(g, prefix, func(key, value []byte) {
		if have[string(bytes.TrimPrefix(key, prefix))] {
			return
		}
		stored := string(value)
		for _, t := range tables {
			table := t.base().c.table
			if _, overlap := schema.OverlapRecord(stored, table); overlap {
				now := table.Record()
				refused = append(refused, schemaError(string(table.Message), stored, now, schema.Classify(stored, now)))
			}
		}
	})
	return refused, err
}

func schemaError(message, stored, now string, v schema.Verdict) *SchemaError {
	return &SchemaError{Table: message, Stored: stored, Now: now, Diff: v.String(), Verdict: v}
}

// ops are the changes that need no look at rows: the records of tables that fit as they are, and a mark on those of
// tables that this run does not have, since it stores their rows unjudged.
func (e *evolution) ops(plans []*tablePlan) (ops []store.Op, err error) {
	have := map[string]bool{}
	for _, p := range plans {
		have[p.message()] = true
		if p.stored == p.now || p.rows > 0 {
			continue
		}
		ops = append(ops, p.record(p.now))
		if p.stored != "" {
			e.log.Info("fold: schema changed", "table", p.base().c.name, "class", p.verdict.Class.String())
		}
	}
	prefix := store.MetaKey(store.MetaSchema)
	err = eachKey(e.store, prefix, func(key, value []byte) {
		if have[string(bytes.TrimPrefix(key, prefix))] {
			return
		}
		if marked := schema.Again(string(value), schema.AgainUnregistered); marked != string(value) {
			ops = append(ops, store.Op{Key: bytes.Clone(key), Value: []byte(marked)})
		}
	})
	return ops, err
}

// refold judges again the rows of the tables that need it.
func (e *evolution) refold(ctx context.Context, plans []*tablePlan) error {
	for _, p := range plans {
		if p.rows == 0 {
			continue
		}
		r := refold{evolution: e, plan: p, part: p.table.newPart()}
		r.progress = RebuildProgress{Table: p.base().c.name, Total: p.rows}
		if err := r.run(ctx); err != nil {
			return fmt.Errorf("judge rows of table %s again: %w", p.base().c.name, err)
		}
	}
	return nil
}

// fits judges the schemas under which an artifact was folded by those of the tables. What a restore takes over of it is
// judged by the tables then, row by row.
func (k *tableSink) fits(artifact store.Snapshot) (fit repair.Fit, err error) {
	refused, err := renamed(artifact, k.tables)
	if err != nil {
		return fit, err
	}
	for _, t := range k.tables {
		table := t.base().c.table
		stored, err := store.Meta(artifact, store.MetaSchema+string(table.Message))
		if err != nil {
			return fit, err
		}
		now := table.Record()
		v := schema.Classify(string(stored), now)
		if v.Class == schema.Breaking {
			refused = append(refused, schemaError(string(table.Message), string(stored), now, v))
		}
		if v.AgedOut && artifact.Cursor().SeenEvicting {
			fit.Owes |= kv.OwesListing
		}
	}
	fit.Refused = errors.Join(refused...)
	return fit, nil
}

// eachStored calls f with each stored value under the table's keys: the store key, the NATS key, and the iterator at the
// value. It begins at a store key, or with nil at the first, and ends early when f is false or fails.
func eachStored(ctx context.Context, g store.Getter, t *schema.Table, from []byte, f func(key []byte, nats string, at store.Iterator) (bool, error)) error {
	lower := store.AppendKey(nil, store.SpaceData, t.Prefix())
	upper := store.PrefixEnd(lower)
	if t.Singleton() {
		upper = append(bytes.Clone(lower), 0)
	}
	it, err := g.Iter(store.IterOptions{Lower: maxKey(lower, from), Upper: upper})
	if err != nil {
		return err
	}
	for more := true; more && err == nil && it.Next(); {
		if err = ctx.Err(); err != nil {
			break
		}
		if key := store.NATSKey(it.Key()); t.Matches(key) {
			more, err = f(it.Key(), key, it)
		}
	}
	err = cmp.Or(err, it.Err())
	return cmp.Or(err, it.Close())
}

// eachKey calls f with each key of a prefix and its value, which are valid until it returns.
func eachKey(g store.Getter, prefix []byte, f func(key, value []byte)) error {
	it, err := g.Iter(store.IterOptions{Lower: prefix, Upper: store.PrefixEnd(prefix)})
	if err != nil {
		return err
	}
	for it.Next() {
		var value []byte
		if value, err = it.Value(); err != nil {
			break
		}
		f(it.Key(), value)
	}
	err = cmp.Or(err, it.Err())
	return cmp.Or(err, it.Close())
}
