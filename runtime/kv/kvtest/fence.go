package kvtest

import (
	"context"
	"fmt"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

var _ kv.Fencer = (*Log)(nil)

// FenceRecord reads the fence record.
func (l *Log) FenceRecord(ctx context.Context) (kv.FenceRecord, error) {
	e, err := l.read(ctx, "fence record", kv.FenceKey(0))
	if err != nil {
		return kv.FenceRecord{}, err
	}
	return kv.ReadFenceRecord(l.opts.Bucket, &e)
}

// InstallFence writes the record in one step of the log.
func (l *Log) InstallFence(ctx context.Context, token string) (kv.Version, error) {
	const op = "install fence"
	value, err := kv.FenceValue(token)
	if err != nil {
		return kv.Version{}, fmt.Errorf("%s: %w", op, err)
	}
	return l.reserved(ctx, op, func() (rev uint64, err error) {
		if l.limits.MaxAge > 0 && !l.limits.AllowTTL {
			return 0, &kv.UnsupportedError{Op: "fence", Setting: "MessageTTL", Detail: fmt.Sprintf("bucket %q would lose its fence record after %v", l.opts.Bucket, l.limits.MaxAge)}
		}
		if l.limits.MaxMessages > 0 {
			return 0, &kv.UnsupportedError{Op: "fence", Setting: "DiscardOld", Detail: fmt.Sprintf("bucket %q discards its oldest messages", l.opts.Bucket)}
		}
		for i := range protocol.FenceKeys {
			rev = l.write(kv.FenceKey(i), value, header{forever: true})
		}
		return rev, nil
	})
}

// ProveFence writes a check key, if the record of this revision stands.
func (l *Log) ProveFence(ctx context.Context, revision uint64) (kv.Version, error) {
	return l.reserved(ctx, "prove fence", func() (uint64, error) {
		if err := l.checkFence(revision); err != nil {
			return 0, err
		}
		return l.write(kv.CheckKey(0), []byte("0"), header{}), nil
	})
}

// reserved writes keys that nobody else may, in one step of the log.
func (l *Log) reserved(ctx context.Context, op string, do func() (uint64, error)) (kv.Version, error) {
	e, err := l.enter(ctx, PointWrite, op)
	if err != nil {
		return kv.Version{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire()
	rev, err := do()
	if err != nil {
		return kv.Version{}, fmt.Errorf("%s: %w", op, err)
	}
	if e.answerLost {
		return kv.Version{}, fmt.Errorf("%s: %w: %w", op, kv.ErrOutcomeUnknown, context.DeadlineExceeded)
	}
	return kv.Revision(rev), nil
}

// checkFence refuses a write that asks for a fence record that does not stand; 0 asks for none.
func (l *Log) checkFence(revision uint64) error {
	if revision == 0 {
		return nil
	}
	var now uint64
	if m := l.lastOf(kv.FenceKey(0)); m != nil {
		now = m.update.Version.Rank()
	}
	if now != revision {
		return &kv.FenceMovedError{Bucket: l.opts.Bucket, Key: kv.FenceKey(0), Want: revision, Got: now}
	}
	return nil
}
