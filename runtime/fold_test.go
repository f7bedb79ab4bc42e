package fold_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	foldtestv1 "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1"
	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
)

func TestHydrateThenDelta(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		dir, log := t.TempDir(), newLog()
		for i := range 500 {
			setRoute(t, log, route("t1", fmt.Sprintf("d%03d", i), "n1"))
		}
		tb := start(t, log, openStore(t, b, dir), startOptions{})
		tb.hydrated(t)
		if st := tb.f.Status(); st.Updates != 500 || st.State != fold.StateLive || st.Applied != 500 {
			t.Fatalf("status %+v", st)
		}
		wantRoute(t, tb, "t1", "d042", "n1")
		tb.close(t)

		for i := range 20 {
			setRoute(t, log, route("t1", fmt.Sprintf("d%03d", i), "n2"))
		}
		log.Remove(routeKey("t1", "d499").String())
		tb = start(t, log, openStore(t, b, dir), startOptions{})
		tb.hydrated(t)
		if st := tb.f.Status(); st.Updates != 21 {
			t.Fatalf("%d updates arrived after the restart, want only the 21 of the delta", st.Updates)
		}
		wantRoute(t, tb, "t1", "d000", "n2")
		wantRoute(t, tb, "t1", "d100", "n1")
		wantRoute(t, tb, "t1", "d499", "")
	})
}

func TestReadsBeforeTheServerIsReached(t *testing.T) {
	dir, log := t.TempDir(), newLog()
	setRoute(t, log, route("t", "d", "n"))
	b := backends[1]
	tb := start(t, log, openStore(t, b, dir), startOptions{})
	tb.hydrated(t)
	tb.close(t)

	log.Inject(kvtest.Fault{At: kvtest.PointOpen, Times: 3, Fail: true})
	lost := make(chan error, 8)
	tb = start(t, log, openStore(t, b, dir), startOptions{fold: fold.Options{Events: fold.Events{WatchLost: func(err error) { lost <- err }}}})
	wantRoute(t, tb, "t", "d", "n")
	select {
	case err := <-lost:
		if !errors.Is(err, kvtest.ErrInjected) {
			t.Fatal(err)
		}
	case <-bounded(t).Done():
		t.Fatal("nobody was told that the server can't be reached")
	}
	setRoute(t, log, route("t", "d", "n2"))
	tb.hydrated(t)
	wantRoute(t, tb, "t", "d", "n2")
}

func TestWatchLostGoesOn(t *testing.T) {
	log := newLog()
	tb := start(t, log, openStore(t, backends[0], t.TempDir()), startOptions{})
	tb.hydrated(t)
	for i := range 50 {
		setRoute(t, log, route("t", fmt.Sprint(i), "n"))
		if i%10 == 0 {
			log.LoseWatches()
		}
	}
	tb.caughtUp(t, log)
	if n := len(collect(t, tb.routes.List(bounded(t), ft.RouteAll()))); n != 50 {
		t.Fatalf("%d routes, want 50", n)
	}
}

func TestReads(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		log := newLog()
		for _, r := range []string{"t1/a", "t1/b", "t1/c.x", "t10/a", "t2/a", "t2/b"} {
			tenant, domain, _ := strings.Cut(r, "/")
			setRoute(t, log, route(tenant, domain, "n-"+r))
			set(t, log, ft.RouteMetaKey{Tenant: tenant, Domain: domain}.String(), &foldtestv1.RouteMeta{Tenant: tenant, Domain: domain})
		}
		set(t, log, "settings", &foldtestv1.Settings{Motd: "hi"})
		set(t, log, "settingsx", &foldtestv1.Settings{Motd: "no table"})
		tb := start(t, log, openStore(t, b, t.TempDir()), startOptions{})
		tb.hydrated(t)
		ctx := bounded(t)

		names := func(rows []ft.RouteRow) string {
			var out []string
			for _, r := range rows {
				if r.Value != nil && (r.Value.Tenant != r.Key.Tenant || r.Value.Domain != r.Key.Domain) {
					t.Errorf("row %v has value %v", r.Key, r.Value)
				}
				out = append(out, r.Key.Tenant+"/"+r.Key.Domain)
			}
			return strings.Join(out, " ")
		}
		list := func(p ft.RoutePrefix, o ...fold.ReadOption) string {
			return names(collect(t, tb.routes.List(ctx, p, o...)))
		}
		for _, c := range []struct{ name, got, want string }{
			{"all", list(ft.RouteAll()), "t1/a t1/b t1/c.x t10/a t2/a t2/b"},
			{"one tenant", list(ft.RouteByTenant("t1")), "t1/a t1/b t1/c.x"},
			{"no tenant", list(ft.RouteByTenant("t")), ""},
			{"reverse", list(ft.RouteByTenant("t1"), fold.Reverse()), "t1/c.x t1/b t1/a"},
			{"limit", list(ft.RouteAll(), fold.Limit(2)), "t1/a t1/b"},
			{"keys only", list(ft.RouteAll(), fold.KeysOnly(), fold.Reverse(), fold.Limit(1)), "t2/b"},
			{"range", names(collect(t, tb.routes.Range(ctx, fold.Incl(routeKey("t1", "b")), fold.Excl(routeKey("t2", "a"))))), "t1/b t1/c.x t10/a"},
			{"range excl incl", names(collect(t, tb.routes.Range(ctx, fold.Excl(routeKey("t1", "b")), fold.Incl(routeKey("t2", "a"))))), "t1/c.x t10/a t2/a"},
			{"unbounded", names(collect(t, tb.routes.Range(ctx, fold.Unbounded[ft.RouteKey](), fold.Incl(routeKey("t1", "a"))))), "t1/a"},
			{"empty range", names(collect(t, tb.routes.Range(ctx, fold.Incl(routeKey("t2", "b")), fold.Incl(routeKey("t1", "a"))))), ""},
		} {
			if c.got != c.want {
				t.Errorf("%s: %q, want %q", c.name, c.got, c.want)
			}
		}
		edge := func(row ft.RouteRow, ok bool, err error) string {
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				return ""
			}
			return row.Key.Tenant + "/" + row.Key.Domain
		}
		for _, c := range []struct{ name, got, want string }{
			{"first", edge(tb.routes.First(ctx, ft.RouteByTenant("t2"))), "t2/a"},
			{"last", edge(tb.routes.Last(ctx, ft.RouteByTenant("t1"))), "t1/c.x"},
			{"no first", edge(tb.routes.First(ctx, ft.RouteByTenant("zz"))), ""},
			{"ceil hit", edge(tb.routes.Ceil(ctx, ft.RouteByTenant("t1"), routeKey("t1", "b"))), "t1/b"},
			{"ceil above", edge(tb.routes.Ceil(ctx, ft.RouteByTenant("t1"), routeKey("t1", "bb"))), "t1/c.x"},
			{"ceil past", edge(tb.routes.Ceil(ctx, ft.RouteByTenant("t1"), routeKey("t1", "d"))), ""},
			{"ceil before", edge(tb.routes.Ceil(ctx, ft.RouteByTenant("t2"), routeKey("t1", "a"))), "t2/a"},
			{"floor hit", edge(tb.routes.Floor(ctx, ft.RouteByTenant("t1"), routeKey("t1", "b"))), "t1/b"},
			{"floor below", edge(tb.routes.Floor(ctx, ft.RouteByTenant("t1"), routeKey("t1", "bb"))), "t1/b"},
			{"floor before", edge(tb.routes.Floor(ctx, ft.RouteByTenant("t2"), routeKey("t1", "z"))), ""},
			{"floor past", edge(tb.routes.Floor(ctx, ft.RouteByTenant("t2"), routeKey("t9", "z"))), "t2/b"},
		} {
			if c.got != c.want {
				t.Errorf("%s: %q, want %q", c.name, c.got, c.want)
			}
		}
		if n, err := tb.routes.Count(ctx, ft.RouteByTenant("t1")); err != nil || n != 3 {
			t.Errorf("count %d, %v", n, err)
		}
		if keys := collect(t, tb.metas.Keys(ctx, ft.RouteMetaByTenant("t2"))); len(keys) != 2 {
			t.Errorf("metas of t2: %v", keys)
		}
		if row, ok := get(t, tb.settings.Table, ft.SettingsKey{}); !ok || row.Value.Motd != "hi" || row.Rev.Seq() == 0 || row.Time.IsZero() {
			t.Errorf("settings %+v %v", row, ok)
		}
		if rows := collect(t, tb.settings.List(ctx, ft.SettingsAll())); len(rows) != 1 {
			t.Errorf("settings rows: %v", rows)
		}
		if ok, err := tb.routes.Has(ctx, routeKey("t1", "a")); err != nil || !ok {
			t.Errorf("has: %v %v", ok, err)
		}
		dst := route("left", "over", "x")
		dst.Tags = []string{"stale"}
		if ok, err := tb.routes.GetInto(ctx, routeKey("t10", "a"), dst); err != nil || !ok || !proto.Equal(dst, route("t10", "a", "n-t10/a")) {
			t.Errorf("get into: %v %v %v", dst, ok, err)
		}
		if st := tb.f.Status(); st.Unmatched["settingsx"] != 1 || len(st.Unmatched) != 1 {
			t.Errorf("unmatched %v", st.Unmatched)
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if _, _, err := tb.routes.Get(ended, routeKey("t1", "a")); !errors.Is(err, context.Canceled) {
			t.Errorf("get under an ended context: %v", err)
		}
		for _, err := range tb.routes.List(ended, ft.RouteAll()) {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("list under an ended context: %v", err)
			}
		}
	})
}

func TestSnapshotIsOneMoment(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		log := newLog()
		setRoute(t, log, route("t", "a", "1"))
		tb := start(t, log, openStore(t, b, t.TempDir()), startOptions{})
		tb.hydrated(t)
		snap, err := tb.f.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		before, err := snap.Digest(bounded(t))
		if err != nil {
			t.Fatal(err)
		}
		setRoute(t, log, route("t", "a", "2"))
		setRoute(t, log, route("t", "b", "2"))
		tb.caughtUp(t, log)
		old := tb.routes.At(snap)
		if rows := collect(t, old.List(bounded(t), ft.RouteAll())); len(rows) != 1 || rows[0].Value.NodeId != "1" {
			t.Fatalf("snapshot shows %v", rows)
		}
		if n, err := old.Count(bounded(t), ft.RouteAll()); err != nil || n != 1 {
			t.Fatalf("snapshot counts %d, %v", n, err)
		}
		if again, err := snap.Digest(bounded(t)); err != nil || again != before || snap.Cursor() != kv.CursorAt(1) {
			t.Fatalf("digest %v, was %v; cursor %v; %v", again, before, snap.Cursor(), err)
		}
		if err := snap.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRefusesForeignStores(t *testing.T) {
	dir, log := t.TempDir(), newLog()
	tb := start(t, log, openStore(t, backends[0], dir), startOptions{})
	tb.hydrated(t)
	tb.close(t)

	s := openStore(t, backends[0], dir)
	defer func() { _ = s.Close() }()
	other := kvtest.NewLog(kvtest.Options{Bucket: "other"})
	_, err := tryStart(t, other, s, startOptions{fold: fold.Options{Bucket: "test"}})
	var be *fold.BucketError
	if !errors.As(err, &be) || be.Has != "test" || be.Want != "other" || !errors.Is(err, fold.ErrWrongBucket) {
		t.Fatalf("store of another bucket: %v", err)
	}
	scope, err := fold.Prefixes("route.")
	if err != nil {
		t.Fatal(err)
	}
	b := fold.NewBuilder(log, s, fold.Options{Scope: scope, Logger: quiet})
	if _, err := ft.RegisterRoute(b); err != nil {
		t.Fatal(err)
	}
	var se *fold.ScopeError
	if _, err := b.Start(bounded(t)); !errors.As(err, &se) || se.Stored != ">" || se.Want != "route." {
		t.Fatalf("store of another scope: %v", err)
	}
}

func TestRegisterRefuses(t *testing.T) {
	s := openStore(t, backends[0], t.TempDir())
	defer func() { _ = s.Close() }()
	scope, err := fold.Prefixes("settings")
	if err != nil {
		t.Fatal(err)
	}
	b := fold.NewBuilder(newLog(), s, fold.Options{Scope: scope, Logger: quiet})
	if _, err := ft.RegisterForeign(b); !errors.Is(err, fold.ErrWrongBucket) || !strings.Contains(err.Error(), `"elsewhere"`) {
		t.Errorf("table of another bucket: %v", err)
	}
	if _, err := ft.RegisterRoute(b); err == nil || !strings.Contains(err.Error(), "outside of the fold's scope") {
		t.Errorf("table outside of the scope: %v", err)
	}
	if _, err := ft.RegisterSettings(b, ft.WithDocHooks(ft.DocHookFuncs{})); err == nil || !strings.Contains(err.Error(), "hooks are of another table") {
		t.Errorf("hooks of another table: %v", err)
	}
	if _, err := ft.RegisterSettings(b); err != nil {
		t.Fatal(err)
	}
	if _, err := ft.RegisterSettings(b); err == nil || !strings.Contains(err.Error(), "registered already") {
		t.Errorf("table twice: %v", err)
	}
	if _, err := fold.NewBuilder(newLog(), s, fold.Options{Batch: fold.BatchOptions{Max: -1}}).Start(bounded(t)); err == nil || !strings.Contains(err.Error(), "Max is -1") {
		t.Errorf("bad options: %v", err)
	}
	if _, err := fold.NewBuilder(nil, nil, fold.Options{}).Start(bounded(t)); err == nil {
		t.Error("no bucket and no store were accepted")
	}
}

func TestPeekSaysWhenItCannot(t *testing.T) {
	log := newLog()
	setRoute(t, log, route("t", "a", "1"))
	tb := start(t, log, openStore(t, backends[0], t.TempDir()), startOptions{})
	tb.hydrated(t)
	defer func() {
		if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "fold.Resident()") {
			t.Errorf("Peek of a table that is not resident: %v", p)
		}
	}()
	tb.routes.Peek(routeKey("t", "a"))
}

func TestResident(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		dir, log := t.TempDir(), newLog()
		o := startOptions{routes: []fold.TableOption{fold.Resident()}, sess: []fold.TableOption{fold.Resident()}, drop: []fold.TableOption{fold.Resident()}}
		setRoute(t, log, route("t", "a", "1"))
		set(t, log, "session.eu.pa5", &foldtestv1.Session{User: "u"})
		set(t, log, "dropped.a1", &foldtestv1.Dropped{Id: 1, Text: "x"})
		tb := start(t, log, openStore(t, b, dir), o)
		tb.hydrated(t)
		if v, ok := tb.routes.Peek(routeKey("t", "a")); !ok || v.NodeId != "1" {
			t.Fatalf("peek %v %v", v, ok)
		}
		if v, ok := tb.sessions.Peek(ft.SessionKey{Region: "eu", ID: 5}); !ok || v.Region != "eu" || v.Id != 5 || v.User != "u" {
			t.Fatalf("peek %v %v", v, ok)
		}
		tb.close(t)
		setRoute(t, log, route("t", "b", "2"))
		log.AgeOut("session.eu.pa5", true)
		log.Set("dropped.a1", "\xff")
		tb = start(t, log, openStore(t, b, dir), o)
		if v, ok := tb.routes.Peek(routeKey("t", "a")); !ok || v.NodeId != "1" {
			t.Fatalf("peek of what was on disk: %v %v", v, ok)
		}
		tb.caughtUp(t, log)
		if v, ok := tb.routes.Peek(routeKey("t", "b")); !ok || v.NodeId != "2" {
			t.Fatalf("peek %v %v", v, ok)
		}
		if _, ok := tb.sessions.Peek(ft.SessionKey{Region: "eu", ID: 5}); ok {
			t.Fatal("a session whose value aged out is still there")
		}
		if _, ok := tb.dropped.Peek(ft.DroppedKey{ID: 1}); ok {
			t.Fatal("a dropped row is still there")
		}
		log.Remove(routeKey("t", "a").String())
		tb.caughtUp(t, log)
		if _, ok := tb.routes.Peek(routeKey("t", "a")); ok {
			t.Fatal("a deleted row is still there")
		}
	})
}

func TestReadsBeforeStart(t *testing.T) {
	s := openStore(t, backends[0], t.TempDir())
	defer func() { _ = s.Close() }()
	b := fold.NewBuilder(newLog(), s, fold.Options{Logger: quiet})
	routes, err := ft.RegisterRoute(b, fold.Resident())
	if err != nil {
		t.Fatal(err)
	}
	ctx := bounded(t)
	if _, _, err := routes.Get(ctx, routeKey("t", "a")); !errors.Is(err, fold.ErrNotStarted) {
		t.Errorf("Get: %v", err)
	}
	if _, err := routes.Count(ctx, ft.RouteAll()); !errors.Is(err, fold.ErrNotStarted) {
		t.Errorf("Count: %v", err)
	}
	for _, err := range routes.List(ctx, ft.RouteAll()) {
		if !errors.Is(err, fold.ErrNotStarted) {
			t.Errorf("List: %v", err)
		}
	}
	for _, err := range routes.Watch(ctx, nil) {
		if !errors.Is(err, fold.ErrNotStarted) {
			t.Errorf("Watch: %v", err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("Peek of a fold that was not started did not say so")
		}
	}()
	routes.Peek(routeKey("t", "a"))
}
