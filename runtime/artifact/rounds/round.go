package rounds

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/artifact/transport"
	"github.com/typedfold/fold/runtime/lease"
	"github.com/typedfold/fold/runtime/protocol"
)

// afterwards is how long the last word on a lease may take, also when the round's context has ended.
const afterwards = 30 * time.Second

// Round exports a fold and publishes it. Its fields are not changed once it runs.
type Round struct {
	// Lease is what the fleet's nodes take turns by.
	Lease *lease.Lease
	// TTL is how long the lease is held: the time that an export and its upload take, with room. A round ends after four
	// of them at the latest, since from then on what it uploaded may be pruned.
	TTL time.Duration
	// Export writes the fold as an artifact to dir, which is absent; the Export of a fold is one.
	Export    func(ctx context.Context, dir string) (artifact.Manifest, error)
	Transport *transport.Transport
	// Scratch is the folder in which the artifact lies until it is published: best one on the fold's file system. It is
	// made when it is not there.
	Scratch string
	// Keep is how many generations stay; 0 is transport.DefaultKeep.
	Keep int
	// Live reads the log from its leader; the Info of the fold's bucket is one.
	Live transport.Live
}

// Validate reports what is missing or wrong.
func (r *Round) Validate() error {
	for _, part := range []struct {
		name    string
		missing bool
	}{
		{"Lease", r.Lease == nil}, {"Export", r.Export == nil}, {"Transport", r.Transport == nil},
		{"Scratch", r.Scratch == ""}, {"Live", r.Live == nil},
	} {
		if part.missing {
			return fmt.Errorf("export round: no %s", part.name)
		}
	}
	if r.Keep < 0 {
		return fmt.Errorf("export round: keep %d must not be negative", r.Keep)
	}
	if r.TTL < time.Second {
		return fmt.Errorf("export round: %w", &lease.TTLError{TTL: r.TTL})
	}
	return nil
}

// Ending is how a round ended.
type Ending uint8

const (
	// Failed: an error ended it, and the lease was given back.
	Failed Ending = iota
	// NotHeld: another node holds the lease; nothing was done.
	NotHeld
	// Published: the newest artifact is this round's.
	Published
	// Superseded: it was whole, and a newer one was published meanwhile.
	Superseded
)

func (e Ending) String() string {
	return [...]string{"failed", "not held", "published", "superseded"}[e]
}

// Result is what a round did.
type Result struct {
	Ending Ending
	// Manifest is the exported artifact's; it has no bytes when there is none.
	Manifest artifact.Manifest
	// By is the position that superseded it.
	By protocol.Position
	// Lease is what became of the lease's last word.
	Lease  lease.Outcome
	Pruned transport.Pruned
	// Took is the whole round's time, Exported the export's part of it, Uploaded that of the publication.
	Took, Exported, Uploaded time.Duration
	// Unread is why the log could not be read when the pointer was judged.
	Unread error
	// LeaseErr, PruneErr and RemoveErr failed after the round was decided, and change nothing of it: a lease that was not
	// completed or given back is free when it expires, the next round prunes, and the next one on this node removes what
	// this one left in Scratch.
	LeaseErr, PruneErr, RemoveErr error
}

// Problems joins what failed without an effect on the round's end.
func (r *Result) Problems() error { return errors.Join(r.LeaseErr, r.PruneErr, r.RemoveErr) }

// Run takes the lease and exports, publishes, completes, prunes and cleans up. It is no error when another node holds the
// lease, or has published something newer. After an error, the lease is given back.
func (r *Round) Run(ctx context.Context) (res Result, err error) {
	if err := r.Validate(); err != nil {
		return res, err
	}
	began := time.Now()
	defer func() { res.Took = time.Since(began) }()
	limit, _ := protocol.PruneGrace(r.TTL.Nanoseconds())
	within, cancel := context.WithTimeoutCause(ctx, time.Duration(limit), errTooLong)
	defer cancel()
	guard, won, err := r.Lease.TryAcquire(within, r.TTL)
	if err != nil {
		return res, fmt.Errorf("export round: %w", err)
	}
	if !won {
		res.Ending = NotHeld
		return res, nil
	}
	if err := r.publish(within, &res); err != nil {
		r.lastWord(ctx, &res, guard.Abandon)
		return res, fmt.Errorf("export round: %w", causeOf(within, err))
	}
	r.lastWord(ctx, &res, func(ctx context.Context) (lease.Outcome, error) {
		return guard.Complete(ctx, res.Manifest.Cursor)
	})
	if res.Ending == Published {
		res.Pruned, res.PruneErr = r.Transport.Prune(within, transport.PruneOptions{Keep: r.Keep, TTL: r.TTL, Live: r.Live})
	}
	return res, nil
}

var errTooLong = errors.New("the round took four times its lease's TTL, and what it uploaded may be pruned from now on")

// causeOf adds the round's own limit to an error that it caused.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errTooLong) && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

func (r *Round) lastWord(ctx context.Context, res *Result, say func(context.Context) (lease.Outcome, error)) {
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterwards)
	defer cancel()
	res.Lease, res.LeaseErr = say(within)
}

// publish exports and publishes; nothing of the artifact stays on this node.
func (r *Round) publish(ctx context.Context, res *Result) error {
	scratch, err := artifact.NewScratch(r.Scratch)
	if err != nil {
		return err
	}
	defer func() { res.RemoveErr = scratch.Remove() }()
	dir, began := filepath.Join(scratch.Dir(), "export"), time.Now()
	m, err := r.Export(ctx, dir)
	if err != nil {
		return err
	}
	res.Manifest, res.Exported = m, time.Since(began)
	began = time.Now()
	out, err := r.Transport.Publish(ctx, dir, m, r.Live)
	if err != nil {
		return err
	}
	res.Uploaded, res.Unread = time.Since(began), out.Unread
	if res.Ending = Published; !out.Published {
		res.Ending, res.By = Superseded, out.By
	}
	return nil
}
