package lease

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/typedfold/fold/runtime/kv"
)

// ErrResolved is a second Complete or Abandon of one guard.
var ErrResolved = errors.New("lease is resolved")

// Outcome is what became of a guard's last word.
type Outcome uint8

const (
	// OutcomeUnknown: it was not written, or nobody knows; the error says which.
	OutcomeUnknown Outcome = iota
	// OutcomeRecorded: it is written.
	OutcomeRecorded
	// OutcomeTaken: somebody else has taken the lease over meanwhile, and nothing was written. The round took longer than
	// the lease's TTL, or the clocks differ. An artifact that was published stays published.
	OutcomeTaken
)

func (o Outcome) String() string { return [...]string{"unknown", "recorded", "taken"}[o] }

// Guard is a round that was won. One that is dropped without Complete or Abandon holds the others up until it expires, and
// needs no more than that. It is used by one goroutine.
type Guard struct {
	lease    *Lease
	record   Record
	at       kv.Version
	resolved bool
}

// Record is what the lease's key holds of this round.
func (g *Guard) Record() Record { return g.record }

// Complete records that the round published an artifact at cursor, for the fleet to see. The lease stays held until it
// expires, so that the next round is a period away. After an error it can be tried again.
func (g *Guard) Complete(ctx context.Context, cursor kv.Cursor) (Outcome, error) {
	if g.resolved {
		return OutcomeUnknown, fmt.Errorf("lease %q: complete: %w", g.lease.key, ErrResolved)
	}
	done, text, now := g.record, hex.EncodeToString(cursor.AppendBytes(nil)), g.lease.seconds()
	done.CompletedCursorHex, done.CompletedAtUnix = &text, &now
	at, stored, err := g.lease.store(ctx, done, g.at)
	if err != nil {
		return OutcomeUnknown, fmt.Errorf("lease %q: complete: %w", g.lease.key, err)
	}
	if stored {
		g.record, g.at = done, at
	}
	return g.resolve(stored), nil
}

// Abandon frees the lease of a round that failed, so that the next one can begin at once. After an error it can be tried
// again.
func (g *Guard) Abandon(ctx context.Context) (Outcome, error) {
	l := g.lease
	if g.resolved {
		return OutcomeUnknown, fmt.Errorf("lease %q: abandon: %w", l.key, ErrResolved)
	}
	send := func() (kv.Version, error) { return l.bucket.Delete(ctx, l.key, kv.DeleteOptions{At: g.at}) }
	_, gone, err := l.settle(ctx, g.at, send, func(e kv.Entry, found bool) bool { return !found || e.IsTombstone() })
	if err != nil {
		return OutcomeUnknown, fmt.Errorf("lease %q: abandon: %w", l.key, err)
	}
	return g.resolve(gone), nil
}

func (g *Guard) resolve(stored bool) Outcome {
	g.resolved = true
	if stored {
		return OutcomeRecorded
	}
	return OutcomeTaken
}
