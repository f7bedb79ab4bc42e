package repair

import (
	"fmt"
	"strings"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
	"github.com/typedfold/fold/runtime/store"
)

// CandidateRefusal is why one artifact was not restored.
type CandidateRefusal struct {
	// ID and Cursor are the artifact's.
	ID     string
	Cursor kv.Cursor
	Why    string
	// Err is what made it unreadable, when that was it.
	Err error
}

func (c CandidateRefusal) String() string {
	s := fmt.Sprintf("artifact %q at cursor %v %s", c.ID, c.Cursor, c.Why)
	if c.Err != nil {
		s += ": " + c.Err.Error()
	}
	return s
}

// RestoreRefusedError: none of the artifacts is good for this fold, so nothing was changed. It matches ErrRefused and
// is a *RefusedError too.
type RestoreRefusedError struct {
	Refused *RefusedError
	// Candidates are the artifacts that there were, in the order of their source.
	Candidates []CandidateRefusal
}

func (e *RestoreRefusedError) Error() string { return e.Refused.Error() }

func (e *RestoreRefusedError) Unwrap() error { return e.Refused }

// Hint says what a person can do.
func (e *RestoreRefusedError) Hint() string { return e.Refused.Hint() }

const (
	hintExport = "fix the export pipeline: another node has to export more often than the bucket's log turns over; reads still serve what was folded"
	hintSeed   = "export an artifact from a node that is caught up; the first node of all has none to begin with: " +
		"start it once with an empty store directory and without a Source (Options.Repair.Source), " +
		"which reads what the bucket still lists and accepts that aged-out keys are gone, and export from it"
	hintScope = "export from a fold whose Options.Scope covers this fold's"
)

// refuseRestore is the refusal of a restore that no candidate was good for.
func (p *Repairer) refuseRestore(q Request, info kv.LogInfo, why []CandidateRefusal) *RestoreRefusedError {
	e := &RefusedError{Bucket: info.Bucket, Plan: protocol.PlanRestore, Cause: q.Cause, Cursor: q.Cursor, First: info.First, Last: info.Last, Err: q.Err}
	e.What = hintExport
	if len(why) == 0 {
		e.Why = "the source has no artifact"
	} else {
		e.Why = "no artifact is good for it: " + join(why)
	}
	switch {
	case len(why) > 0 && all(why, whyScope):
		e.What = hintScope
	case q.Cursor.IsNone():
		e.What = hintSeed
	}
	return &RestoreRefusedError{Refused: e, Candidates: why}
}

func join(why []CandidateRefusal) string {
	texts := make([]string, len(why))
	for i, c := range why {
		texts[i] = c.String()
	}
	return strings.Join(texts, "; ")
}

func all(why []CandidateRefusal, begin string) bool {
	for _, c := range why {
		if !strings.HasPrefix(c.Why, begin) {
			return false
		}
	}
	return true
}

const whyScope = "does not cover"

// target is what an artifact is judged against: the fold, and the log as it was read last.
type target struct {
	scope kv.Scope
	local protocol.Position
	log   protocol.LogBounds
}

func (p *Repairer) target(q Request, info kv.LogInfo) target {
	return target{
		scope: p.scope,
		local: protocol.Position{Log: q.Known.CreatedUnixNano, Revision: q.Cursor.Revision()},
		log:   protocol.LogBounds{Log: created(info), First: info.First, Last: info.Last},
	}
}

// created is the log's creation time in Unix nanoseconds; 0 when it is not known.
func created(info kv.LogInfo) int64 {
	if info.Created.IsZero() {
		return 0
	}
	return info.Created.UnixNano()
}

// check judges an artifact, scope first, and tells why it must not be restored; "" is that it may. The decisions go
// into r.
func (t target) check(m Manifest, r *Report) string {
	if m.Err != nil {
		return "can't be read"
	}
	covers := m.HasScope && m.Scope.Covers(t.scope)
	r.decide("scope_covers", fmt.Sprint(covers), "artifact", m.ID, "has_scope", m.HasScope, "artifact_scope", m.Scope.String(), "scope", t.scope.String())
	if !m.HasScope {
		return "has no key scope on record, so it may lack keys that were never deleted"
	}
	if !covers {
		return fmt.Sprintf("%s the fold's scope %q: it was folded under %q", whyScope, t.scope, m.Scope)
	}
	at := protocol.Position{Log: m.Log.CreatedUnixNano, Revision: m.Cursor.Revision()}
	if at.Log != 0 && t.log.Log != 0 && at.Log != t.log.Log {
		return fmt.Sprintf("is of another log: that one was created %s, this one %s", stamp(at.Log), stamp(t.log.Log))
	}
	ahead := protocol.RestoreAhead(at, t.local)
	r.decide("restore_ahead", fmt.Sprint(ahead), "artifact", m.ID, "artifact_log", at.Log, "artifact_revision", at.Revision,
		"local_log", t.local.Log, "local_revision", t.local.Revision)
	if !ahead {
		return fmt.Sprintf("is not ahead of the fold's cursor %d", t.local.Revision)
	}
	allowed := protocol.RestoreAllowed(at, t.local, t.log)
	r.decide("restore_allowed", fmt.Sprint(allowed), "artifact", m.ID, "artifact_log", at.Log, "artifact_revision", at.Revision,
		"local_log", t.local.Log, "local_revision", t.local.Revision, "log", t.log.Log, "first", t.log.First, "last", t.log.Last)
	switch {
	case allowed:
		return ""
	case at.Revision > t.log.Last:
		return fmt.Sprintf("is beyond the log's end at revision %d: the log lost writes, or is another one", t.log.Last)
	}
	return fmt.Sprintf("is outside the log's retention window, which starts at revision %d: a resume from it would have a gap", t.log.First)
}

func stamp(unixNano int64) string { return time.Unix(0, unixNano).UTC().Format(time.RFC3339Nano) }

// arrived is the manifest of a fetched artifact as its own contents have it. A text says where it is not what was
// announced; that one is no good.
func arrived(m Manifest, a Artifact, snap store.Snapshot, bucket string) (Manifest, string, error) {
	here := a.Manifest()
	here.ID = m.ID
	if c := snap.Cursor(); c != m.Cursor || here.Cursor != c {
		return here, fmt.Sprintf("arrived with cursor %v", c), nil
	}
	if here.HasScope != m.HasScope || here.Scope.String() != m.Scope.String() {
		return here, fmt.Sprintf("arrived with scope %q, announced was %q", here.Scope, m.Scope), nil
	}
	name, err := store.Meta(snap, store.MetaBucket)
	if err != nil {
		return here, "", err
	}
	if string(name) != bucket {
		return here, fmt.Sprintf("is of bucket %q, this fold's is %q", name, bucket), nil
	}
	scope, err := store.Meta(snap, store.MetaScope)
	if err != nil {
		return here, "", err
	}
	if scope != nil && string(scope) != here.Scope.String() {
		return here, fmt.Sprintf("arrived with a store of scope %q, announced was %q", scope, here.Scope), nil
	}
	log, err := store.LogOf(snap)
	if err != nil {
		return here, "", err
	}
	if was := here.Log.CreatedUnixNano; was != 0 && log.CreatedUnixNano != 0 && was != log.CreatedUnixNano ||
		m.Log.CreatedUnixNano != was {
		return here, fmt.Sprintf("arrived from a log created %s, announced was %s", stamp(log.CreatedUnixNano), stamp(m.Log.CreatedUnixNano)), nil
	}
	if log.CreatedUnixNano != 0 {
		here.Log = log
	}
	owed, err := store.OwedOf(snap)
	here.Owed = owed.Add(here.Owed.Why, here.Owed.At)
	return here, "", err
}
