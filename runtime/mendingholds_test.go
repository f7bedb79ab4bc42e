package fold

import (
	"context"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/repair"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
)

// TestChangeHoldsWhileItsRowIsTheOneItWasDecidedOn: a repair's change is left out once the row has moved on.
func TestChangeHoldsWhileItsRowIsTheOneItWasDecidedOn(t *testing.T) {
	s, err := logstore.Open(filepath.Join(t.TempDir(), "fold.log"), logstore.Options{Durability: logstore.None})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	b := store.Batch{Updates: []kv.Update{{Key: "at.7", Op: kv.OpPut, Version: kv.Revision(7)}, {Key: "unknown", Op: kv.OpPut}}}
	if err := s.Apply(context.Background(), &b, kv.CursorAt(7)); err != nil {
		t.Fatal(err)
	}
	l := &loop{cfg: loopConfig{store: s}}
	for _, c := range []struct {
		key     string
		expect  kv.Version
		unknown bool
		want    bool
	}{
		{"at.7", kv.Revision(7), false, true},
		{"at.7", kv.Revision(6), false, false},
		{"at.7", kv.Version{}, false, true},
		{"at.7", kv.Version{}, true, false},
		{"unknown", kv.Revision(7), false, false},
		{"unknown", kv.Version{}, true, true},
		{"none", kv.Revision(7), false, false},
		{"none", kv.Version{}, true, false},
		{"none", kv.Version{}, false, true},
	} {
		got, err := l.holds(&repair.Change{Update: kv.Update{Key: c.key, Op: kv.OpDelete}, Expect: c.expect, ExpectUnknown: c.unknown})
		if err != nil || got != c.want {
			t.Errorf("%s, expect %v %t: %t, err %v", c.key, c.expect, c.unknown, got, err)
		}
	}
}

// TestParseIsCalledOnceAtATime: an audit's changes are parsed while others are received.
func TestParseIsCalledOnceAtATime(t *testing.T) {
	var within, most atomic.Int32
	k := &applySink[string]{parse: func(u *kv.Update) (string, bool) {
		if n := within.Add(1); n > most.Load() {
			most.Store(n)
		}
		runtime.Gosched()
		within.Add(-1)
		return u.Key, true
	}}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			for range 100 {
				k.prepare(&segment{updates: make([]kv.Update, 1000)}, 0)
			}
		})
	}
	both.Wait()
	if most.Load() != 1 {
		t.Errorf("%d calls of parse at a time", most.Load())
	}
}
