package fold_test

import (
	"errors"
	"strings"
	"testing"

	foldtestv1 "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1"
	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
)

func TestKeepOldServesTheLastAcceptedValue(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		dir, log := t.TempDir(), newLog()
		r := &recorder{}
		o := startOptions{routes: []fold.TableOption{ft.WithRouteHooks(r), fold.Resident()}}
		rev := setRoute(t, log, route("t", "a", "1"))
		tb := start(t, log, openStore(t, b, dir), o)
		tb.hydrated(t)
		r.take()

		bad := log.Set(routeKey("t", "a").String(), "\xff\xff")
		neverGood := log.Set(routeKey("t", "b").String(), "\x0a")
		mismatch := set(t, log, routeKey("t", "c").String(), route("t", "other", "1"))
		check := func() {
			t.Helper()
			row, ok := get(t, tb.routes.Table, routeKey("t", "a"))
			if !ok || row.Value.NodeId != "1" || row.Rev.Seq() != rev || row.Stale == nil || row.Stale.Code != fold.ValueDecode || row.Stale.Revision != bad || row.Stale.Table != "Route" {
				t.Fatalf("row %+v %v, stale %v", row, ok, row.Stale)
			}
			wantRoute(t, tb, "t", "b", "")
			wantRoute(t, tb, "t", "c", "")
			rejs := collect(t, tb.routes.Rejected(bounded(t)))
			if len(rejs) != 3 || rejs[0].Revision != bad || rejs[1].Revision != neverGood || rejs[2].Revision != mismatch || rejs[2].Code != fold.KeyValueMismatch || rejs[2].Field != "domain" {
				t.Fatalf("rejected %v", rejs)
			}
			if rows := collect(t, tb.routes.List(bounded(t), ft.RouteAll())); len(rows) != 1 || rows[0].Stale == nil {
				t.Fatalf("list %v", rows)
			}
			if v, ok := tb.routes.Peek(routeKey("t", "a")); !ok || v.NodeId != "1" {
				t.Fatalf("peek %v %v", v, ok)
			}
			if st := tb.f.Status(); st.RejectedKeys != 3 {
				t.Fatalf("status %+v", st)
			}
		}
		tb.caughtUp(t, log)
		check()
		if got := r.take(); got != "" {
			t.Fatalf("hooks saw %q of rejected updates", got)
		}
		tb.close(t)
		tb = start(t, log, openStore(t, b, dir), o)
		check()

		// A second bad value keeps the same old one; a good one, and a delete, end it.
		log.Set(routeKey("t", "a").String(), "\xfe")
		tb.caughtUp(t, log)
		if row, ok := get(t, tb.routes.Table, routeKey("t", "a")); !ok || row.Rev.Seq() != rev || row.Stale == nil {
			t.Fatalf("after a second bad value: %+v %v", row, ok)
		}
		setRoute(t, log, route("t", "a", "2"))
		log.Remove(routeKey("t", "b").String())
		setRoute(t, log, route("t", "c", "3"))
		tb.caughtUp(t, log)
		if row, ok := get(t, tb.routes.Table, routeKey("t", "a")); !ok || row.Value.NodeId != "2" || row.Stale != nil {
			t.Fatalf("after a good value: %+v %v", row, ok)
		}
		if rejs := collect(t, tb.routes.Rejected(bounded(t))); len(rejs) != 0 {
			t.Fatalf("rejected %v", rejs)
		}
		if st := tb.f.Status(); st.RejectedKeys != 0 {
			t.Fatalf("status %+v", st)
		}
		wantRoute(t, tb, "t", "b", "")
		wantRoute(t, tb, "t", "c", "3")
	})
}

// TestRejectionsWithinOneBatch delivers good and bad values of one key together.
func TestRejectionsWithinOneBatch(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		log := newHistoryLog(8)
		key := routeKey("t", "a").String()
		setRoute(t, log, route("t", "a", "1"))
		log.Set(key, "\xff")
		good := setRoute(t, log, route("t", "a", "2"))
		log.Set(key, "\xfe")
		setRoute(t, log, route("t", "b", "1"))
		log.Set(routeKey("t", "b").String(), "\xfe")
		log.Remove(routeKey("t", "b").String())
		dir := t.TempDir()
		// A fold that stands at revision 0 of a log with history resumes over all of it.
		s := openStore(t, b, dir)
		tb := start(t, resumeFromStart{log}, s, startOptions{})
		tb.caughtUp(t, log)
		row, ok := get(t, tb.routes.Table, routeKey("t", "a"))
		if !ok || row.Value.NodeId != "2" || row.Rev.Seq() != good || row.Stale == nil || row.Stale.Revision != 4 {
			t.Fatalf("row %+v %v", row, ok)
		}
		wantRoute(t, tb, "t", "b", "")
		if rejs := collect(t, tb.routes.Rejected(bounded(t))); len(rejs) != 1 {
			t.Fatalf("rejected %v", rejs)
		}
	})
}

func TestDropRow(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		log := newLog()
		set(t, log, "dropped.a1", &foldtestv1.Dropped{Id: 1, Text: "x"})
		tb := start(t, log, openStore(t, b, t.TempDir()), startOptions{})
		tb.hydrated(t)
		if _, ok := get(t, tb.dropped.Table, ft.DroppedKey{ID: 1}); !ok {
			t.Fatal("no row")
		}
		set(t, log, "dropped.a1", &foldtestv1.Dropped{Id: 2, Text: "x"})
		tb.caughtUp(t, log)
		if row, ok := get(t, tb.dropped.Table, ft.DroppedKey{ID: 1}); ok {
			t.Fatalf("row %+v", row)
		}
		if rejs := collect(t, tb.dropped.Rejected(bounded(t))); len(rejs) != 1 || rejs[0].Code != fold.KeyValueMismatch || rejs[0].Field != "id" {
			t.Fatalf("rejected %v", rejs)
		}
		set(t, log, "dropped.a1", &foldtestv1.Dropped{Id: 1, Text: "y"})
		tb.caughtUp(t, log)
		if row, ok := get(t, tb.dropped.Table, ft.DroppedKey{ID: 1}); !ok || row.Value.Text != "y" {
			t.Fatalf("row %+v %v", row, ok)
		}
	})
}

func TestHaltStopsBeforeTheUpdate(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		dir, log := t.TempDir(), newLog()
		set(t, log, "halted.AB", &foldtestv1.Halted{Id: []byte{0xAB}, Text: "x"})
		tb := start(t, log, openStore(t, b, dir), startOptions{})
		tb.hydrated(t)
		bad := log.Set("halted.AB", "\xff")
		<-tb.f.Done()
		var he *fold.HaltError
		var rej *fold.Rejection
		if err := tb.f.Err(); !errors.As(err, &he) || !errors.As(err, &rej) || rej.Revision != bad || rej.Code != fold.ValueDecode || he.Hint() == "" {
			t.Fatalf("stopped with %v", err)
		}
		if row, ok := get(t, tb.halted.Table, ft.HaltedKey{ID: "\xAB"}); !ok || row.Value.Text != "x" {
			t.Fatalf("row %+v %v", row, ok)
		}
		if st := tb.f.Status(); st.Applied != 1 || st.State != fold.StateStopped {
			t.Fatalf("status %+v", st)
		}
		tb.close(t)
		tb = start(t, log, openStore(t, b, dir), startOptions{})
		<-tb.f.Done()
		if err := tb.f.Err(); !errors.As(err, &he) {
			t.Fatalf("stopped again with %v", err)
		}
	})
}

func TestBadKeysAreRejections(t *testing.T) {
	log := newLog()
	for key, m := range map[string]string{
		"route.t/41.d":    "", // 'A' would be written as it is
		"route.t.d/2e":    "", // lower-case hex
		"session.eu.b42":  "", // an unsigned form for a signed field
		"doc.a.zFF":       "", // not UTF-8, by MATCH
		"session.zFF.pa1": "",
	} {
		log.Set(key, m)
	}
	for _, key := range []string{"route.one", "route.t.d.meta.x", "route.t.d.other", "nothing", "a.b-c.d_e=f/g"} {
		log.Set(key, "x")
	}
	tb := start(t, log, openStore(t, backends[0], t.TempDir()), startOptions{})
	tb.hydrated(t)
	codes := func(rejs []*fold.Rejection) string {
		var out []string
		for _, r := range rejs {
			out = append(out, r.Key+" "+r.Code.String())
		}
		return strings.Join(out, ", ")
	}
	if got := codes(collect(t, tb.routes.Rejected(bounded(t)))); got != "route.t.d/2e KEY_NOT_CANONICAL, route.t/41.d KEY_NOT_CANONICAL" {
		t.Errorf("routes: %s", got)
	}
	if got := codes(collect(t, tb.sessions.Rejected(bounded(t)))); got != "session.eu.b42 KEY_SEGMENT, session.zFF.pa1 KEY_SEGMENT" {
		t.Errorf("sessions: %s", got)
	}
	if got := codes(collect(t, tb.docs.Rejected(bounded(t)))); got != "doc.a.zFF KEY_VALUE_MISMATCH" {
		t.Errorf("docs: %s", got)
	}
	st := tb.f.Status()
	if st.Unmatched["route"] != 3 || st.Unmatched["nothing"] != 1 || st.Unmatched["a"] != 1 || st.RejectedKeys != 5 || st.State != fold.StateLive {
		t.Errorf("status %+v", st)
	}
}

func TestValueLimits(t *testing.T) {
	log := newLog()
	set(t, log, "doc.a.b", &foldtestv1.Doc{Path: "a/b", Body: strings.Repeat("x", 80)})
	log.Set(routeKey("", "").String(), "") // a message of defaults has no bytes
	tb := start(t, log, openStore(t, backends[0], t.TempDir()), startOptions{})
	tb.hydrated(t)
	if rejs := collect(t, tb.docs.Rejected(bounded(t))); len(rejs) != 1 || rejs[0].Code != fold.ValueTooLarge {
		t.Errorf("rejected %v", rejs)
	}
	if row, ok := get(t, tb.routes.Table, routeKey("", "")); !ok || row.Value.NodeId != "" {
		t.Errorf("the empty value: %+v %v", row, ok)
	}
}

func TestAgedOut(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		log := newLog()
		setRoute(t, log, route("t", "a", "1"))
		set(t, log, "session.eu.pa5", &foldtestv1.Session{User: "u"})
		tb := start(t, log, openStore(t, b, t.TempDir()), startOptions{})
		tb.hydrated(t)
		log.AgeOut(routeKey("t", "a").String(), true)
		log.AgeOut("session.eu.pa5", true)
		tb.caughtUp(t, log)
		wantRoute(t, tb, "t", "a", "1")
		if row, ok := get(t, tb.sessions.Table, ft.SessionKey{Region: "eu", ID: 5}); ok {
			t.Errorf("an aged-out session is still there: %+v", row)
		}
	})
}

func TestCount(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		dir, log := t.TempDir(), newLog()
		for _, d := range []string{"a", "b", "c"} {
			setRoute(t, log, route("t", d, "1"))
		}
		tb := start(t, log, openStore(t, b, dir), startOptions{})
		tb.hydrated(t)
		count := func(want uint64) {
			t.Helper()
			tb.caughtUp(t, log)
			n, err := tb.routes.Count(bounded(t), ft.RouteAll())
			if err != nil || n != want {
				t.Fatalf("count %d (%v), want %d", n, err, want)
			}
			if rows := collect(t, tb.routes.List(bounded(t), ft.RouteAll(), fold.KeysOnly())); uint64(len(rows)) != want {
				t.Fatalf("%d rows listed, want %d", len(rows), want)
			}
		}
		count(3)
		setRoute(t, log, route("t", "d", "1"))
		count(4)
		setRoute(t, log, route("t", "d", "2"))
		count(4)
		log.Set(routeKey("t", "d").String(), "\xff") // still served
		count(4)
		log.Set(routeKey("t", "e").String(), "\xff") // never a row
		count(4)
		log.Remove(routeKey("t", "d").String())
		log.Remove(routeKey("t", "e").String())
		log.Remove(routeKey("t", "nobody").String())
		count(3)
		set(t, log, "settings", &foldtestv1.Settings{})
		tb.caughtUp(t, log)
		tb.close(t)
		setRoute(t, log, route("t", "f", "1"))
		log.Remove(routeKey("t", "a").String())
		setRoute(t, log, route("t", "g", "1"))
		tb = start(t, log, openStore(t, b, dir), startOptions{})
		count(4)
	})
}
