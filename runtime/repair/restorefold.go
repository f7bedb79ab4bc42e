package repair

import (
	"context"
	"fmt"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// chunkBytes is how much of keys and values is folded together at most, but for a single key.
const chunkBytes = 4 << 20

// fold makes the changes: the puts first, then the deletes.
func (x *restoring) fold(ctx context.Context, d *difference, local, remote store.Snapshot) error {
	x.p.at.enter(stageFolding)
	c := &chunks{to: x.p.to, r: x.r, at: &x.p.at, max: x.p.o.Chunk}
	rows, err := d.taken.read()
	if err != nil {
		return err
	}
	var puts []Change
	for rows.next() {
		if puts, err = putsOf(puts[:0], rows.key, rows.version, local, remote); err != nil {
			return err
		}
		if err := c.add(ctx, puts...); err != nil {
			return err
		}
	}
	if rows.err != nil {
		return rows.err
	}
	if rows, err = d.vanished.read(); err != nil {
		return err
	}
	for rows.next() {
		u := kv.Update{Key: store.NATSKey(dataKey(rows.key)), Op: kv.OpDelete, Reason: kv.ReasonRepair}
		if err := c.add(ctx, Change{Update: u, Expect: rows.version}); err != nil {
			return err
		}
	}
	if rows.err != nil {
		return rows.err
	}
	return c.flush(ctx)
}

// putsOf appends the changes that take over one key: its newest message, and before it the last accepted one where the
// artifact refused the newest and has a later accepted one than the fold. A fold then refuses or takes either for itself.
func putsOf(puts []Change, ordered []byte, expect kv.Version, local, remote store.Snapshot) ([]Change, error) {
	key := dataKey(ordered)
	newest, ok, err := recordOf(remote, key)
	if err != nil {
		return puts, fmt.Errorf("read artifact: %w", err)
	}
	if !ok {
		return puts, fmt.Errorf("read artifact: %w: a key is gone from a view", store.ErrCorrupt)
	}
	if newest.Rejected {
		accepted, ok, err := acceptedOf(remote, key)
		if err != nil {
			return puts, fmt.Errorf("read artifact: %w", err)
		}
		served, err := servedRank(local, key)
		if err != nil {
			return puts, fmt.Errorf("read the fold: %w", err)
		}
		if ok && accepted.Version.Rank() > served {
			puts = append(puts, Change{Update: putOf(key, accepted), Expect: expect})
		}
	}
	return append(puts, Change{Update: putOf(key, newest), Expect: expect}), nil
}

func putOf(key []byte, r store.Record) kv.Update {
	return kv.Update{Key: store.NATSKey(key), Value: r.Value, ContentType: r.ContentType, Version: r.Version, UnixNano: r.UnixNano,
		Op: kv.OpPut, Reason: kv.ReasonUser}
}

// recordOf reads a record, with a value of its own.
func recordOf(g store.Getter, key []byte) (r store.Record, ok bool, err error) {
	var v store.Value
	if ok, err = g.Get(key, &v); err != nil || !ok {
		return r, false, err
	}
	defer v.Release()
	r, err = store.ParseRecord(append([]byte{}, v.Bytes...))
	return r, err == nil, err
}

// acceptedOf reads the last accepted record of a key whose newest one was refused.
func acceptedOf(g store.Getter, key []byte) (store.Record, bool, error) {
	in := append([]byte{byte(store.SpaceAccepted)}, key[1:]...)
	return recordOf(g, in)
}

// servedRank is the revision of the value that a fold serves of a key; 0 is none.
func servedRank(g store.Getter, key []byte) (uint64, error) {
	r, ok, err := recordOf(g, key)
	if err == nil && ok && r.Rejected {
		r, ok, err = acceptedOf(g, key)
	}
	if err != nil || !ok {
		return 0, err
	}
	return r.Version.Rank(), nil
}

// chunks hands changes over, so many at a time.
type chunks struct {
	to      Folder
	r       *Report
	at      *progress
	max     int
	changes []Change
	bytes   int
}

// add takes the changes of one key, which are never parted: the fold judges what they expect by one and the same row.
func (c *chunks) add(ctx context.Context, changes ...Change) error {
	size := 0
	for i := range changes {
		size += changes[i].Size()
	}
	if len(c.changes) > 0 && (len(c.changes)+len(changes) > c.max || c.bytes+size > chunkBytes) {
		if err := c.flush(ctx); err != nil {
			return err
		}
	}
	c.changes, c.bytes = append(c.changes, changes...), c.bytes+size
	return nil
}

func (c *chunks) flush(ctx context.Context) error {
	if len(c.changes) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.to.Fold(ctx, c.changes); err != nil {
		return fmt.Errorf("fold the artifact: %w", err)
	}
	c.at.keys.Add(uint64(len(c.changes)))
	for i := range c.changes { // of two changes of a key the last one counts
		if i+1 == len(c.changes) || c.changes[i].Key != c.changes[i+1].Key {
			c.r.changed(c.changes[i : i+1])
		}
	}
	clear(c.changes)
	c.changes, c.bytes = c.changes[:0], 0
	return nil
}
