package fold_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/store"
)

// TestAnotherLogIsRefused: a log that was replaced or rewound stops the fold as it was, and reads go on.
func TestAnotherLogIsRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(l *kvtest.Log)
		want   error
	}{
		{"replaced", func(l *kvtest.Log) {
			l.Recreate()
			for range 9 {
				l.Set("route.t.a", "")
			}
		}, fold.ErrLogReplaced},
		{"rewound", func(l *kvtest.Log) {
			l.Rewind(2)
		}, fold.ErrLogRewound},
		{"rewound and written to", func(l *kvtest.Log) {
			l.Rewind(2)
			for i := range 9 {
				l.Set(fmt.Sprintf("route.t.z%d", i), "")
			}
		}, fold.ErrLogRewound},
	} {
		for _, running := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, running=%v", c.name, running), func(t *testing.T) {
				dir, log := t.TempDir(), newHistoryLog(8)
				for i := range 4 {
					setRoute(t, log, route("t", "a", fmt.Sprint(i)))
				}
				tb := start(t, log, openStore(t, backends[0], dir), startOptions{})
				tb.caughtUp(t, log)
				if running {
					c.change(log)
				} else {
					tb.close(t)
					c.change(log)
					tb = start(t, log, openStore(t, backends[0], dir), startOptions{})
				}
				select {
				case <-tb.f.Done():
				case <-bounded(t).Done():
					t.Fatal("the fold goes on")
				}
				var changed *fold.LogChangedError
				if err := tb.f.Err(); !errors.Is(err, c.want) || !errors.As(err, &changed) || changed.Cursor != kv.CursorAt(4) || changed.Hint() == "" {
					t.Errorf("stopped with %v", err)
				}
				if tb.f.Cursor() != kv.CursorAt(4) {
					t.Errorf("at %v", tb.f.Cursor())
				}
				wantRoute(t, tb, "t", "a", "3")
				wantRoute(t, tb, "t", "z0", "")
			})
		}
	}
}

// TestLogRecord: what is kept of the log is its creation time and a few messages, the newest last, however long the
// fold runs.
func TestLogRecord(t *testing.T) {
	log := newLog()
	s := openStore(t, backends[0], t.TempDir())
	tb := start(t, log, s, startOptions{})
	for i := range 300 {
		setRoute(t, log, route("t", fmt.Sprint(i%3), fmt.Sprint(i)))
		tb.caughtUp(t, log)
	}
	var v store.Value
	if ok, err := s.Get(store.MetaKey("log"), &v); err != nil || !ok {
		t.Fatal("no record of the log", err)
	}
	defer v.Release()
	b := v.Bytes[1:]
	created, n := binary.Varint(b)
	count, m := binary.Uvarint(b[n:])
	b = b[n+m:]
	info, err := log.Info(bounded(t))
	if err != nil || created != info.Created.UnixNano() || count < 2 || count > 4 {
		t.Fatalf("created %d, %d samples (%v)", created, count, err)
	}
	last := uint64(0)
	for range count {
		rev, n := binary.Uvarint(b)
		_, m := binary.Varint(b[n:])
		b = b[n+m:]
		if rev <= last {
			t.Errorf("sample %d after %d", rev, last)
		}
		last = rev
	}
	if last != 300 || len(b) != 0 {
		t.Errorf("the newest sample is %d, %d bytes are left", last, len(b))
	}
}

func TestDamagedLogRecordStopsTheFold(t *testing.T) {
	for _, bad := range []string{"", "\x02", "\x01", "\x01\x02\x05\x01", "\x01\x02\x00x", "\x01\x02\xff\xff\x03"} {
		dir, log := t.TempDir(), newLog()
		s := openStore(t, backends[0], dir)
		if err := s.Apply(bounded(t), &store.Batch{Ops: []store.Op{{Key: store.MetaKey("log"), Value: []byte(bad)}}}, kv.Cursor{}); err != nil {
			t.Fatal(err)
		}
		tb, err := tryStart(t, log, s, startOptions{})
		if err != nil {
			t.Fatal(err)
		}
		<-tb.f.Done()
		if err := tb.f.Err(); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("record %q: %v", bad, err)
		}
		if err := tb.f.Close(); err != nil {
			t.Error(err)
		}
	}
}
