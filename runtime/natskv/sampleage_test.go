package natskv_test

import (
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
	"github.com/typedfold/fold/runtime/protocol"
)

// TestCursorWithoutATimeIsAsYoungAsItsLastSample: a cursor has a time only with the memo, and where a message moved it. The
// last sample at or below it is no later.
func TestCursorWithoutATimeIsAsYoungAsItsLastSample(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{MaxAge: time.Hour})
	r.put(t, "a", "1")
	r.put(t, "a", "2")
	w := r.watch(t, kv.OpenRequest{})
	second := w.until(t, 2)[0].UnixNano
	for range 3 {
		r.put(t, "a", "new")
	}
	old := second - (31 * time.Minute).Nanoseconds()
	young := func(rev uint64) kv.Sample { return kv.Sample{Revision: rev, UnixNano: second} }
	for name, c := range map[string]struct {
		after   kv.Cursor
		samples []kv.Sample
		resumes bool
	}{
		"OfTheCursor":       {kv.CursorAt(2), []kv.Sample{young(2)}, true},
		"BeforeTheCursor":   {kv.CursorAt(2), []kv.Sample{young(1)}, true},
		"None":              {kv.CursorAt(2), nil, false},
		"AfterTheCursor":    {kv.CursorAt(2), []kv.Sample{young(3)}, false},
		"Old":               {kv.CursorAt(2), []kv.Sample{{Revision: 2, UnixNano: old}}, false},
		"TheLastOneIsOld":   {kv.CursorAt(2), []kv.Sample{young(1), {Revision: 2, UnixNano: old}}, false},
		"TheCursorHasATime": {kv.Cursor{Version: kv.Revision(2), SeenEvicting: true, WrittenAt: uint64(old / 1e6)}, []kv.Sample{young(2)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := r.bucket.Open(bounded(t), kv.OpenRequest{After: c.after, Known: kv.Incarnation{Samples: c.samples, AgeLimit: time.Hour.Nanoseconds()}})
			if !c.resumes {
				wantErr(t, err, kv.ErrCursorExpired)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if s := (&watched{w}).until(t, 5).text(); s != "a=new@5 put" {
				t.Error(s)
			}
			if err := w.Close(bounded(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLastMessageIsKnownByItsTimeWhenItIsGone: an idle log whose messages have all aged out is still told to be the same,
// by the time of its last one.
func TestLastMessageIsKnownByItsTimeWhenItIsGone(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{MaxAge: 200 * time.Millisecond})
	r.put(t, "a", "1")
	last := r.watch(t, kv.OpenRequest{}).until(t, 1)[0]
	ctx := bounded(t)
	for {
		info, err := r.bucket.Info(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if info.Messages == 0 {
			break
		}
	}
	for nano, want := range map[int64]protocol.LogAnswer{last.UnixNano: protocol.LogSame, last.UnixNano + 1: protocol.LogUnknown} {
		known := kv.Incarnation{Samples: []kv.Sample{{Revision: 1, UnixNano: nano}}}
		w, err := r.bucket.Open(ctx, kv.OpenRequest{After: kv.CursorAt(1), Known: known})
		if err != nil {
			t.Fatal(err)
		}
		if got := w.Info().Identity; got != want {
			t.Errorf("identity %v, want %v", got, want)
		}
		if err := w.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}
