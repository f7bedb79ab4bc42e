package virtual

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/typedfold/fold/runtime/kv"
)

// session is what one watch was asked for, and gave.
type session struct {
	after     uint64
	relist    bool
	updates   []kv.Update
	frontier  uint64
	deliverys int
}

// recorder is a bucket that notes its watches.
type recorder struct {
	kv.Bucket

	mu       sync.Mutex
	sessions []*session
	refused  int // opens that found the cursor expired
}

func (r *recorder) Open(ctx context.Context, req kv.OpenRequest) (kv.Watch, error) {
	w, err := r.Bucket.Open(ctx, req)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		if errors.Is(err, kv.ErrCursorExpired) {
			r.refused++
		}
		return nil, err
	}
	s := &session{after: req.After.Revision(), relist: req.After.IsNone()}
	r.sessions = append(r.sessions, s)
	return &recorded{Watch: w, r: r, s: s}, nil
}

type recorded struct {
	kv.Watch
	r *recorder
	s *session
}

func (w *recorded) Next(ctx context.Context, into kv.Delivery, most, maxBytes int) (kv.Delivery, error) {
	had := len(into.Updates)
	d, err := w.Watch.Next(ctx, into, most, maxBytes)
	if err != nil {
		return d, err
	}
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	w.s.deliverys++
	for _, u := range d.Updates[had:] {
		u.Value = append([]byte(nil), u.Value...)
		w.s.updates = append(w.s.updates, u)
	}
	w.s.frontier = max(w.s.frontier, d.Frontier)
	return d, nil
}

// agedOut counts the server's markers of values that aged out.
func (r *recorder) agedOut() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sessions {
		for i := range s.updates {
			if s.updates[i].Op == kv.OpAgedOut {
				n++
			}
		}
	}
	return n
}

// check holds every session against what was written: what a watch gives is ordered, comes once, is what was written, is
// all there is up to its frontier, and begins where it was asked to.
func (r *recorder) check(h *history) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for i, s := range r.sessions {
		if err := s.check(h); err != nil {
			errs = append(errs, fmt.Errorf("watch %d, after %d: %w", i, s.after, err))
		}
	}
	return errors.Join(errs...)
}

func (s *session) check(h *history) error {
	last := s.after
	got := map[uint64]bool{}
	for i := range s.updates {
		u := &s.updates[i]
		rev := u.Version.Rank()
		if rev <= last {
			return fmt.Errorf("revision %d came after %d", rev, last)
		}
		last, got[rev] = rev, true
		if err := h.tells(u); err != nil {
			return err
		}
	}
	return s.complete(h, got)
}

// complete: each key's last write in the range is there, unless a later one took its place before it was delivered, or the
// log could lose it.
func (s *session) complete(h *history, got map[uint64]bool) error {
	for rev := s.after + 1; rev <= s.frontier; rev++ {
		w, ok := h.at(rev)
		if !ok || got[rev] || h.supersededBy(w) != 0 || h.mayVanish(w) {
			continue
		}
		return fmt.Errorf("revision %d of %q was left out before frontier %d", rev, w.key, s.frontier)
	}
	return nil
}
