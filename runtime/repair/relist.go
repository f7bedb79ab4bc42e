package repair

import (
	"context"
	"errors"
	"fmt"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// errOtherPlan: what a listing showed of the log asks for another repair.
var errOtherPlan = errors.New("the plan has changed")

// relist deletes what the bucket does not list, after which the fold reads the bucket's current values anew. Retention is
// read again after each listing: where that no longer allows a re-list, it is the repair that is allowed then.
func (p *Repairer) relist(ctx context.Context, q Request, info kv.LogInfo, r *Report) (Outcome, error) {
	truth, plan, after := protocol.TruthUnknown, protocol.PlanRelist, info
	err := p.deleteUnlisted(ctx, info, r, func(l *listing) error {
		after = l.after
		truth = l.truth(&q.Cursor, r)
		plan = protocol.PlanRepair(protocol.PlanInput{Cause: q.Cause, Mode: p.o.Mode, Source: p.o.Source != nil, Adopt: p.o.AdoptNewLog, Truth: truth})
		if plan != protocol.PlanRelist {
			return errOtherPlan
		}
		return nil
	})
	switch {
	case errors.Is(err, errOtherPlan) && plan == protocol.PlanRestore:
		r.plan(plan)
		return p.restore(ctx, q, after, r)
	case errors.Is(err, errOtherPlan):
		r.plan(plan)
		return Outcome{}, p.refuse(plan, q, after)
	case err != nil:
		return Outcome{}, err
	}
	out := Outcome{Cursor: q.Cursor, Known: q.Known, Owed: q.Owed, Relist: true, Listed: info.Last}
	if out.Known.CreatedUnixNano == 0 { // so that the re-list is of no other log than what the rows were compared with
		out.Known.CreatedUnixNano = created(after)
	}
	if q.Owed.Why != 0 {
		settled := truth == protocol.TruthYes && protocol.AuditSettles(info.Last, q.Owed.At)
		r.decide("audit_settles", fmt.Sprint(settled), "owed", q.Owed.String(), "before", info.Last, "truth", truth.String())
		if settled {
			out.Owed = kv.Owed{}
		}
	}
	return out, nil
}

// adopt makes the fold what another log lists: by decree, whatever its retention may have taken.
func (p *Repairer) adopt(ctx context.Context, q Request, info kv.LogInfo, r *Report) (Outcome, error) {
	after, agedOut := info, false
	err := p.deleteUnlisted(ctx, info, r, func(l *listing) error {
		after, agedOut = l.after, agedOut || l.agedOut
		return nil
	})
	if err != nil {
		return Outcome{}, err
	}
	retention := after.Retention.Kernel()
	out := Outcome{Known: kv.Incarnation{CreatedUnixNano: created(after)}, Relist: true, Listed: info.Last}
	r.Evicted = r.Evicted || protocol.HasEvicted(retention) || agedOut
	out.Cursor.SeenEvicting = q.Cursor.SeenEvicting || r.Evicted
	truth := protocol.ListingTruth(retention, agedOut)
	r.decide("listing_truth", truth.String(), "evicts", retention.Evicts, "known", retention.Known, "first", retention.First,
		"listed_aged_out", agedOut, "when", "of the new log")
	if truth != protocol.TruthYes {
		out.Owed = out.Owed.Add(kv.OwesListing, after.Last)
	}
	return out, nil
}

// deleteUnlisted deletes the rows in scope whose key the bucket does not list with a value. Nothing is deleted before
// everything is decided.
func (p *Repairer) deleteUnlisted(ctx context.Context, info kv.LogInfo, r *Report, judge func(*listing) error) (err error) {
	first, err := p.list(ctx, created(info), info, judge)
	if err != nil {
		return err
	}
	stale := newSpill(p.o.Scratch)
	defer func() { err = errors.Join(err, stale.close()) }()
	if err := p.unlisted(ctx, first, stale, r); err != nil {
		return err
	}
	gone, err := p.confirm(ctx, stale, first, r, judge)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, gone.close()) }()
	return p.delete(ctx, gone, r)
}

// unlisted notes the rows that the listing has no value of.
func (p *Repairer) unlisted(ctx context.Context, l *listing, stale *spill, r *Report) (err error) {
	snap, err := p.fold.Snapshot()
	if err != nil {
		return errors.Join(fmt.Errorf("read the fold: %w", err), l.keys.close())
	}
	defer func() { err = errors.Join(err, snap.Close()) }()
	return p.walk(ctx, snap, l, r, func(k pair) error {
		if !k.hasRow || k.listed {
			return nil
		}
		return stale.add(k.key, k.row, 0)
	})
}
