package fold_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/store"
)

func TestAppliedFlushOnWindow(t *testing.T) {
	withAndWithoutStore(t, func(t *testing.T, c fold.WatchConfig) {
		log := newLog()
		c.Watcher, c.Batch = log, fold.BatchOptions{Window: time.Second}
		a := apply(c, nil)
		a.seen()
		log.Set("a", "1")
		a.seen()
		time.Sleep(999 * time.Millisecond)
		log.Set("b", "2")
		if got := a.seen(); got != "" {
			t.Errorf("within the window: %s", got)
		}
		time.Sleep(time.Millisecond)
		if got := a.seen(); got != "1:a=1 2:b=2" || a.reported() != "[2]" {
			t.Errorf("after the window: %s, reported %s", got, a.reported())
		}
		checkEnd(t, a, c, 2, nil)
		if log.OpenWatches() != 0 {
			t.Error("the watch is still open")
		}
	})
}

func TestAppliedFlushOnMax(t *testing.T) {
	withAndWithoutStore(t, func(t *testing.T, c fold.WatchConfig) {
		log := newLog()
		c.Watcher, c.Batch = log, fold.BatchOptions{Window: time.Hour, Max: 2}
		a := apply(c, nil)
		a.seen()
		for _, pair := range []string{"a1", "b!", "c3"} {
			log.Set(pair[:1], pair[1:])
			a.seen()
		}
		if got := a.seen(); got != "1:a=1" || a.reported() != "[2]" {
			t.Errorf("at the max, refused ones counted: %s, reported %s", got, a.reported())
		}
		checkEnd(t, a, c, 3, nil)
		if got := a.seen(); got != "1:a=1 | 3:c=3" {
			t.Errorf("flush on shutdown: %s", got)
		}
	})
}

func TestAppliedShutdownWithNothingPending(t *testing.T) {
	withAndWithoutStore(t, func(t *testing.T, c fold.WatchConfig) {
		c.Watcher = newLog()
		a := apply(c, nil)
		a.seen()
		checkEnd(t, a, c, 0, nil)
		if a.seen() != "" || a.reported() != "[]" {
			t.Errorf("%s, reported %s", a.seen(), a.reported())
		}
	})
}

// TestAppliedFlushesBeforeItEnds: everything received is applied before the error of a watch that ended for good.
func TestAppliedFlushesBeforeItEnds(t *testing.T) {
	for name, end := range map[string]error{
		"expired":  &kv.ExpiredError{Bucket: "test", Cursor: kv.CursorAt(2), First: 9},
		"replaced": &kv.LogChangedError{Bucket: "test", Replaced: true},
		"rewound":  &kv.LogChangedError{Bucket: "test"},
	} {
		want := map[string]error{"expired": fold.ErrCursorExpired, "replaced": fold.ErrLogReplaced, "rewound": fold.ErrLogRewound}[name]
		t.Run(name, func(t *testing.T) {
			withAndWithoutStore(t, func(t *testing.T, c fold.WatchConfig) {
				s := kvtest.NewScript(kv.LogInfo{}, kvtest.Opening{
					Info: kv.LogInfo{Last: 2}, End: end,
					Turns: []kvtest.Turn{kvtest.Deliver(put(1, "a", "1"), put(2, "b", "!"))},
				})
				c.Watcher, c.Batch = s, fold.BatchOptions{Window: time.Hour}
				a := apply(c, nil)
				<-a.done
				if got := a.seen(); got != "1:a=1" || a.reported() != "[2]" {
					t.Errorf("applied %s, reported %s", got, a.reported())
				}
				checkEnd(t, a, c, 2, want)
				if s.Closed() != 1 {
					t.Errorf("%d watches closed", s.Closed())
				}
			})
		})
	}
}

// TestAppliedOpenRefused: a resume that the log refuses leaves everything as it was.
func TestAppliedOpenRefused(t *testing.T) {
	withAndWithoutStore(t, func(t *testing.T, c fold.WatchConfig) {
		log := newLog()
		c.Watcher = log
		for i := range 3 {
			log.Set("k", fmt.Sprint(i))
			log.Set("l", fmt.Sprint(i))
		}
		first := apply(c, nil)
		first.seen()
		checkEnd(t, first, c, 6, nil)
		if c.Store == nil {
			c.Resume = kv.CursorAt(6)
		}
		log.Set("k", "x")
		log.Set("l", "x")
		log.Set("l", "y")
		log.EvictTo(9)
		a := apply(c, nil)
		<-a.done
		checkEnd(t, a, c, 6, fold.ErrCursorExpired)
		var expired *fold.ExpiredError
		if !errors.As(a.err, &expired) || expired.First != 9 || expired.Cursor != kv.CursorAt(6) || a.seen() != "" {
			t.Errorf("%v, applied %s", a.err, a.seen())
		}
		log.Rewind(3)
		a = apply(c, nil)
		<-a.done
		checkEnd(t, a, c, 6, fold.ErrLogRewound)
		log.Recreate()
		a = apply(c, nil)
		<-a.done
		if c.Store == nil { // nothing but the cursor is known of the log
			checkEnd(t, a, c, 6, fold.ErrLogRewound)
			return
		}
		checkEnd(t, a, c, 6, fold.ErrLogReplaced)
		var v store.Value
		if ok, err := c.Store.Get(store.AppendKey(nil, store.SpaceData, "k"), &v); err != nil || !ok {
			t.Errorf("the store lost k: %v %v", ok, err)
		}
		v.Release()
	})
}

// TestAppliedNoticesARewindWhileItWatches, though the log has grown past the cursor again.
func TestAppliedNoticesARewindWhileItWatches(t *testing.T) {
	withAndWithoutStore(t, func(t *testing.T, c fold.WatchConfig) {
		log := newHistoryLog(8)
		c.Watcher = log
		a := apply(c, nil)
		for i := range 4 {
			log.Set("k", fmt.Sprint(i))
			a.seen()
		}
		log.Inject(kvtest.Fault{At: kvtest.PointOpen, Fail: true})
		log.Rewind(2)
		for i := range 4 {
			log.Set("k", fmt.Sprint("other", i))
		}
		<-a.done
		checkEnd(t, a, c, 4, fold.ErrLogRewound)
		if strings.Contains(a.seen(), "other") {
			t.Errorf("applied %s", a.seen())
		}
	})
}

func TestAppliedCursorMovesOnlyAfterApply(t *testing.T) {
	withAndWithoutStore(t, func(t *testing.T, c fold.WatchConfig) {
		log := newLog()
		c.Watcher = log
		gate := make(chan struct{})
		a := apply(c, func(string) error { <-gate; return nil })
		a.seen()
		log.Set("a", "1")
		if a.reported() != "[]" || c.Store != nil && !c.Store.Cursor().IsNone() {
			t.Errorf("reported %s while apply runs", a.reported())
		}
		close(gate)
		if a.reported() != "[1]" {
			t.Errorf("reported %s", a.reported())
		}
		log.Set("b", "!")
		if a.reported() != "[1 2]" || a.seen() != "1:a=1" {
			t.Errorf("an entry that parse left out: reported %s, applied %s", a.reported(), a.seen())
		}
		checkEnd(t, a, c, 2, nil)
	})
}

func TestAppliedUnknownVersionNeitherMovesNorClobbers(t *testing.T) {
	withAndWithoutStore(t, func(t *testing.T, c fold.WatchConfig) {
		unknown := put(0, "u", "x")
		unknown.Version = kv.Version{}
		c.Watcher = kvtest.NewScript(kv.LogInfo{}, kvtest.Opening{Info: kv.LogInfo{Last: 3}, Turns: []kvtest.Turn{
			{Delivery: kv.Delivery{Updates: []kv.Update{put(3, "a", "1"), unknown}}},
			{Delivery: kv.Delivery{Updates: []kv.Update{unknown}}},
		}})
		c.Batch = fold.BatchOptions{BulkMax: 1}
		a := apply(c, nil)
		if got := a.seen(); strings.Count(got, "u=x") != 2 || a.reported() != "[3]" {
			t.Errorf("applied %s, reported %s", got, a.reported())
		}
		checkEnd(t, a, c, 3, nil)
	})
}

func TestAppliedWatchLostGoesOnFromThere(t *testing.T) {
	withAndWithoutStore(t, func(t *testing.T, c fold.WatchConfig) {
		s := kvtest.NewScript(kv.LogInfo{},
			kvtest.Opening{Err: errors.New("no responders")},
			kvtest.Opening{Info: kv.LogInfo{Last: 2}, End: kv.ErrWatchLost, Turns: []kvtest.Turn{kvtest.Deliver(put(1, "a", "1"), put(2, "b", "2"))}},
			kvtest.Opening{Info: kv.LogInfo{Last: 3}, Turns: []kvtest.Turn{kvtest.Deliver(put(2, "b", "2"), put(3, "c", "3"))}},
		)
		c.Watcher = s
		a := apply(c, nil)
		time.Sleep(time.Minute)
		if got := a.seen(); got != "1:a=1 2:b=2 | 2:b=2 3:c=3" || a.reported() != "[2 3]" {
			t.Errorf("applied %s, reported %s", got, a.reported())
		}
		checkEnd(t, a, c, 3, nil)
		var after []string
		for _, o := range s.Opens() {
			after = append(after, o.After.String())
		}
		if got := strings.Join(after, " "); got != "none none 2" {
			t.Errorf("opened after %s", got)
		}
	})
}

func TestAppliedResumeDeliversOnlyTheDelta(t *testing.T) {
	withAndWithoutStore(t, func(t *testing.T, c fold.WatchConfig) {
		log := newLog()
		for i := range 5 {
			log.Set(fmt.Sprint("k", i), "x")
		}
		c.Watcher = log
		a := apply(c, nil)
		a.seen()
		cursor, err := a.stop()
		if err != nil || cursor != kv.CursorAt(5) {
			t.Fatal(cursor, err)
		}
		if c.Store == nil {
			c.Resume = cursor
		}
		log.Set("k2", "y")
		log.Remove("k4")
		a = apply(c, nil)
		if got := a.seen(); got != "6:k2=y 7:k4=delete" {
			t.Errorf("applied %s", got)
		}
		checkEnd(t, a, c, 7, nil)
	})
}

func TestAppliedErrorsAndPanicsBringTheBatchAgain(t *testing.T) {
	for _, panics := range []bool{false, true} {
		t.Run(fmt.Sprintf("panics=%v", panics), func(t *testing.T) {
			withAndWithoutStore(t, func(t *testing.T, c fold.WatchConfig) {
				log := newLog()
				c.Watcher = log
				var tries []string
				a := apply(c, func(batch string) error {
					if tries = append(tries, batch); len(tries) <= 3 && panics {
						panic("at the disco")
					} else if len(tries) <= 3 {
						return errHook
					}
					return nil
				})
				a.seen()
				log.Set("a", "1")
				a.seen()
				log.Set("b", "2")
				time.Sleep(time.Minute)
				a.seen()
				if got := strings.Join(tries, " | "); got != "1:a=1 | 1:a=1 | 1:a=1 | 1:a=1 | 2:b=2" || a.reported() != "[1 2]" {
					t.Errorf("tried %s, reported %s", got, a.reported())
				}
				checkEnd(t, a, c, 2, nil)
			})
		})
	}
}

func TestAppliedGivesUp(t *testing.T) {
	withAndWithoutStore(t, func(t *testing.T, c fold.WatchConfig) {
		log := newLog()
		log.Set("a", "1")
		c.Watcher = log
		n := 0
		a := apply(c, func(string) error { n++; return errHook })
		<-a.done
		checkEnd(t, a, c, 0, errHook)
		var fs *fold.FailStopError
		if !errors.As(a.err, &fs) || fs.Failures != fold.MaxFailures || n != fold.MaxFailures || !strings.Contains(a.err.Error(), "consecutive times") {
			t.Errorf("after %d tries: %v", n, a.err)
		}
	})
}

func TestAppliedParsePanicEndsTheWatch(t *testing.T) {
	withAndWithoutStore(t, func(t *testing.T, c fold.WatchConfig) {
		log := newLog()
		c.Watcher = log
		a := apply(c, nil)
		a.seen()
		log.Set("a", "1")
		a.seen()
		log.Set("b", "?")
		<-a.done
		if _, err := a.stop(); err == nil || !strings.Contains(err.Error(), "parse panicked: cannot parse ?") {
			t.Errorf("ended with %v", err)
		}
		if a.cursor != kv.CursorAt(1) || a.seen() != "1:a=1" {
			t.Errorf("at %v, applied %s", a.cursor, a.seen())
		}
	})
}

// TestAppliedStoreFailuresLeaveNoGap: whatever apply of the store fails, what is committed is a prefix of the log.
func TestAppliedStoreFailuresLeaveNoGap(t *testing.T) {
	for failAt := 1; failAt <= 6; failAt++ {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			log := newHistoryLog(8)
			s := &faultStore{Store: openStore(t, backends[0], dir), apply: func(n int, b *store.Batch, c kv.Cursor) error {
				if n >= failAt && n < failAt+2 {
					return errors.New("disk is sulking")
				}
				return nil
			}}
			c := fold.WatchConfig{Watcher: log, Store: s, Batch: fold.BatchOptions{Max: 2, BulkMax: 2}}
			a := apply(c, nil)
			for i := range 6 {
				log.Set("k", fmt.Sprint(i))
				if i%2 == 0 {
					a.seen()
				}
			}
			time.Sleep(time.Minute)
			if got := strings.ReplaceAll(a.seen(), " |", ""); got != "1:k=0 2:k=1 3:k=2 4:k=3 5:k=4 6:k=5" {
				t.Errorf("failing at %d: applied %s", failAt, got)
			}
			last := uint64(0)
			for _, rev := range a.flushed {
				if rev <= last {
					t.Errorf("reported %v", a.flushed)
				}
				last = rev
			}
			checkEnd(t, a, c, 6, nil)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAppliedScope(t *testing.T) {
	withAndWithoutStore(t, func(t *testing.T, c fold.WatchConfig) {
		log := newLog()
		scope, err := fold.Prefixes("a.", "c.x")
		if err != nil {
			t.Fatal(err)
		}
		c.Watcher, c.Scope = log, scope
		for _, key := range []string{"a.1", "b.1", "c.x1", "c.y"} {
			log.Set(key, "v")
		}
		a := apply(c, nil)
		if got := a.seen(); got != "1:a.1=v 3:c.x1=v" {
			t.Errorf("applied %s", got)
		}
		checkEnd(t, a, c, 4, nil)
	})
}

func TestAppliedRefuses(t *testing.T) {
	s := openStore(t, backends[0], t.TempDir())
	defer func() { _ = s.Close() }()
	parse := func(*kv.Update) (int, bool) { return 0, true }
	apply := func(context.Context, []int) error { return nil }
	for want, c := range map[string]fold.WatchConfig{
		"no watcher":                 {},
		"leave Resume and Known out": {Watcher: newLog(), Store: s, Resume: kv.CursorAt(1)},
		"ShutdownTimeout is":         {Watcher: newLog(), ShutdownTimeout: -1},
		"Max is -1":                  {Watcher: newLog(), Batch: fold.BatchOptions{Max: -1}},
	} {
		if _, err := fold.WatchApplied(bounded(t), c, parse, apply); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	if _, err := fold.WatchApplied[int](bounded(t), fold.WatchConfig{Watcher: newLog()}, nil, apply); err == nil {
		t.Error("no parse was accepted")
	}
	if _, err := fold.WatchApplied(bounded(t), fold.WatchConfig{Watcher: newLog()}, parse, nil); err == nil {
		t.Error("no apply was accepted")
	}
	ended, cancel := context.WithCancel(bounded(t))
	cancel()
	if cursor, err := fold.WatchApplied(ended, fold.WatchConfig{Watcher: newLog(), Logger: quiet}, parse, apply); err != nil || !cursor.IsNone() {
		t.Errorf("a context that has ended: %v %v", cursor, err)
	}
}

// TestAppliedKnowsItsLogAcrossRestarts: without a store, what OnApplied gave of the log tells a re-created bucket from
// the one that the cursor came from, though it has grown past the cursor.
func TestAppliedKnowsItsLogAcrossRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLog()
		for i := range 3 {
			log.Set("k", fmt.Sprint(i))
		}
		c := fold.WatchConfig{Watcher: log}
		first := apply(c, nil)
		first.seen()
		checkEnd(t, first, c, 3, nil)
		last := first.last
		if last.Log.CreatedUnixNano == 0 || len(last.Log.Samples) == 0 {
			t.Fatalf("applied without its log: %+v", last)
		}
		log.Recreate()
		for i := range 9 {
			log.Set("other", fmt.Sprint(i))
		}
		c.Resume, c.Known = last.Cursor, last.Log
		a := apply(c, nil)
		<-a.done
		checkEnd(t, a, c, 3, fold.ErrLogReplaced)
	})
}
