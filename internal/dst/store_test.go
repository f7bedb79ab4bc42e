package dst

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// faultStore is the store of one life: it brings the schedule's faults, and looks at each commit.
type faultStore struct {
	store.Store
	w    *world
	dead bool
}

var (
	errCrash = fmt.Errorf("the process is gone: %w", store.ErrClosed)
	errDisk  = errors.New("the disk is sulking")
)

func (s *faultStore) Apply(ctx context.Context, b *store.Batch, c kv.Cursor) error {
	w := s.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.dead {
		return errCrash
	}
	switch fault := w.due(); fault {
	case transient, stuck:
		return errDisk
	case crashBefore:
		s.dead = true
		return errCrash
	case crashTorn:
		s.dead = true
		if err := s.Store.Apply(ctx, torn(b), s.Store.Cursor()); err != nil {
			return err
		}
		return errCrash
	case crashAfter:
		s.dead = true
		if err := s.apply(ctx, b, c); err != nil {
			return err
		}
		return errCrash
	case shutdown:
		defer w.quit()
	}
	return s.apply(ctx, b, c)
}

// Export is none of a process that is gone.
func (s *faultStore) Export(ctx context.Context, dir string) error {
	s.w.mu.Lock()
	dead := s.dead
	s.w.mu.Unlock()
	if dead {
		return errCrash
	}
	return s.Store.Export(ctx, dir)
}

// due counts an apply, and gives the fault that hits it; "" is none.
func (w *world) due() string {
	if !w.measured {
		return ""
	}
	w.applies++
	for _, f := range w.faults {
		if at := w.applies - f.at; at == 0 || f.kind == stuck && at > 0 && at < stuckFor {
			w.tally.hit(f.kind)
			return f.kind
		}
	}
	return ""
}

func (s *faultStore) apply(ctx context.Context, b *store.Batch, c kv.Cursor) error {
	err := s.Store.Apply(ctx, b, c)
	if err == nil {
		s.w.breaks(s.w.commits(s.Store, c))
	}
	return err
}

// torn is what a batch leaves when its data is on disk, and what moves with the cursor is not.
func torn(b *store.Batch) *store.Batch {
	t := &store.Batch{Updates: b.Updates, Bulk: b.Bulk}
	for _, op := range b.Ops {
		if op.Key[0] != byte(store.SpaceMeta) {
			t.Ops = append(t.Ops, op)
		}
	}
	return t
}

// breaks notes an invariant that does not hold; the first one counts. The world is locked.
func (w *world) breaks(err error) {
	if err != nil && w.broken == nil {
		w.broken = err
	}
}

// commits checks what holds of every commit: the cursor does not go back, nor is the memo lost, and where the log still
// holds all that is after the cursor, and nothing is owed, the rows and that are the truth.
func (w *world) commits(s store.Store, c kv.Cursor) error {
	was := w.committed
	w.committed = c
	switch {
	case was.SeenEvicting && !c.SeenEvicting:
		return fmt.Errorf("commit at %v after %v: the memo is lost", c, was)
	case c.Revision() < was.Revision() && !(c.IsNone() && w.anyRevision()):
		return fmt.Errorf("the cursor went from %v back to %v", was, c)
	case s.Cursor() != c:
		return fmt.Errorf("the store is at %v after a commit at %v", s.Cursor(), c)
	}
	if c.IsNone() || w.anyRevision() || w.story.markersGo || w.bent {
		return nil
	}
	return w.resumable(s, c)
}

// resumable checks that what a store or an artifact holds at a cursor, and what the log holds after it, are the truth;
// where the log does not hold all of that any more, or something is owed, nothing is said.
func (w *world) resumable(g store.Getter, c kv.Cursor) error {
	owed, err := store.OwedOf(g)
	if err != nil {
		return err
	}
	known, err := store.LogOf(g)
	if err != nil {
		return err
	}
	info := w.bounds()
	other := known.CreatedUnixNano != 0 && known.CreatedUnixNano != info.Created.UnixNano()
	held := w.log.Retained()
	// No kernel is asked what can be resumed, so that one that is wrong does not excuse what comes of it.
	begins := c.Revision() == info.Last || len(held) > 0 && held[0].Version.Rank() <= c.Revision()+1
	if owed.Why != 0 || other || c.Revision() > info.Last || !begins {
		return nil
	}
	rows, err := rowsOf(g)
	if err != nil {
		return err
	}
	for _, u := range held {
		switch {
		case u.Version.Rank() <= c.Revision() || !w.scope.Contains(u.Key):
		case u.Op == kv.OpPut:
			rows[u.Key] = rowOf(u.Version, u.Value)
		case u.Op.Removes():
			delete(rows, u.Key)
		}
	}
	diff := differ(rows, w.truth())
	if now := w.bounds(); now.First != info.First || now.Last != info.Last || now.Messages != info.Messages {
		return nil // the log has moved on while it was read
	}
	if diff != "" {
		return fmt.Errorf("at %v: rows and what is after them are not the truth: %s", c, diff)
	}
	return nil
}

// row is a row of the fold.
type row struct {
	rev   uint64
	value string
}

func (r row) String() string { return fmt.Sprintf("%d=%x", r.rev, r.value) }

func rowOf(v kv.Version, value []byte) row { return row{v.Rank(), string(value)} }

// rowsOf are a store's rows.
func rowsOf(g store.Getter) (map[string]row, error) {
	it, err := g.Iter(store.IterOptions{Lower: []byte{byte(store.SpaceData)}, Upper: []byte{byte(store.SpaceData) + 1}})
	if err != nil {
		return nil, err
	}
	rows := map[string]row{}
	for it.Next() {
		b, err := it.Value()
		if err != nil {
			return nil, errors.Join(err, it.Close())
		}
		r, err := store.ParseRecord(b)
		if err != nil {
			return nil, errors.Join(err, it.Close())
		}
		rows[store.NATSKey(it.Key())] = rowOf(r.Version, r.Value)
	}
	return rows, errors.Join(it.Err(), it.Close())
}

// truth is every write minus every real delete, and what is out of scope.
func (w *world) truth() map[string]row {
	rows := maps.Clone(w.foreign)
	for key, e := range w.log.Truth(w.scope, 1<<62) {
		rows[key] = rowOf(e.Version, e.Value)
	}
	return rows
}

// differ tells how two folds differ; "" when they do not.
func differ(got, want map[string]row) string {
	if maps.Equal(got, want) {
		return ""
	}
	var diff []string
	for k, v := range got {
		if want[k] != v {
			diff = append(diff, fmt.Sprintf("%s is %v, want %v", k, v, want[k]))
		}
	}
	for k, v := range want {
		if _, ok := got[k]; !ok {
			diff = append(diff, fmt.Sprintf("%s is missing, want %v", k, v))
		}
	}
	return strings.Join(diff, "; ")
}
