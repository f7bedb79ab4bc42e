package fold_test

import (
	"fmt"
	"slices"
	"testing"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/store"
)

// viewedStore calls before, once, when a view is about to be made.
type viewedStore struct {
	store.Store
	before func()
}

func (s *viewedStore) Snapshot() (store.Snapshot, error) {
	if f := s.before; f != nil {
		s.before = nil
		f()
	}
	return s.Store.Snapshot()
}

// TestWhatTheFirstRowsShowIsNotToldAgain: a change that is committed once the watcher hears of changes, and before its first
// rows are read, is among these, and only there.
func TestWhatTheFirstRowsShowIsNotToldAgain(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		log := newHistoryLog(8)
		s := &viewedStore{Store: openStore(t, b, t.TempDir())}
		tb := start(t, log, s, startOptions{})
		setRoute(t, log, route("t", "a", "1"))
		tb.caughtUp(t, log)
		s.before = func() {
			setRoute(t, log, route("t", "b", "2"))
			tb.caughtUp(t, log)
		}
		var got []string
		for e, err := range tb.routes.Watch(bounded(t), nil, fold.WithInitial()) {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, fmt.Sprint(e.Key.Domain, " hydrating ", e.Hydrating)); e.Key.Domain == "c" {
				break
			}
			if len(got) == 2 {
				setRoute(t, log, route("t", "c", "3"))
			}
		}
		if want := []string{"a hydrating true", "b hydrating true", "c hydrating false"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
