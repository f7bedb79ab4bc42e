package fold_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
)

// heldStore keeps each Apply from returning after it has committed.
type heldStore struct {
	store.Store
	committed chan kv.Cursor
	gate      chan struct{}
}

func (s *heldStore) Apply(ctx context.Context, b *store.Batch, c kv.Cursor) error {
	err := s.Store.Apply(ctx, b, c)
	if len(b.Updates) > 0 {
		s.committed <- c
		<-s.gate
	}
	return err
}

// A store that syncs each commit is durable before the loop has heard of it.
func TestStatusNeverShowsDurableAheadOfApplied(t *testing.T) {
	synced, err := logstore.Open(filepath.Join(t.TempDir(), "fold.log"), logstore.Options{Durability: logstore.Sync})
	if err != nil {
		t.Fatal(err)
	}
	s := &heldStore{Store: synced, committed: make(chan kv.Cursor, 1), gate: make(chan struct{})}
	log := newLog()
	tb := start(t, log, s, startOptions{})
	setRoute(t, log, route("t", "a", "1"))
	select {
	case c := <-s.committed:
		if st := tb.f.Status(); s.Durable() != c || st.Durable > st.Applied {
			t.Errorf("status shows durable %d, applied %d, with %v in the store", st.Durable, st.Applied, c)
		}
	case <-bounded(t).Done():
		t.Error("nothing was applied")
	}
	close(s.gate)
	tb.caughtUp(t, log)
	if st := tb.f.Status(); st.Durable != 1 || st.Applied != 1 {
		t.Errorf("status shows durable %d, applied %d at the end", st.Durable, st.Applied)
	}
}
