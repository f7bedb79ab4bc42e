package repair

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// spareListed lists the bucket, and takes the keys that it lists with a value out of the vanished ones.
func (x *restoring) spareListed(ctx context.Context, here Manifest, d *difference) (err error) {
	if err := x.readLog(ctx); err != nil {
		return err
	}
	// What the log shows after a listing is judged once, after the last of them.
	judge := func(l *listing) error {
		x.sawEvicted(l.agedOut)
		return nil
	}
	l, err := x.p.list(ctx, created(x.info), x.info, judge)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.keys.close()) }()
	keys, err := l.keys.sorted(ctx)
	if err != nil {
		return err
	}
	left := newSpill(x.p.o.Scratch)
	d.spills = append(d.spills, left)
	if err := x.sift(ctx, here, keys, d.vanished, left); err != nil {
		return err
	}
	x.r.Listed = keys.n
	if err := l.plausible(keys.n, x.r); err != nil {
		return err
	}
	gone, err := x.p.confirm(ctx, left, l, x.r, judge)
	if err != nil {
		return err
	}
	d.spills = append(d.spills, gone)
	d.vanished = gone
	return nil
}

// sift copies into left the vanished keys that the bucket does not list with a value. Both sequences are in key order.
func (x *restoring) sift(ctx context.Context, here Manifest, keys *sortedKeys, vanished, left *spill) error {
	rows, err := vanished.read()
	if err != nil {
		return err
	}
	for more := keys.next(); rows.next(); {
		order := 1
		for ; more; more = keys.next() {
			if order = bytes.Compare(keys.key, rows.key); order >= 0 {
				break
			}
			if keys.n%checkEvery == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
		}
		listed := more && order == 0 && keys.hasValue()
		if listed && missed(keys.rank, rows.version, here.Cursor) {
			return &unfit{why: fmt.Sprintf("lacks what the bucket has had of a key since revision %d, and the fold has revision %v of it", keys.rank, rows.version)}
		}
		local := protocol.KeyState{Present: true, Revision: rows.version.Rank()}
		if protocol.RestoreKey(local, protocol.KeyState{}, false, listed) != protocol.RestoreDelete {
			continue
		}
		if err := left.add(rows.key, rows.version, 0); err != nil {
			return err
		}
	}
	for keys.next() { // the rest is only counted
		if keys.n%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return errors.Join(rows.err, keys.err)
}

// missed reports whether an artifact at this cursor that lacks the key is not complete: the listed value is later than the
// fold's row, and no resume from the cursor will deliver it.
func missed(listed uint64, row kv.Version, cursor kv.Cursor) bool {
	return listed > row.Rank() && listed <= cursor.Revision()
}
