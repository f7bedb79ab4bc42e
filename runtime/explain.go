package fold

import (
	"context"
	"errors"
	"fmt"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
	"github.com/typedfold/fold/runtime/repair"
	"github.com/typedfold/fold/runtime/store"
)

// ExplainOptions shape Explain.
type ExplainOptions struct {
	// Repair is what the fold will be started with.
	Repair RepairOptions
	// Audit asks, too, what an audit would find where the fold would resume.
	Audit bool
}

// Verdict is what a fold would do about its cursor at its next start.
type Verdict string

const (
	// WouldResume: the cursor is a resume position.
	WouldResume Verdict = "resume"
	// WouldBegin: there is no cursor, and no repair comes first: the fold reads every current value.
	WouldBegin Verdict = "begin"
	// WouldRepair: a repair comes first.
	WouldRepair Verdict = "repair"
	// WouldRefuse: no repair can be proved safe, so the fold stops, and serves what it holds.
	WouldRefuse Verdict = "refuse"
)

// AuditVerdict is what an audit would come to.
type AuditVerdict string

const (
	// AuditNone: nothing is owed.
	AuditNone AuditVerdict = "none"
	// AuditSettles: it deletes what its report counts, and nothing is owed up to there any more.
	AuditSettles AuditVerdict = "settle"
	// AuditUnproven: the listing is not the truth, so only a restore from an artifact settles it.
	AuditUnproven AuditVerdict = "unproven"
	// AuditBehind: the bucket is ahead of the fold, so only a fold that runs can tell.
	AuditBehind AuditVerdict = "behind"
	// AuditContradicts: the fold and the bucket can't both be right, and a repair follows as after a rewound log.
	AuditContradicts AuditVerdict = "contradict"
)

// Explanation is what a stopped fold's next start would do about its cursor, and why. In its JSON form revisions are
// decimal strings, and fields are only ever added.
type Explanation struct {
	Bucket string `json:"bucket"`
	Scope  string `json:"scope"`
	// Cursor is the store's; 0 is none. SeenEvicting is its memo.
	Cursor       uint64 `json:"cursor,string"`
	SeenEvicting bool   `json:"seen_evicting"`
	// First and Last are the log's bounds.
	First   uint64  `json:"first,string"`
	Last    uint64  `json:"last,string"`
	Verdict Verdict `json:"verdict"`
	// Cause is why the fold would not simply resume, Reason what the bucket said of the cursor.
	Cause  string `json:"cause,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Refusal is set under WouldRefuse.
	Refusal *Refusal `json:"refusal,omitempty"`
	// Repair is what was decided, and what would be changed; nil under WouldResume.
	Repair *RepairReport `json:"repair,omitempty"`
	// Owed is the audit that the store owes, ThenOwed the one that the fold will owe once it has started.
	Owed     *OwedAudit `json:"owed,omitempty"`
	ThenOwed *OwedAudit `json:"then_owed,omitempty"`
	// MayOwe: the bucket is ahead, and can lose delete markers, so the fold will owe an audit too if a revision in between is
	// missing. Only reading them tells.
	MayOwe bool `json:"may_owe,omitempty"`
	// Audit is set when it was asked for and the fold would resume.
	Audit *ExplainedAudit `json:"audit,omitempty"`
}

// Refusal is why a repair would not be done, and what a person can do about it.
type Refusal struct {
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
}

// OwedAudit is an audit that is owed.
type OwedAudit struct {
	// Why is "identity", "markers" and "listing", joined by "+"; see Status.Owed.
	Why string `json:"why"`
	// UpTo is the latest revision up to which something may have been missed.
	UpTo uint64 `json:"up_to,string"`
}

// ExplainedAudit is what an audit would come to.
type ExplainedAudit struct {
	Verdict AuditVerdict `json:"verdict"`
	// Reason is set under AuditBehind and AuditContradicts.
	Reason string `json:"reason,omitempty"`
	// Report is nil when the audit was not begun.
	Report *RepairReport `json:"report,omitempty"`
}

// Explain tells what a stopped fold would do about its cursor at its next start with these options: nothing is written to
// the store, which may be open read-only, nor to the bucket. The scope and the log's identity are the store's own record.
// A repair is planned and gone through as a fold does it, listings and artifacts included, with its changes only counted.
//
// The store belongs to the caller. The bucket is one that exists, as natskv.Bind gives it: one that is opened lazily would
// be created by the first question. An error says that nothing could be found out: a *BucketError for a store of another
// bucket, the server's or the store's own else, which may be gone at the next try.
func Explain(ctx context.Context, bucket Bucket, s Store, o ExplainOptions) (*Explanation, error) {
	if err := o.Repair.Validate(); err != nil {
		return nil, fmt.Errorf("explain: option Repair: %w", err)
	}
	x, err := newExplainer(bucket, s, o)
	if err == nil {
		err = x.run(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("explain: %w", err)
	}
	return &x.Explanation, nil
}

// explainer gathers one explanation.
type explainer struct {
	Explanation
	bucket Bucket
	store  Store
	o      ExplainOptions
	scope  kv.Scope
	cursor kv.Cursor
	known  kv.Incarnation
	owed   kv.Owed
}

func newExplainer(bucket Bucket, s Store, o ExplainOptions) (*explainer, error) {
	x := &explainer{bucket: bucket, store: s, o: o, cursor: s.Cursor()}
	name, err := store.Meta(s, store.MetaBucket)
	if err != nil {
		return nil, err
	}
	if name != nil && string(name) != bucket.Name() {
		return nil, &BucketError{What: "store " + s.Info().Path, Has: string(name), Want: bucket.Name(), hint: hintStore}
	}
	text, err := store.Meta(s, store.MetaScope)
	if err != nil {
		return nil, err
	}
	if text != nil {
		if x.scope, err = kv.ParseScope(string(text)); err != nil {
			return nil, fmt.Errorf("%w: scope: %w", store.ErrCorrupt, err)
		}
	}
	if x.known, err = store.LogOf(s); err != nil {
		return nil, err
	}
	if x.owed, err = store.OwedOf(s); err != nil {
		return nil, err
	}
	x.Bucket, x.Scope = bucket.Name(), x.scope.String()
	x.Cursor, x.SeenEvicting = x.cursor.Revision(), x.cursor.SeenEvicting
	x.Owed = owedAudit(x.owed)
	return x, nil
}

func owedAudit(o kv.Owed) *OwedAudit {
	if o.Why == 0 {
		return nil
	}
	return &OwedAudit{Why: o.Why.String(), UpTo: o.At}
}

func (x *explainer) run(ctx context.Context) error {
	info, err := x.bucket.Info(ctx)
	if err != nil {
		return err
	}
	x.First, x.Last = info.First, info.Last
	if x.cursor.IsNone() {
		return x.repair(ctx, repair.Request{Cause: protocol.CauseNoCursor})
	}
	info, err = x.open(ctx)
	if err != nil {
		cause, known := causeOf(err)
		if !known {
			return err
		}
		x.Reason = err.Error()
		return x.repair(ctx, repair.Request{Cause: cause, Err: err})
	}
	x.Verdict, x.First, x.Last = WouldResume, info.First, info.Last
	owes := x.owed.Add(openedWith(info, x.cursor, 0).Owes, info.Last)
	x.ThenOwed = owedAudit(owes)
	x.MayOwe = protocol.GapNeedsAudit(protocol.Gap{
		Missing: x.cursor.Revision() < info.Last, Markers: protocol.MarkersCanVanish(info.Markers, 0),
	})
	if x.o.Audit {
		return x.audit(ctx, owes)
	}
	return nil
}

// open asks the bucket whether a watch resumes at the cursor. The log is as the watch saw it.
func (x *explainer) open(ctx context.Context) (kv.LogInfo, error) {
	w, err := x.bucket.Open(ctx, kv.OpenRequest{Scope: x.scope, After: x.cursor, Known: x.known})
	if err != nil {
		return kv.LogInfo{}, err
	}
	info := w.Info()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = w.Close(ctx) // the server drops an idle consumer by itself
	return info, nil
}

// causeOf is what an error of a watch means to a repair; false for one that may be gone at the next try.
func causeOf(err error) (protocol.Cause, bool) {
	switch {
	case errors.Is(err, kv.ErrCursorExpired):
		return protocol.CauseExpired, true
	case errors.Is(err, kv.ErrLogReplaced):
		return protocol.CauseReplaced, true
	case errors.Is(err, kv.ErrLogRewound):
		return protocol.CauseRewound, true
	}
	return 0, false
}

func (x *explainer) repair(ctx context.Context, q repair.Request) error {
	q.Cursor, q.Known, q.Owed = x.cursor, x.known, x.owed
	x.Cause, x.Repair = q.Cause.String(), &RepairReport{}
	out, err := x.repairer().Repair(ctx, q, x.Repair)
	switch {
	case errors.Is(err, repair.ErrRefused):
		x.Verdict, x.Refusal, x.ThenOwed = WouldRefuse, &Refusal{Error: err.Error(), Hint: Hint(err)}, x.Owed
		return nil
	case err != nil:
		return err
	}
	x.Verdict = WouldRepair
	if x.Repair.Plan == "" {
		x.Verdict = WouldBegin
	}
	if out.Relist {
		info, err := x.bucket.Info(ctx)
		if err != nil {
			return err
		}
		out.Owed = out.Owed.Add(openedWith(info, kv.Cursor{}, out.Listed).Owes, info.Last)
	}
	x.ThenOwed = owedAudit(out.Owed)
	return nil
}

func (x *explainer) repairer() *repair.Repairer {
	return repair.New(x.bucket, x.store, dryFolder{}, x.scope, x.o.Repair)
}

// dryFolder folds nothing. A stopped fold's rows stay what they were decided on, so what it is handed is what would be
// changed.
type dryFolder struct{}

func (dryFolder) Fold(ctx context.Context, _ []repair.Change) error { return ctx.Err() }

// behindError ends the dry run of an audit: a stopped fold applies nothing more.
type behindError struct{ cursor, last uint64 }

func (e *behindError) Error() string {
	return fmt.Sprintf("the fold is stopped at revision %d and the bucket is at revision %d, so only a fold that runs can be audited", e.cursor, e.last)
}

func (x *explainer) audit(ctx context.Context, owed kv.Owed) error {
	wait := func(_ context.Context, rev uint64) error {
		if at := x.cursor.Revision(); at < rev {
			return &behindError{cursor: at, last: rev}
		}
		return nil
	}
	if err := wait(ctx, x.Last); err != nil && (owed.Why != 0 || x.MayOwe) {
		x.Audit = &ExplainedAudit{Verdict: AuditBehind, Reason: err.Error()}
		return nil
	}
	x.Audit = &ExplainedAudit{Report: &RepairReport{}}
	q := repair.AuditRequest{Cursor: x.cursor, Known: x.known, Owed: owed, WaitApplied: wait}
	out, err := x.repairer().Audit(ctx, q, x.Audit.Report)
	var behind *behindError
	switch {
	case errors.As(err, &behind):
		x.Audit = &ExplainedAudit{Verdict: AuditBehind, Reason: behind.Error()}
	case errors.Is(err, kv.ErrLogReplaced), errors.Is(err, kv.ErrLogRewound):
		x.Audit.Verdict, x.Audit.Reason = AuditContradicts, err.Error()
	case err != nil:
		return err
	default:
		x.Audit.Verdict = auditVerdict(out.Plan)
	}
	return nil
}

func auditVerdict(p protocol.AuditPlan) AuditVerdict {
	switch p {
	case protocol.AuditNone:
		return AuditNone
	case protocol.AuditUnproven:
		return AuditUnproven
	}
	return AuditSettles
}
