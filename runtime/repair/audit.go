package repair

import (
	"context"
	"errors"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
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

// Audit compares a running fold with a listing of its bucket, and deletes what vanished delete markers left behind. A
// contradiction between the two is a *kv.LogChangedError: the log was rewound, or the fold missed a write, and only a
// repair can follow. Under AuditUnproven nothing was done.
func (p *Repairer) Audit(ctx context.Context, q AuditRequest, r *Report) (AuditOutcome, error) {
	return AuditOutcome{}, errors.New("audit: not built yet")
}

// ErrArtifactInvalid: an artifact is not what it says it is.
var ErrArtifactInvalid = errors.New("artifact invalid")
