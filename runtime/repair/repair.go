package repair

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
	"github.com/typedfold/fold/runtime/store"
)

// Mode is what a fold may do when its cursor is no resume position any more.
type Mode = protocol.RepairMode

const (
	// Auto re-lists where "not listed" means "deleted", and otherwise restores from an artifact.
	Auto = protocol.RepairAuto
	// Relist only re-lists, and refuses where that would delete valid keys.
	Relist = protocol.RepairRelist
	// Restore only restores from an artifact.
	Restore = protocol.RepairRestore
	// Off stops the fold instead.
	Off = protocol.RepairOff
)

const (
	// DefaultRunBytes is how much of a listing is sorted in memory at a time.
	DefaultRunBytes = 64 << 20
	// DefaultChunk is how many changes are committed together.
	DefaultChunk = 4096
	// DefaultAuditEvery is the least time between two audits.
	DefaultAuditEvery = 10 * time.Minute
)

// Options shape repairs. The zero value is Auto without artifacts.
type Options struct {
	Mode Mode
	// Source has the artifacts to restore from; nil is none.
	Source Source
	// AdoptNewLog follows a bucket that was re-created, restored from a backup, or lost writes: what it lists replaces the
	// fold, as often as that happens. By default such a fold stops and serves what it has, so set it for one start only.
	AdoptNewLog bool
	// Scratch is the folder for temporary files, which hold keys; it is made when it is not there. Default os.TempDir().
	Scratch string
	// RunBytes bounds what is sorted in memory at a time; default DefaultRunBytes.
	RunBytes int
	// Chunk is how many changes are committed together; default DefaultChunk.
	Chunk int
	// AuditEvery is the least time between two audits of a fold that owes one; the first comes at some time within it, so
	// that a fleet does not list its bucket at once. Default DefaultAuditEvery; below 0 a fold is never audited, and says
	// what it owes.
	AuditEvery time.Duration
}

// Validate refuses what can't work.
func (o Options) Validate() error {
	switch {
	case o.Mode > Off:
		return fmt.Errorf("repair mode %d is none", o.Mode)
	case o.Mode == Restore && o.Source == nil:
		return errors.New("repair mode restore needs a Source of artifacts")
	case o.RunBytes < 0 || o.Chunk < 0:
		return fmt.Errorf("repair options RunBytes %d and Chunk %d are at least 0, and 0 is the default", o.RunBytes, o.Chunk)
	}
	return nil
}

func (o Options) withDefaults() Options {
	if o.Scratch == "" {
		o.Scratch = os.TempDir()
	}
	if o.RunBytes == 0 {
		o.RunBytes = DefaultRunBytes
	}
	if o.Chunk == 0 {
		o.Chunk = DefaultChunk
	}
	return o
}

// Log is what a repair asks the bucket; kv.Bucket is one.
type Log interface {
	Info(ctx context.Context) (kv.LogInfo, error)
	LastVersions(ctx context.Context, scope kv.Scope) iter.Seq2[kv.KeyVersion, error]
	Entry(ctx context.Context, key string) (kv.Entry, error)
	// Open is asked whether a watch would resume from an artifact; what it opens is closed at once.
	Open(ctx context.Context, req kv.OpenRequest) (kv.Watch, error)
}

// Fold is the fold's own data, in views that stay as they are.
type Fold interface {
	Snapshot() (store.Snapshot, error)
}

// Change is one change that a repair decided. A delete carries the unknown version, so it never moves a cursor.
type Change struct {
	kv.Update
	// Expect is the version of the row that the change was decided on: a row that has another one by the time of the
	// commit is left as it is. Unknown expects nothing.
	Expect kv.Version
	// ExpectUnknown: the row had no known version, and one that has is left as it is. Expect is unknown then.
	ExpectUnknown bool
}

// Folder takes changes into the fold: through parse, hooks and store, in order, under the fold's cursor as it is. It
// returns once they are committed, and keeps nothing of the slice. An error is the end of the repair.
type Folder interface {
	Fold(ctx context.Context, changes []Change) error
}

// Request is what a fold needs repaired. Everything that it received is in the store.
type Request struct {
	Cause protocol.Cause
	// Cursor is the fold's committed cursor, Known the log that it came from, Owed the audit that it owes.
	Cursor kv.Cursor
	Known  kv.Incarnation
	Owed   kv.Owed
	// Err is what ended the watch; nil at a start without a cursor.
	Err error
	// Fits is asked about an artifact before it is restored; nil takes any. An error is one of reading the artifact.
	Fits func(artifact store.Snapshot) (Fit, error)
}

// Fit is how an artifact's rows and the fold's tables go together.
type Fit struct {
	// Refused is why they don't; nil when they do, and the fold judges what it takes over.
	Refused error
	// Owes is what taking the artifact over leaves owed.
	Owes kv.Owes
}

// Outcome is how the fold goes on after a repair: it commits Cursor, Known and Owed in one step, then watches on from
// Cursor, or begins with every current value under Relist.
type Outcome struct {
	Cursor kv.Cursor
	Known  kv.Incarnation
	Owed   kv.Owed
	Relist bool
	// Listed, under Relist, is the log's last revision before the listing that rows were compared with. A key that was
	// deleted after it is known by its marker only; 0 is that there were no rows.
	Listed uint64
}

// Repairer repairs one fold. It is used by one goroutine at a time.
type Repairer struct {
	log   Log
	fold  Fold
	to    Folder
	scope kv.Scope
	o     Options
	at    progress
}

// New makes a Repairer of a fold with this scope. The options have been validated.
func New(log Log, fold Fold, to Folder, scope kv.Scope, o Options) *Repairer {
	return &Repairer{log: log, fold: fold, to: to, scope: scope, o: o.withDefaults()}
}

// ErrRefused: the repair can't be proved safe, and nothing was changed. Typed errors that match it say why. Any other
// error of a repair may be gone at the next try, except those of the store.
var ErrRefused = errors.New("repair refused")

// RefusedError is a repair that was not done.
type RefusedError struct {
	Bucket string
	Plan   protocol.Plan
	Cause  protocol.Cause
	Cursor kv.Cursor
	// First and Last are the log's bounds.
	First, Last uint64
	// Why says what was missing, and What to do about it.
	Why, What string
	// Err is what ended the watch, when something did; it is matched too.
	Err error
}

func (e *RefusedError) Error() string {
	s := fmt.Sprintf("bucket %q: repair refused: %s: %s (cursor %v, log holds revisions %d to %d)", e.Bucket, e.Cause, e.Why, e.Cursor, e.First, e.Last)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

func (e *RefusedError) Unwrap() error { return e.Err }

// Hint says what a person can do.
func (e *RefusedError) Hint() string { return e.What }

// Repair plans and does one repair, and writes down in r what it decided and why. It changes the fold only through the
// Folder, and the outcome is the caller's to commit. It is idempotent: after a crash or an error it is begun again from
// the fold as it is then.
func (p *Repairer) Repair(ctx context.Context, q Request, r *Report) (Outcome, error) {
	r.begin(q, p.scope, time.Now())
	out, err := p.repair(ctx, q, r)
	p.at.leave()
	r.end(out, err, time.Now())
	if err != nil {
		return out, fmt.Errorf("repair (%v): %w", q.Cause, err)
	}
	return out, nil
}

func (p *Repairer) repair(ctx context.Context, q Request, r *Report) (Outcome, error) {
	info, err := p.log.Info(ctx)
	if err != nil {
		return Outcome{}, fmt.Errorf("read the log's settings: %w", err)
	}
	r.saw(info)
	if q.Cause == protocol.CauseNoCursor || q.Cause == protocol.CauseExpired {
		// No watch has compared the logs, or one has before this one was there.
		seen := protocol.LogSeen{NotedCreated: q.Known.CreatedUnixNano, Created: created(info), Cursor: q.Cursor.Revision(), Last: info.Last}
		answer := protocol.LogIsSame(seen)
		r.decide("log_is_same", answer.String(), "noted_created", seen.NotedCreated, "created", seen.Created, "cursor", seen.Cursor, "last", seen.Last)
		if answer == protocol.LogReplaced || answer == protocol.LogRewound {
			q.Cause = protocol.CauseReplaced
			if answer == protocol.LogRewound {
				q.Cause = protocol.CauseRewound
			}
			q.Err = &kv.LogChangedError{Bucket: info.Bucket, Replaced: answer == protocol.LogReplaced, Cursor: q.Cursor, Last: info.Last,
				NotedCreated: time.Unix(0, q.Known.CreatedUnixNano), Created: info.Created}
		}
	}
	if r.Evicted = protocol.HasEvicted(info.Retention.Kernel()); r.Evicted {
		q.Cursor.SeenEvicting = true
	}
	truth := protocol.ListingTruth(info.Retention.Kernel(), q.Cursor.SeenEvicting)
	r.decide("listing_truth", truth.String(), "evicts", info.Retention.EvictsCurrentValues, "known", !info.Retention.Unknown,
		"first", info.Retention.First, "seen_evicting", q.Cursor.SeenEvicting)
	if q.Cause == protocol.CauseNoCursor {
		hasData, err := p.hasData()
		if err != nil {
			return Outcome{}, err
		}
		needed := protocol.CursorlessStartNeedsRepair(p.o.Mode, p.o.Source != nil, hasData, truth)
		r.decide("cursorless_start_needs_repair", fmt.Sprint(needed), "mode", p.o.Mode.String(), "source", p.o.Source != nil,
			"has_data", hasData, "truth", truth.String())
		if !needed {
			return Outcome{Cursor: q.Cursor, Known: q.Known, Owed: q.Owed, Relist: true}, nil
		}
	}
	in := protocol.PlanInput{Cause: planCause(q, p.o.AdoptNewLog), Mode: p.o.Mode, Source: p.o.Source != nil, Adopt: p.o.AdoptNewLog, Truth: truth}
	plan := protocol.PlanRepair(in)
	r.plan(plan)
	r.decide("plan_repair", plan.String(), "cause", in.Cause.String(), "mode", in.Mode.String(), "source", in.Source, "adopt", in.Adopt, "truth", truth.String())
	switch plan {
	case protocol.PlanRelist:
		return p.relist(ctx, q, info, r)
	case protocol.PlanAdopt:
		return p.adopt(ctx, q, info, r)
	case protocol.PlanRestore:
		return p.restore(ctx, q, info, r)
	}
	return Outcome{}, p.refuse(plan, q, info)
}

// planCause is the cause that a repair is planned for. A fold that has no cursor, and does have a log, was left between an
// adoption and the first of what the log delivers: the adoption is gone through again while it is still asked for.
func planCause(q Request, adopt bool) protocol.Cause {
	if q.Cause == protocol.CauseNoCursor && adopt && q.Known.CreatedUnixNano != 0 {
		return protocol.CauseReplaced
	}
	return q.Cause
}

// refuse is the reason of a plan that does nothing.
func (p *Repairer) refuse(plan protocol.Plan, q Request, info kv.LogInfo) *RefusedError {
	e := &RefusedError{Bucket: info.Bucket, Plan: plan, Cause: q.Cause, Cursor: q.Cursor, First: info.First, Last: info.Last, Err: q.Err}
	switch {
	case plan == protocol.PlanRefuseRelist:
		e.Why = "the bucket evicts current values, or did, so a key that is not listed may have aged out, and a re-list would delete it"
		e.What = "give the fold an artifact source (Options.Repair.Source, mode Auto); reads still serve what was folded"
	case plan == protocol.PlanNoSource:
		e.Why = "the bucket evicts current values, or did, so only an artifact can tell deleted keys from aged-out ones, and there is no source of artifacts"
		e.What = "give the fold an artifact source (Options.Repair.Source), or start an empty store directory and accept that aged-out keys are gone"
	case p.o.Mode != Off && (q.Cause == protocol.CauseReplaced || q.Cause == protocol.CauseRewound):
		e.Why = "the bucket's log is not the one that the fold came from"
		e.What = "if the bucket as it is now is right, start once with Options.Repair.AdoptNewLog, which replaces the fold by what the bucket lists; reads still serve what was folded"
	default:
		e.Why = "repairs are off"
		e.What = "choose a repair mode (Options.Repair.Mode), or start an empty store directory"
	}
	return e
}

func (p *Repairer) hasData() (bool, error) {
	snap, err := p.fold.Snapshot()
	if err != nil {
		return false, err
	}
	defer func() { _ = snap.Close() }()
	it, err := snap.Iter(store.IterOptions{Lower: []byte{byte(store.SpaceData)}, Upper: []byte{byte(store.SpaceData) + 1}})
	if err != nil {
		return false, err
	}
	some := it.Next()
	err = it.Err()
	if closeErr := it.Close(); err == nil {
		err = closeErr
	}
	return some, err
}
