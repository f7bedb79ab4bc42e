package lease

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// ErrTTLTooShort is a TTL below a second.
var ErrTTLTooShort = errors.New("lease ttl too short")

// Bucket is what a lease needs of a bucket: reads from its leader, and conditional writes. A kv.Bucket is one. It should
// not be the bucket that is exported, whose folds would see the key.
type Bucket interface {
	Entry(ctx context.Context, key string) (kv.Entry, error)
	Create(ctx context.Context, key string, value []byte, o kv.PutOptions) (kv.Version, error)
	Update(ctx context.Context, key string, value []byte, at kv.Version, o kv.PutOptions) (kv.Version, error)
	Delete(ctx context.Context, key string, o kv.DeleteOptions) (kv.Version, error)
}

// Options make a Lease.
type Options struct {
	Bucket Bucket
	// Key is the lease's key, the same on every node that takes turns.
	Key string
	// Holder names this node, and no other one: at most 256 bytes of printable text.
	Holder string
	// Now is the clock; default time.Now.
	Now func() time.Time
}

const maxHolder = 256

// Validate reports what is missing or wrong.
func (o Options) Validate() error {
	switch {
	case o.Bucket == nil:
		return errors.New("lease: no bucket")
	case o.Holder == "":
		return errors.New("lease: no holder; name this node")
	case len(o.Holder) > maxHolder:
		return fmt.Errorf("lease: holder of %d bytes, at most %d", len(o.Holder), maxHolder)
	case !printable(o.Holder):
		return fmt.Errorf("lease: holder %q is not printable text", o.Holder)
	}
	if err := kv.ValidKey(o.Key); err != nil {
		return fmt.Errorf("lease: %w", err)
	}
	return nil
}

// printable text is what every JSON encoder writes alike.
func printable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !strconv.IsPrint(r) {
			return false
		}
	}
	return true
}

// Lease is one node's view of a lease. It is safe for concurrent use.
type Lease struct {
	bucket Bucket
	key    string
	holder string
	now    func() time.Time
}

// New makes a lease. It does not touch the bucket.
func New(o Options) (*Lease, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Lease{bucket: o.Bucket, key: o.Key, holder: o.Holder, now: o.Now}, nil
}

// CorruptError is a lease's value that is no record. TryAcquire replaces it.
type CorruptError struct {
	Key     string
	Version kv.Version
	Err     error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("lease %q: revision %v is no record: %v", e.Key, e.Version, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// Hint says what a person can do.
func (e *CorruptError) Hint() string {
	return "nothing is needed: the next export round replaces it; see that no other program writes this key"
}

// TTLError is a TTL that a record, which counts whole seconds, can't hold. It matches ErrTTLTooShort.
type TTLError struct{ TTL time.Duration }

func (e *TTLError) Error() string {
	return fmt.Sprintf("lease ttl %v is below 1s: it would have expired when it is taken", e.TTL)
}

func (e *TTLError) Is(target error) bool { return target == ErrTTLTooShort }

// Hint says what a person can do.
func (e *TTLError) Hint() string {
	return "give the lease the time that an export and its upload take, in minutes"
}

// Current is the record that is stored, be it live or not; ok is false when there is none. A value that is no record is a
// *CorruptError.
func (l *Lease) Current(ctx context.Context) (r Record, ok bool, err error) {
	e, found, err := l.read(ctx)
	if err != nil {
		return Record{}, false, fmt.Errorf("lease %q: read: %w", l.key, err)
	}
	if !found || e.IsTombstone() {
		return Record{}, false, nil
	}
	if r, err = ParseRecord(e.Value); err != nil {
		return Record{}, false, &CorruptError{Key: l.key, Version: e.Version, Err: err}
	}
	return r, true, nil
}

// TryAcquire takes the lease for ttl, of which a fraction of a second is cut off. won is false, without an error, when
// somebody else holds it or was faster. An error leaves open whether it was taken only if it matches
// kv.ErrOutcomeUnknown; then it is nobody's until it expires.
func (l *Lease) TryAcquire(ctx context.Context, ttl time.Duration) (g *Guard, won bool, err error) {
	if ttl < time.Second {
		return nil, false, &TTLError{TTL: ttl}
	}
	seen, found, err := l.read(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("lease %q: acquire: %w", l.key, err)
	}
	now := l.seconds()
	in := protocol.LeaseSeen{Present: found && !seen.IsTombstone(), Now: now}
	if in.Present {
		r, err := ParseRecord(seen.Value)
		in.Readable, in.Acquired, in.Expires = err == nil, r.AcquiredAtUnix, r.ExpiresAtUnix
		in.Stored = uint64(max(seen.UnixNano, 0)) / uint64(time.Second)
	}
	if protocol.NextLeaseStep(in) == protocol.LeaseLost {
		return nil, false, nil
	}
	r := Record{HolderID: l.holder, AcquiredAtUnix: now, ExpiresAtUnix: now + uint64(ttl/time.Second)}
	at, won, err := l.store(ctx, r, seen.Version)
	if err != nil {
		return nil, false, fmt.Errorf("lease %q: acquire: %w", l.key, err)
	}
	if !won {
		return nil, false, nil
	}
	return &Guard{lease: l, record: r, at: at}, true, nil
}

// seconds is the clock in Unix seconds; never below 0, which the record can't hold.
func (l *Lease) seconds() uint64 { return uint64(max(l.now().Unix(), 0)) }

// read is the key's last message, with a tombstone's version; found is false when there is no message at all.
func (l *Lease) read(ctx context.Context) (e kv.Entry, found bool, err error) {
	e, err = l.bucket.Entry(ctx, l.key)
	if errors.Is(err, kv.ErrKeyNotFound) {
		return kv.Entry{}, false, nil
	}
	return e, err == nil, err
}

// store writes the record in the place of what was seen, unknown for a key that was never written; stored is false when
// somebody was faster.
func (l *Lease) store(ctx context.Context, r Record, seen kv.Version) (at kv.Version, stored bool, err error) {
	value, err := r.Encode()
	if err != nil {
		return kv.Version{}, false, err
	}
	send := func() (kv.Version, error) {
		if seen.IsUnknown() {
			return l.bucket.Create(ctx, l.key, value, kv.PutOptions{})
		}
		return l.bucket.Update(ctx, l.key, value, seen, kv.PutOptions{})
	}
	return l.settle(ctx, seen, send, func(e kv.Entry, found bool) bool {
		return found && !e.IsTombstone() && bytes.Equal(e.Value, value)
	})
}

// sendAttempts is how often a write is sent whose answer is lost.
const sendAttempts = 3

// settle sends a write under the version that was seen until it is known whether it was stored. When an answer is lost,
// the leader is asked: mine judges what it shows. A key that shows another version, and is not mine, was never written
// here and never will be; one that still shows the version that was seen is written again.
func (l *Lease) settle(ctx context.Context, seen kv.Version, send func() (kv.Version, error), mine func(kv.Entry, bool) bool) (at kv.Version, stored bool, err error) {
	for attempt := 1; ; attempt++ {
		at, sent := send()
		switch {
		case sent == nil:
			return at, true, nil
		case attempt == 1 && refused(sent):
			return kv.Version{}, false, nil
		case attempt == 1 && !errors.Is(sent, kv.ErrOutcomeUnknown):
			return kv.Version{}, false, sent
		case !refused(sent) && !errors.Is(sent, kv.ErrOutcomeUnknown):
			return kv.Version{}, false, fmt.Errorf("%w: %w", kv.ErrOutcomeUnknown, sent)
		}
		e, found, err := l.read(ctx)
		if err != nil {
			return kv.Version{}, false, fmt.Errorf("%w: %w, and the key can't be read: %w", kv.ErrOutcomeUnknown, sent, err)
		}
		if e.Version != seen {
			return e.Version, mine(e, found), nil
		}
		if attempt == sendAttempts {
			return kv.Version{}, false, fmt.Errorf("after %d attempts: %w", attempt, sent)
		}
	}
}

// refused reports whether the write was not stored since the key's version was another one.
func refused(err error) bool { return errors.Is(err, kv.ErrConflict) }
