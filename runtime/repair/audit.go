package repair

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
	"github.com/typedfold/fold/runtime/store"
)

// AuditRequest is what a running fold owes.
type AuditRequest struct {
	Cursor kv.Cursor
	Known  kv.Incarnation
	Owed   kv.Owed
	// WaitApplied waits until the fold has applied everything up to a revision.
	WaitApplied func(ctx context.Context, revision uint64) error
}

// AuditOutcome is what an audit settled.
type AuditOutcome struct {
	Plan protocol.AuditPlan
	// Before is the log's last revision when the listing began: what is owed up to there is settled.
	Before uint64
}

// ErrArtifactInvalid: an artifact is not what it says it is.
var ErrArtifactInvalid = errors.New("artifact invalid")

// errUnproven: a listing shows nothing of what is owed.
var errUnproven = errors.New("a listing is not the truth")

// Audit compares a running fold with a listing of its bucket, and deletes what vanished delete markers left behind. A
// contradiction between the two is a *kv.LogChangedError: the log was rewound, or the fold missed a write, and only a
// repair can follow. Under AuditUnproven nothing was done.
func (p *Repairer) Audit(ctx context.Context, q AuditRequest, r *Report) (AuditOutcome, error) {
	*r = Report{Cause: "audit of " + q.Owed.String(), Scope: p.scope.String(), Cursor: q.Cursor.String(), Began: time.Now()}
	out, err := p.audit(ctx, q, r)
	p.at.leave()
	r.end(Outcome{Cursor: q.Cursor}, err, time.Now())
	if err != nil {
		return AuditOutcome{}, fmt.Errorf("audit (%v): %w", q.Owed, err)
	}
	return out, nil
}

func (p *Repairer) audit(ctx context.Context, q AuditRequest, r *Report) (AuditOutcome, error) {
	info, err := p.log.Info(ctx)
	if err != nil {
		return AuditOutcome{}, fmt.Errorf("read the log's settings: %w", err)
	}
	r.saw(info)
	if err := sameLog(q, info); err != nil {
		return AuditOutcome{}, err
	}
	retention := info.Retention.Kernel()
	r.Evicted = protocol.HasEvicted(retention)
	q.Cursor.SeenEvicting = q.Cursor.SeenEvicting || r.Evicted
	truth := protocol.ListingTruth(retention, q.Cursor.SeenEvicting)
	plan := protocol.PlanAudit(q.Owed.Why != 0, truth)
	r.Plan = "audit: " + plan.String()
	r.decide("plan_audit", plan.String(), "owed", q.Owed.String(), "truth", truth.String(), "evicts", retention.Evicts, "known", retention.Known,
		"first", retention.First, "seen_evicting", q.Cursor.SeenEvicting)
	if plan != protocol.AuditList {
		return AuditOutcome{Plan: plan}, nil
	}
	a := &auditing{p: p, q: q, r: r, stale: newSpill(p.o.Scratch), suspects: newSpill(p.o.Scratch)}
	err = errors.Join(a.run(ctx, info), a.stale.close(), a.suspects.close())
	if errors.Is(err, errUnproven) {
		r.Plan = "audit: " + protocol.AuditUnproven.String()
		return AuditOutcome{Plan: protocol.AuditUnproven}, nil
	}
	return AuditOutcome{Plan: plan, Before: info.Last}, err
}

// sameLog refuses a log that is not the fold's.
func sameLog(q AuditRequest, info kv.LogInfo) error {
	answer := protocol.LogIsSame(protocol.LogSeen{NotedCreated: q.Known.CreatedUnixNano, Created: created(info), Cursor: q.Cursor.Revision(), Last: info.Last})
	if answer == protocol.LogReplaced || answer == protocol.LogRewound {
		return logChanged(q, info, answer == protocol.LogReplaced)
	}
	return nil
}

func logChanged(q AuditRequest, info kv.LogInfo, replaced bool) error {
	return &kv.LogChangedError{Bucket: info.Bucket, Replaced: replaced, Cursor: q.Cursor, Last: info.Last,
		NotedCreated: time.Unix(0, q.Known.CreatedUnixNano), Created: info.Created}
}

// auditing is one audit under AuditList.
type auditing struct {
	p *Repairer
	q AuditRequest
	r *Report

	stale, suspects *spill
	unsure          uint64 // of the stale ones, those to be read before they go
	contradicts     uint64
	contradiction   error  // the first one
	applied         uint64 // what the fold had applied when it was read
}

func (a *auditing) run(ctx context.Context, info kv.LogInfo) error {
	first, err := a.p.list(ctx, created(info), info, a.judge)
	if err != nil {
		return err
	}
	a.p.at.enter(stageWaiting)
	if err := a.q.WaitApplied(ctx, first.after.Last); err != nil {
		return errors.Join(fmt.Errorf("wait for revision %d: %w", first.after.Last, err), first.keys.close())
	}
	if err := a.compare(ctx, first); err != nil {
		return err
	}
	a.r.decide("audit_key", fmt.Sprintf("%d stale, %d suspect, %d contradict", a.stale.len(), a.suspects.len(), a.contradicts),
		"before", first.before.Last, "after", first.after.Last, "applied", a.applied, "unsure", a.unsure)
	if a.contradicts == 0 {
		if err := a.readSuspects(ctx, first.after); err != nil {
			return err
		}
	}
	if a.contradiction != nil {
		return a.contradiction
	}
	gone, err := a.p.confirm(ctx, a.stale, first, a.r, a.judge)
	if err != nil {
		return err
	}
	return errors.Join(a.p.delete(ctx, gone, a.r), gone.close())
}

func (a *auditing) judge(l *listing) error {
	if l.truth(&a.q.Cursor, a.r) != protocol.TruthYes {
		return errUnproven
	}
	return nil
}

// compare judges each key of the fold and of the listing.
func (a *auditing) compare(ctx context.Context, l *listing) (err error) {
	snap, err := a.p.fold.Snapshot()
	if err != nil {
		return errors.Join(fmt.Errorf("read the fold: %w", err), l.keys.close())
	}
	defer func() { err = errors.Join(err, snap.Close()) }()
	a.applied = snap.Cursor().Revision()
	return a.p.walk(ctx, snap, l, a.r, func(k pair) error { return a.key(l, k) })
}

func (a *auditing) key(l *listing, k pair) error {
	seen := protocol.AuditSeen{Before: l.before.Last, After: l.after.Last, Row: k.row.Rank(), HasRow: k.hasRow, RowTime: k.rowNano, ListedTime: k.nano}
	if seen.Row > a.applied {
		seen.Row = 0 // left by the log before an adoption: its revision says nothing of this one
	}
	if k.listed {
		if seen.Listed = k.rank; k.rank == 0 {
			return fmt.Errorf("key %q is listed without a revision", store.NATSKey(dataKey(k.key)))
		}
	}
	switch protocol.AuditKey(seen) {
	case protocol.AuditStale:
		return a.stale.add(k.key, k.row, 0)
	case protocol.AuditUnsure:
		a.unsure++
		return a.stale.add(k.key, k.row, flagUnsure)
	case protocol.AuditSuspect:
		return a.suspects.add(k.key, k.row, 0)
	case protocol.AuditContradicts:
		a.contradicts++
		if a.contradiction == nil {
			a.contradiction = fmt.Errorf("key %q: the fold has revision %d and the bucket lists revision %d, both from before revision %d: %w",
				store.NATSKey(dataKey(k.key)), seen.Row, seen.Listed, l.after.Last, logChanged(a.q, l.after, false))
		}
	}
	return nil
}

// readSuspects reads the last message of each key whose value the fold lacks, up to the first that it should have.
func (a *auditing) readSuspects(ctx context.Context, info kv.LogInfo) error {
	keys, err := a.suspects.read()
	if err != nil {
		return err
	}
	for keys.next() {
		key := store.NATSKey(dataKey(keys.key))
		value, last, err := a.p.lastMessage(ctx, key)
		if err != nil {
			return err
		}
		if protocol.SuspectIsMissing(value, last, a.applied) {
			a.r.decide("suspect_is_missing", "true", "last", last, "applied", a.applied)
			a.contradiction = fmt.Errorf("key %q: the bucket has a value of revision %d, and the fold, which has applied revision %d, has revision %d: %w",
				key, last, a.applied, keys.version.Rank(), logChanged(a.q, info, false))
			return nil
		}
	}
	return keys.err
}

// lastMessage tells whether the key has a value, and of which revision its last message is; 0 when there is none.
func (p *Repairer) lastMessage(ctx context.Context, key string) (value bool, last uint64, err error) {
	e, err := p.log.Entry(ctx, key)
	switch {
	case errors.Is(err, kv.ErrKeyNotFound):
		return false, 0, nil
	case err != nil:
		return false, 0, fmt.Errorf("read the last message of a key: %w", err)
	}
	return !e.IsTombstone(), e.Version.Rank(), nil
}
