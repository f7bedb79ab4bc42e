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
	before := x.info
	listing := newSorter(x.p.o.Scratch, x.p.o.RunBytes)
	defer func() { err = errors.Join(err, listing.close()) }()
	for k, err := range x.p.log.LastVersions(ctx, x.p.scope) {
		if err != nil {
			return fmt.Errorf("list the bucket: %w", err)
		}
		if err := listing.add(k); err != nil {
			return err
		}
	}
	if err := x.readLog(ctx); err != nil {
		return err
	}
	keys, err := listing.sorted(ctx)
	if err != nil {
		return err
	}
	left := newSpill(x.p.o.Scratch)
	highest, err := x.sift(ctx, here, keys, d.vanished, left)
	if err != nil {
		return errors.Join(err, left.close())
	}
	old := d.vanished
	d.vanished = left
	x.r.Listed = keys.n
	return errors.Join(x.plausible(before, x.info, keys.n, highest), old.close())
}

// sift copies into left the vanished keys that are deleted for good, and returns the highest listed revision. Both
// sequences are in key order.
func (x *restoring) sift(ctx context.Context, here Manifest, keys *sortedKeys, vanished, left *spill) (highest uint64, err error) {
	rows, err := vanished.read()
	if err != nil {
		return 0, err
	}
	row := rows.next()
	decide := func(listed bool) error {
		local := protocol.KeyState{Present: true, Revision: rows.version.Rank()}
		if protocol.RestoreKey(local, protocol.KeyState{}, false, listed) == protocol.RestoreDelete {
			return left.add(rows.key, rows.version, 0)
		}
		return nil
	}
	for keys.next() {
		if keys.n%checkEvery == 0 && ctx.Err() != nil {
			return 0, ctx.Err()
		}
		highest = max(highest, keys.rank)
		for ; row && bytes.Compare(rows.key, keys.key) < 0; row = rows.next() {
			if err := decide(false); err != nil {
				return 0, err
			}
		}
		if !row || !bytes.Equal(rows.key, keys.key) {
			continue
		}
		if keys.hasValue() && keys.rank > rows.version.Rank() && keys.rank <= here.Cursor.Revision() {
			return 0, &unfit{why: fmt.Sprintf("lacks a key that the bucket has had at revision %d ever since, and the fold has it as it was at %d", keys.rank, rows.version.Rank())}
		}
		if err := decide(keys.hasValue()); err != nil {
			return 0, err
		}
		row = rows.next()
	}
	for ; row; row = rows.next() {
		if err := decide(false); err != nil {
			return 0, err
		}
	}
	return highest, errors.Join(keys.err, rows.err)
}

// errListing: a listing does not fit to the log that it is of.
var errListing = errors.New("the listing can't be right")

// plausible judges a listing by the log before and after it.
func (x *restoring) plausible(before, after kv.LogInfo, listed, highest uint64) error {
	l := protocol.Listing{CreatedPlanned: created(before), CreatedAfter: created(after), HeadBefore: before.Last, HeadAfter: after.Last,
		Highest: highest, Listed: listed}
	if x.p.scope.IsAll() {
		l.KeysBefore, l.KeysAfter = before.Subjects, after.Subjects
	}
	ok := protocol.ListingPlausible(l)
	x.r.decide("listing_plausible", fmt.Sprint(ok), "head_before", l.HeadBefore, "head_after", l.HeadAfter, "highest", highest,
		"listed", listed, "keys_before", l.KeysBefore, "keys_after", l.KeysAfter)
	if !ok {
		return fmt.Errorf("%w: it has %d keys up to revision %d, and the log went from %d keys at revision %d to %d at %d",
			errListing, listed, highest, l.KeysBefore, l.HeadBefore, l.KeysAfter, l.HeadAfter)
	}
	return nil
}
