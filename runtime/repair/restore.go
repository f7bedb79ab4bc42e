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

// restore takes over the first artifact that is good for the fold. The cursor moves to the artifact's with the outcome;
// until then every change is folded under the old one, so a restore that was cut short is begun again.
func (p *Repairer) restore(ctx context.Context, q Request, info kv.LogInfo, r *Report) (Outcome, error) {
	candidates, err := p.o.Source.Candidates(ctx)
	if err != nil {
		return Outcome{}, fmt.Errorf("list artifacts: %w", err)
	}
	x := &restoring{p: p, q: q, info: info, r: r}
	if len(candidates) > 0 { // one may have been published since, and end after what the log held then
		if err := x.readLog(ctx); err != nil {
			return Outcome{}, err
		}
	}
	var why []CandidateRefusal
	for _, m := range candidates {
		if text := p.target(q, x.info).check(m, r); text != "" {
			why = append(why, CandidateRefusal{ID: m.ID, Cursor: m.Cursor, Why: text, Err: m.Err})
			continue
		}
		out, err := x.from(ctx, m)
		var no *unfit
		if !errors.As(err, &no) {
			return out, err
		}
		r.decide("artifact", "refused", "artifact", m.ID, "why", no.Error())
		why = append(why, CandidateRefusal{ID: m.ID, Cursor: m.Cursor, Why: no.why, Err: no.err})
	}
	return Outcome{}, p.refuseRestore(q, x.info, why)
}

// unfit is why an artifact is no good after all, though its manifest was; nothing was folded.
type unfit struct {
	why string
	err error
}

func (u *unfit) Error() string {
	if u.err != nil {
		return u.why + ": " + u.err.Error()
	}
	return u.why
}

// restoring is one restore. info is the log as it was read last.
type restoring struct {
	p    *Repairer
	q    Request
	info kv.LogInfo
	r    *Report
	owes kv.Owes // of the artifact's schemas
}

// from restores from one artifact, or says with *unfit that it can't be.
func (x *restoring) from(ctx context.Context, m Manifest) (out Outcome, err error) {
	x.p.at.enter(stageFetching)
	a, err := x.p.o.Source.Fetch(ctx, m)
	if errors.Is(err, ErrArtifactInvalid) {
		return Outcome{}, &unfit{why: "can't be used", err: err}
	}
	if err != nil {
		return Outcome{}, fmt.Errorf("fetch artifact %q: %w", m.ID, err)
	}
	defer func() {
		if closeErr := a.Close(); closeErr != nil { // what is left in the scratch folder makes no restore wrong
			x.r.decide("artifact", "not removed", "artifact", m.ID, "err", closeErr.Error())
		}
	}()
	remote, err := a.Snapshot()
	if err != nil {
		return Outcome{}, fmt.Errorf("read artifact %q: %w", m.ID, err)
	}
	defer func() { _ = remote.Close() }()
	here, text, err := arrived(m, a, remote, x.info.Bucket)
	if err != nil {
		return Outcome{}, ofArtifact(err)
	}
	if text != "" {
		return Outcome{}, &unfit{why: text}
	}
	if err := x.fits(here, remote); err != nil {
		return Outcome{}, err
	}
	if err := x.stillGood(ctx, here); err != nil {
		return Outcome{}, err
	}
	if err := x.take(ctx, here, remote); err != nil {
		return Outcome{}, err
	}
	x.r.Artifact = m.ID
	return x.outcome(here), nil
}

// fits asks the fold whether the artifact's rows are ones that it can judge.
func (x *restoring) fits(here Manifest, remote store.Snapshot) error {
	x.owes = 0
	if x.q.Fits == nil {
		return nil
	}
	fit, err := x.q.Fits(remote)
	if err != nil {
		return ofArtifact(err)
	}
	if fit.Refused != nil || fit.Owes != 0 {
		x.r.decide("schemas_fit", fmt.Sprint(fit.Refused == nil), "artifact", here.ID, "owes", fit.Owes.String())
	}
	if fit.Refused != nil {
		return &unfit{why: "was folded under other schemas", err: fit.Refused}
	}
	x.owes = fit.Owes
	return nil
}

// ofArtifact is an error of reading an artifact: damage is the artifact's fault, the rest may be gone at the next try.
func ofArtifact(err error) error {
	if errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrFormat) {
		return &unfit{why: "is damaged", err: err}
	}
	return fmt.Errorf("read artifact: %w", err)
}

// take folds what the artifact has otherwise than the fold. Nothing is folded before all of it is decided.
func (x *restoring) take(ctx context.Context, here Manifest, remote store.Snapshot) (err error) {
	local, err := x.p.fold.Snapshot()
	if err != nil {
		return fmt.Errorf("read the fold: %w", err)
	}
	defer func() { _ = local.Close() }()
	x.r.Rows, x.r.Listed = 0, 0 // of an artifact that was no good
	d := newDifference(x.p.scope, x.p.o.Scratch, x.r, &x.p.at)
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.compare(ctx, local, remote); err != nil {
		return err
	}
	if d.vanished.len() > 0 {
		if err := x.spareListed(ctx, here, d); err != nil {
			return err
		}
	}
	// The log vouches for every write after the artifact's cursor only while it still holds them all.
	if err := x.stillGood(ctx, here); err != nil {
		return err
	}
	if err := x.resumes(ctx, here); err != nil {
		return err
	}
	return x.fold(ctx, d, local, remote)
}

// resumes asks the log what the watch after the restore will ask it: that one compares the messages that the artifact
// remembers as well, so an artifact of an end that the log has lost is known before anything of it is folded.
func (x *restoring) resumes(ctx context.Context, here Manifest) error {
	w, err := x.p.log.Open(ctx, kv.OpenRequest{Scope: x.p.scope, After: here.Cursor, Known: here.Log})
	answer := "yes"
	if err != nil {
		answer = err.Error()
	}
	x.r.decide("artifact_resumes", answer, "artifact", here.ID, "cursor", here.Cursor.String())
	if errors.Is(err, kv.ErrCursorExpired) || errors.Is(err, kv.ErrLogReplaced) || errors.Is(err, kv.ErrLogRewound) {
		return &unfit{why: "is no resume position", err: err}
	}
	if err != nil {
		return fmt.Errorf("open a watch after the artifact: %w", err)
	}
	if err := w.Close(ctx); err != nil {
		return fmt.Errorf("close the watch after the artifact: %w", err)
	}
	return nil
}

// stillGood reads the log again and judges the artifact by it.
func (x *restoring) stillGood(ctx context.Context, here Manifest) error {
	if err := x.readLog(ctx); err != nil {
		return err
	}
	if text := x.p.target(x.q, x.info).check(here, x.r); text != "" {
		return &unfit{why: text}
	}
	return nil
}

// readLog reads the log's bounds again. Another log ends the restore: the next repair is of another cause.
func (x *restoring) readLog(ctx context.Context) error {
	info, err := x.p.log.Info(ctx)
	if err != nil {
		return fmt.Errorf("read the log's settings: %w", err)
	}
	if was := created(x.info); was != created(info) {
		return &kv.LogChangedError{Bucket: info.Bucket, Replaced: true, Cursor: x.q.Cursor, Last: info.Last,
			NotedCreated: time.Unix(0, was), Created: info.Created}
	}
	x.info = info
	x.sawEvicted(protocol.HasEvicted(info.Retention.Kernel()))
	return nil
}

// sawEvicted remembers that retention took values, also where the restore comes to nothing.
func (x *restoring) sawEvicted(evicted bool) {
	x.q.Cursor.SeenEvicting = x.q.Cursor.SeenEvicting || evicted
	x.r.Evicted = x.r.Evicted || evicted
}

// outcome resumes where the artifact ends. The memo of either side stays; what the fold owed is settled, and what the
// artifact owes, and its rows leave open, is owed now.
func (x *restoring) outcome(here Manifest) Outcome {
	out := Outcome{Cursor: here.Cursor, Known: here.Log, Owed: here.Owed.Add(x.owes, here.Cursor.Revision())}
	out.Cursor.SeenEvicting = here.Cursor.SeenEvicting || x.q.Cursor.SeenEvicting
	if out.Known.CreatedUnixNano == 0 {
		out.Known.CreatedUnixNano = created(x.info)
	}
	return out
}
