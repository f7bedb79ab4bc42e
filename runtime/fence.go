package fold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// MaxFencingToken is how long a fencing token may be, in bytes.
const MaxFencingToken = kv.MaxFencingToken

// fenceAttempts is how often a write, or a Fence, that the fence record moved under begins again.
const fenceAttempts = 8

// fenceLook is how long a writer without a token believes that its bucket was never fenced.
const fenceLook = 5 * time.Second

var (
	// ErrFencedOut: another token is installed than the writer presents.
	ErrFencedOut = errors.New("fenced out")
	// ErrNoFence: the bucket was never fenced, so there is nothing to present a token to.
	ErrNoFence = errors.New("no fence")
	// ErrFencingToken: a fencing token is UTF-8 of at most MaxFencingToken bytes.
	ErrFencingToken = kv.ErrFencingToken
	// ErrFenceRecord: the bucket's fence record can't be read.
	ErrFenceRecord = kv.ErrFenceRecord
	// ErrNotWritten: the bucket refused a write for reasons of its own: a spurious conflict. Nothing was written, and the same
	// write may be done again.
	ErrNotWritten = kv.ErrNotWritten

	errMixedTokens = errors.New("the writer presents another fencing token than the batch's first one")
)

type (
	// FencingTokenError is a token that none can be; it matches ErrFencingToken.
	FencingTokenError = kv.FencingTokenError
	// FenceRecordError is a fence record that can't be read; it matches ErrFenceRecord.
	FenceRecordError = kv.FenceRecordError
	// NotWrittenError is a write that was refused though all was as it asked; it matches ErrNotWritten.
	NotWrittenError = kv.NotWrittenError
)

// FencedError is a write that was refused since another token is installed. Nothing was written. It is permanent: only
// another Fence changes what is installed. It matches ErrFencedOut.
//
// It is told only with proof: the record that it names stood in the bucket's log at a moment since the write began.
type FencedError struct {
	Bucket string
	// Presented is the writer's token, Installed the bucket's; "" is none.
	Presented, Installed string
	// Revision is that of the fence record.
	Revision uint64
}

func (e *FencedError) Error() string {
	text := func(token string) string {
		if token == "" {
			return "no token"
		}
		return fmt.Sprintf("token %q", token)
	}
	return fmt.Sprintf("bucket %q: fenced out: the writer presents %s, %s is installed at revision %d", e.Bucket, text(e.Presented), text(e.Installed), e.Revision)
}

func (e *FencedError) Is(target error) bool { return target == ErrFencedOut }

// Hint says what a person can do.
func (e *FencedError) Hint() string {
	if e.Installed == "" {
		return "nobody owns the bucket; to own it, pick a fresh token, install it with fold.Fence, and write with fold.WithFencingToken of it"
	}
	return "another writer has taken over; to take over from it, pick a fresh token, install it with fold.Fence, and write with fold.WithFencingToken of it"
}

// NoFenceError is a writer with a token on a bucket without a fence record. Nothing was written. It matches ErrNoFence.
type NoFenceError struct{ Bucket, Presented string }

func (e *NoFenceError) Error() string {
	return fmt.Sprintf("bucket %q has no fence to present token %q to", e.Bucket, e.Presented)
}

func (e *NoFenceError) Is(target error) bool { return target == ErrNoFence }

// Hint says what a person can do.
func (e *NoFenceError) Hint() string {
	return "install the token with fold.Fence before the first write; a bucket that was made anew has lost its fence"
}

// WithFencingToken has the writer present a token: each of its writes is stored only while that token is installed, which
// Fence does. Presenting installs nothing. "" is no token, as without the option.
func WithFencingToken(token string) WriterOption {
	return writerOption(func(o *writerOptions) { o.token = token })
}

// Fence installs a token on the bucket, whatever is installed: from then on its writers are those that present this token,
// see WithFencingToken. The empty token takes it away: then the writers are those that present none. It returns the log's
// last revision right after: each write of the fold's writers at or below it was stored under the token before, and none
// above it will be. To take over is to install a fresh token and to write under it; nobody needs to read the one before.
//
// A token that is installed already changes nothing, and the revision is one at which that is proved. Of several Fences at
// once the last one in the log stands. The first Fence of a bucket takes in the writers that present no token: until then
// they don't ask, and one that wrote before may write on for some seconds (see the writers' page in the documentation).
//
// Errors: a *FencingTokenError; an *UnsupportedError, which names the setting, for a bucket that could lose its fence or that
// does not take batches; a *NotWrittenError. Nothing was changed after any of them. After an error that matches
// ErrOutcomeUnknown the token may be installed or not; the same Fence may be done again.
//
// It is concurrency control and no authorization: whoever may write the bucket without this package is not held back.
func Fence(ctx context.Context, b Bucket, token string) (Seq, error) {
	last, err := installFence(ctx, b, token)
	if err != nil {
		return 0, fmt.Errorf("fence: %w", err)
	}
	return Seq(last.Rank()), nil
}

func installFence(ctx context.Context, b Bucket, token string) (kv.Version, error) {
	if err := kv.ValidFencingToken(token); err != nil {
		return kv.Version{}, err
	}
	fencer, err := fencerOf(b, "fence")
	if err != nil {
		return kv.Version{}, err
	}
	for attempt := 0; ; attempt++ {
		seen, err := seeFence(ctx, fencer, token)
		if err != nil {
			return kv.Version{}, err
		}
		if protocol.PlanFence(seen.FenceSeen) == protocol.FenceWrites {
			return fencer.InstallFence(ctx, token)
		}
		last, moved, err := prove(ctx, fencer, seen)
		if err != nil || moved == nil {
			return last, err
		}
		if err := fenceAgain(ctx, "fence", attempt, moved); err != nil {
			return kv.Version{}, err
		}
	}
}

func fencerOf(b Bucket, op string) (kv.Fencer, error) {
	if b == nil {
		return nil, errors.New("no bucket")
	}
	fencer, ok := b.(kv.Fencer)
	if !ok {
		return nil, &kv.UnsupportedError{Op: op, Setting: "kv.Fencer", Detail: fmt.Sprintf("bucket %q (a %T) can't be fenced", b.Name(), b)}
	}
	return fencer, nil
}

// seenFence is a read of the fence record.
type seenFence struct {
	protocol.FenceSeen
	token string // of a readable record
	bad   error  // why it is not
}

// seeFence reads the record for who presents a token.
func seeFence(ctx context.Context, f kv.Fencer, token string) (seenFence, error) {
	rec, err := f.FenceRecord(ctx)
	switch {
	case errors.Is(err, kv.ErrKeyNotFound):
		return seenFence{}, nil
	case errors.Is(err, kv.ErrFenceRecord):
		return seenFence{FenceSeen: protocol.FenceSeen{Present: true}, bad: err}, nil
	case err != nil:
		return seenFence{}, err
	}
	seen := protocol.FenceSeen{Present: true, Readable: true, Holds: rec.Token == token, Revision: rec.Revision}
	return seenFence{FenceSeen: seen, token: rec.Token}, nil
}

// prove proves that the record that was seen stands, at the revision that it gives; moved is that it does not. An error is
// neither yes nor no. Whether a proof is stored whose answer did not come does not matter to anybody, so that is none of an
// unknown outcome.
func prove(ctx context.Context, f kv.Fencer, seen seenFence) (last kv.Version, moved, err error) {
	last, err = f.ProveFence(ctx, seen.Revision)
	switch {
	case errors.Is(err, kv.ErrFenceMoved):
		return kv.Version{}, err, nil
	case errors.Is(err, kv.ErrOutcomeUnknown):
		return kv.Version{}, nil, fmt.Errorf("nothing stored: what is installed can't be proved: %v: %w", err, cmp.Or(ctx.Err(), ErrNotWritten))
	case err != nil:
		return kv.Version{}, nil, fmt.Errorf("nothing stored: %w", err)
	}
	if !protocol.FenceProved(seen.FenceSeen, protocol.FenceProof{Stored: true, Expected: seen.Revision}) {
		return kv.Version{}, nil, fmt.Errorf("nothing stored: a proof of revision %d: %w", seen.Revision, ErrNotWritten)
	}
	return last, nil, nil
}

// fenceAgain waits before the next try, or is the error after the last one.
func fenceAgain(ctx context.Context, op string, attempt int, last error) error {
	if attempt+1 >= fenceAttempts {
		return &kv.NotWrittenError{Op: op, Attempts: attempt + 1, Err: last}
	}
	if err := pause(ctx, attempt); err != nil {
		return fmt.Errorf("nothing stored: %w", errors.Join(err, last))
	}
	return nil
}

// fencing is what one writer knows of its bucket's fence. It is safe for concurrent use.
type fencing struct {
	token string

	mu     sync.Mutex
	known  protocol.FenceSeen // the record that holds the token, or that there was none
	looked time.Time          // when it was read; zero: not known
}

// write does a write under the fence: send is given the revision of the record to ask for, 0 for none.
func (f *fencing) write(ctx context.Context, b Bucket, send func(fence uint64) error) error {
	fencer, err := fencerOf(b, "write")
	if err != nil && f.token == "" {
		return send(0)
	}
	if err == nil {
		err = kv.ValidFencingToken(f.token)
	}
	if err != nil {
		return err
	}
	for attempt := 0; ; attempt++ {
		seen, err := f.see(ctx, fencer)
		if err != nil {
			return fmt.Errorf("nothing stored: %w", err)
		}
		var moved error
		switch protocol.PlanFenced(f.token != "", seen.FenceSeen) {
		case protocol.FencedAbsent:
			return &NoFenceError{Bucket: b.Name(), Presented: f.token}
		case protocol.FencedUnchecked:
			return send(0)
		case protocol.FencedWrite:
			err := send(seen.Revision)
			if err == nil || !errors.Is(err, kv.ErrFenceMoved) && !errors.Is(err, kv.ErrNotWritten) {
				return err
			}
			f.forget(seen.FenceSeen)
			if moved = err; !errors.Is(err, kv.ErrFenceMoved) {
				return err
			}
		case protocol.FencedProve:
			if _, moved, err = prove(ctx, fencer, seen); err != nil {
				return err
			}
			if moved == nil {
				return &FencedError{Bucket: b.Name(), Presented: f.token, Installed: seen.token, Revision: seen.Revision}
			}
		default:
			return fmt.Errorf("nothing stored: %w", seen.bad)
		}
		if err := fenceAgain(ctx, "write", attempt, moved); err != nil {
			return err
		}
	}
}

// see is what is known of the record, read if it has to be.
func (f *fencing) see(ctx context.Context, fencer kv.Fencer) (seenFence, error) {
	f.mu.Lock()
	known, looked := f.known, f.looked
	f.mu.Unlock()
	if !looked.IsZero() && (known.Present || time.Since(looked) < fenceLook) {
		return seenFence{FenceSeen: known}, nil
	}
	began := time.Now()
	seen, err := seeFence(ctx, fencer, f.token)
	if err == nil && (seen.Holds || !seen.Present && f.token == "") {
		f.mu.Lock()
		defer f.mu.Unlock()
		if seen.Revision >= f.known.Revision {
			f.known, f.looked = seen.FenceSeen, began
		}
	}
	return seen, err
}

// forget has the record read anew, if it still is the one that is known.
func (f *fencing) forget(seen protocol.FenceSeen) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known == seen {
		f.known, f.looked = protocol.FenceSeen{}, time.Time{}
	}
}
