package repair

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
	"github.com/typedfold/fold/runtime/store"
)

// ImplausibleListingError is a listing that is not used, since it is not of the log that it was planned for, or is short
// of keys. Nothing was changed; the next one may be whole.
type ImplausibleListingError struct {
	Bucket string
	protocol.Listing
}

func (e *ImplausibleListingError) Error() string {
	l := &e.Listing
	if l.CreatedPlanned != l.CreatedAfter {
		return fmt.Sprintf("bucket %q: listing not usable: the bucket was re-created meanwhile", e.Bucket)
	}
	return fmt.Sprintf("bucket %q: listing not usable: %d keys up to revision %d, while the log held %d and then %d keys and ended at revision %d and then %d",
		e.Bucket, l.Listed, l.Highest, l.KeysBefore, l.KeysAfter, l.HeadBefore, l.HeadAfter)
}

// Hint says what a person can do.
func (e *ImplausibleListingError) Hint() string {
	return "it is tried again; if it stays, check that the node may read all of the bucket's subjects, and that no replica of its stream is behind or damaged"
}

// listing is one listing of the bucket: the last message of each key in scope, and the log before and after.
type listing struct {
	planned       int64
	whole         bool // it is of all keys
	before, after kv.LogInfo
	keys          *sorter
	// reserved are the listed keys that no fold has, though the log counts them.
	reserved map[string]struct{}
	highest  uint64
	// agedOut: a key's last message says that retention took its value.
	agedOut bool
}

// list takes a listing of the log that was created at planned, and was seen as before last. judge then decides whether
// what it shows of the log still allows what is being done. The caller closes the listing's keys.
func (p *Repairer) list(ctx context.Context, planned int64, before kv.LogInfo, judge func(*listing) error) (*listing, error) {
	l := &listing{planned: planned, whole: p.scope.IsAll(), before: before, keys: newSorter(p.o.Scratch, p.o.RunBytes), reserved: map[string]struct{}{}}
	err := p.fillListing(ctx, l)
	if err == nil {
		err = judge(l)
	}
	if err != nil {
		return nil, errors.Join(err, l.keys.close())
	}
	return l, nil
}

func (p *Repairer) fillListing(ctx context.Context, l *listing) (err error) {
	p.at.enter(stageListing)
	for k, err := range p.log.LastVersions(ctx, p.scope) {
		if err != nil {
			return fmt.Errorf("list the bucket: %w", err)
		}
		if !p.scope.Contains(k.Key) {
			continue
		}
		l.highest = max(l.highest, k.Version.Rank())
		if kv.Reserved(k.Key) {
			l.reserved[k.Key] = struct{}{}
			continue
		}
		if err := l.keys.add(k); err != nil {
			return fmt.Errorf("list the bucket: %w", err)
		}
		p.at.keys.Add(1)
		l.agedOut = l.agedOut || k.Op == kv.OpAgedOut
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("list the bucket: %w", err)
	}
	if l.after, err = p.log.Info(ctx); err != nil {
		return fmt.Errorf("read the log's settings after the listing: %w", err)
	}
	// Equal keys count more than once here. A listing that is too short all the same needs no more work.
	if seen := l.seen(l.keys.added()); !protocol.ListingPlausible(seen) {
		return &ImplausibleListingError{Bucket: l.after.Bucket, Listing: seen}
	}
	return nil
}

// seen is the listing as the kernel takes it.
func (l *listing) seen(listed uint64) protocol.Listing {
	s := protocol.Listing{CreatedPlanned: l.planned, CreatedAfter: created(l.after), HeadBefore: l.before.Last, HeadAfter: l.after.Last,
		Highest: l.highest, Listed: listed}
	if l.whole {
		reserved := uint64(len(l.reserved))
		s.KeysBefore, s.KeysAfter = l.before.Subjects-min(l.before.Subjects, reserved), l.after.Subjects-min(l.after.Subjects, reserved)
	}
	return s
}

// plausible judges the listing once its keys are counted.
func (l *listing) plausible(listed uint64, r *Report) error {
	s := l.seen(listed)
	ok := protocol.ListingPlausible(s)
	r.decide("listing_plausible", fmt.Sprint(ok), "created_planned", s.CreatedPlanned, "created_after", s.CreatedAfter, "head_before", s.HeadBefore,
		"head_after", s.HeadAfter, "highest", s.Highest, "listed", s.Listed, "keys_before", s.KeysBefore, "keys_after", s.KeysAfter)
	if !ok {
		return &ImplausibleListingError{Bucket: l.after.Bucket, Listing: s}
	}
	return nil
}

// truth is what "not listed" means by now. A listed marker of an aged-out value is as good as having seen retention take
// one: from inside the log it leaves no other trace.
func (l *listing) truth(c *kv.Cursor, r *Report) protocol.Truth {
	k := l.after.Retention.Kernel()
	if protocol.HasEvicted(k) || l.agedOut {
		c.SeenEvicting, r.Evicted = true, true
	}
	truth := protocol.ListingTruth(k, c.SeenEvicting)
	r.decide("listing_truth", truth.String(), "evicts", k.Evicts, "known", k.Known, "first", k.First, "seen_evicting", c.SeenEvicting,
		"listed_aged_out", l.agedOut, "when", "after the listing")
	return truth
}

// pair is what the fold and a listing have of one key.
type pair struct {
	key []byte // in ordered form, without a space byte; valid until the next pair
	// hasRow: the fold has a row, of version row.
	hasRow bool
	row    kv.Version
	// listed: the key's last message, of revision rank, is a value.
	listed bool
	rank   uint64
	// The server's times of the row's message and of the listed one; 0 is not known.
	rowNano, nano int64
}

// walk shows each key that a view of the fold or the listing has, in key order, and counts both. It closes the listing's
// keys.
func (p *Repairer) walk(ctx context.Context, snap store.Snapshot, l *listing, r *Report, visit func(pair) error) (err error) {
	defer func() { err = errors.Join(err, l.keys.close()) }()
	keys, err := l.keys.sorted(ctx)
	if err != nil {
		return err
	}
	p.at.enter(stageComparing)
	rows := &rowStream{g: snap, left: ranges(p.scope)}
	defer func() { err = errors.Join(err, rows.close()) }()
	hasRow, err := rows.next()
	hasKey := keys.next()
	for n := 0; err == nil && (hasRow || hasKey); n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		order := 0
		switch {
		case !hasKey:
			order = -1
		case !hasRow:
			order = 1
		default:
			order = bytes.Compare(rows.key(), keys.key)
		}
		p.at.keys.Add(1)
		var k pair
		if order <= 0 {
			k.key, k.hasRow, k.row, k.rowNano = rows.key(), true, rows.at.record.Version, rows.at.record.UnixNano
			r.Rows++
		}
		if order >= 0 {
			k.key, k.listed, k.rank, k.nano = keys.key, keys.hasValue(), keys.rank, keys.nano
		}
		if err := visit(k); err != nil {
			return err
		}
		if order <= 0 {
			hasRow, err = rows.next()
		}
		if order >= 0 {
			hasKey = keys.next()
		}
	}
	if err = errors.Join(err, keys.err); err != nil {
		return err
	}
	r.Listed = keys.n
	return l.plausible(keys.n, r)
}

// confirm is the mass-delete brake: of what a first listing lacks it leaves what may be deleted, which are the keys that a
// second listing lacks as well where that is asked for. The caller closes both sequences, which may be the same.
func (p *Repairer) confirm(ctx context.Context, stale *spill, first *listing, r *Report, judge func(*listing) error) (*spill, error) {
	again := protocol.NeedsSecondListing(stale.len(), r.Rows)
	r.decide("needs_second_listing", fmt.Sprint(again), "deletes", stale.len(), "rows", r.Rows)
	if !again {
		return stale, nil
	}
	second, err := p.list(ctx, first.planned, first.after, judge)
	if err != nil {
		return nil, fmt.Errorf("second listing: %w", err)
	}
	gone := newSpill(p.o.Scratch)
	listed, err := second.missing(ctx, stale, gone)
	if err == nil {
		err = second.plausible(listed, r)
	}
	if err = errors.Join(err, second.keys.close()); err != nil {
		return nil, errors.Join(fmt.Errorf("second listing: %w", err), gone.close())
	}
	r.decide("missing_from_both_listings", fmt.Sprint(gone.len()), "from_first", stale.len(), "listed", listed)
	return gone, nil
}

// missing copies those of the stale keys that this listing has no value of, too, and counts all that it has.
func (l *listing) missing(ctx context.Context, stale, gone *spill) (listed uint64, err error) {
	keys, err := l.keys.sorted(ctx)
	if err != nil {
		return 0, err
	}
	rows, err := stale.read()
	if err != nil {
		return 0, err
	}
	more := keys.next()
	for rows.next() {
		order := 1
		for ; more; more = keys.next() {
			if order = bytes.Compare(keys.key, rows.key); order >= 0 {
				break
			}
		}
		if more && order == 0 && keys.hasValue() {
			continue
		}
		if err := gone.add(rows.key, rows.version, rows.flags); err != nil {
			return 0, err
		}
	}
	for more {
		more = keys.next()
	}
	return keys.n, errors.Join(rows.err, keys.err)
}

// flagUnsure marks a key whose row is stale unless a read of the key's last message gives a value.
const flagUnsure = 1

// delete hands the keys to the folder, each to be deleted while its row is the one that was judged.
func (p *Repairer) delete(ctx context.Context, gone *spill, r *Report) error {
	keys, err := gone.read()
	if err != nil {
		return err
	}
	p.at.enter(stageFolding)
	var chunk []Change
	for keys.next() {
		u := kv.Update{Key: store.NATSKey(dataKey(keys.key)), Op: kv.OpDelete, Reason: kv.ReasonRepair}
		if keys.flags&flagUnsure != 0 {
			value, _, err := p.lastMessage(ctx, u.Key)
			if err != nil {
				return err
			}
			if value {
				continue
			}
		}
		chunk = append(chunk, Change{Update: u, Expect: keys.version, ExpectUnknown: keys.version.IsUnknown()})
		if len(chunk) < p.o.Chunk {
			continue
		}
		if err := p.deleteChunk(ctx, chunk, r); err != nil {
			return err
		}
		chunk = chunk[:0]
	}
	if keys.err != nil || len(chunk) == 0 {
		return keys.err
	}
	return p.deleteChunk(ctx, chunk, r)
}

func (p *Repairer) deleteChunk(ctx context.Context, chunk []Change, r *Report) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := p.to.Fold(ctx, chunk); err != nil {
		return fmt.Errorf("fold %d deletes: %w", len(chunk), err)
	}
	p.at.keys.Add(uint64(len(chunk)))
	r.changed(chunk)
	return nil
}
