package fold_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	foldtestv1 "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1"
	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
	"github.com/typedfold/fold/runtime/store/pebblestore"
)

// waitBound is far longer than any wait of a test takes; it only keeps a broken one from hanging.
const waitBound = 30 * time.Second

var quiet = slog.New(slog.DiscardHandler)

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), waitBound)
	t.Cleanup(cancel)
	return ctx
}

func newLog() *kvtest.Log { return newHistoryLog(1) }

func newHistoryLog(n int) *kvtest.Log {
	return kvtest.NewLog(kvtest.Options{Bucket: "test", History: n})
}

// backend opens a store in a directory that stays the same for one test.
type backend struct {
	name string
	open func(dir string) (store.Store, error)
}

var backends = []backend{
	{"logstore", func(dir string) (store.Store, error) {
		return logstore.Open(filepath.Join(dir, "fold.log"), logstore.Options{Durability: logstore.None})
	}},
	{"pebble", func(dir string) (store.Store, error) {
		return pebblestore.Open(filepath.Join(dir, "pebble"), pebblestore.Options{Durability: pebblestore.None})
	}},
}

func eachBackend(t *testing.T, f func(t *testing.T, b backend)) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) { f(t, b) })
	}
}

func openStore(t testing.TB, b backend, dir string) store.Store {
	t.Helper()
	s, err := b.open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tables are all tables of the test bucket.
type tables struct {
	f        *fold.Fold
	routes   ft.RouteTable
	metas    ft.RouteMetaTable
	settings ft.SettingsTable
	sessions ft.SessionTable
	dropped  ft.DroppedTable
	halted   ft.HaltedTable
	docs     ft.DocTable
}

type startOptions struct {
	fold   fold.Options
	routes []fold.TableOption
	drop   []fold.TableOption
	sess   []fold.TableOption
}

// start starts a fold with all tables. The test's end closes it.
func start(t testing.TB, bucket fold.Bucket, s store.Store, o startOptions) *tables {
	t.Helper()
	tb, err := tryStart(t, bucket, s, o)
	if err != nil {
		_ = s.Close()
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tb.f.Close() })
	return tb
}

func tryStart(t testing.TB, bucket fold.Bucket, s store.Store, o startOptions) (*tables, error) {
	t.Helper()
	if o.fold.Logger == nil {
		o.fold.Logger = quiet
	}
	b := fold.NewBuilder(bucket, s, o.fold)
	var tb tables
	var errs [7]error
	tb.routes, errs[0] = ft.RegisterRoute(b, o.routes...)
	tb.metas, errs[1] = ft.RegisterRouteMeta(b)
	tb.settings, errs[2] = ft.RegisterSettings(b)
	tb.sessions, errs[3] = ft.RegisterSession(b, o.sess...)
	tb.dropped, errs[4] = ft.RegisterDropped(b, o.drop...)
	tb.halted, errs[5] = ft.RegisterHalted(b)
	tb.docs, errs[6] = ft.RegisterDoc(b)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	var err error
	tb.f, err = b.Start(bounded(t))
	return &tb, err
}

// caughtUp waits until the fold has all that the log holds.
func (tb *tables) caughtUp(t testing.TB, log *kvtest.Log) {
	t.Helper()
	ctx := bounded(t)
	info, err := log.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := tb.f.WaitApplied(ctx, fold.Seq(info.Last)); err != nil {
		t.Fatal(err)
	}
}

func (tb *tables) hydrated(t testing.TB) {
	t.Helper()
	if err := tb.f.WaitHydrated(bounded(t)); err != nil {
		t.Fatal(err)
	}
}

func (tb *tables) close(t testing.TB) {
	t.Helper()
	if err := tb.f.Close(); err != nil {
		t.Fatal(err)
	}
}

func route(tenant, domain, node string) *foldtestv1.Route {
	return &foldtestv1.Route{Tenant: tenant, Domain: domain, NodeId: node}
}

func routeKey(tenant, domain string) ft.RouteKey { return ft.RouteKey{Tenant: tenant, Domain: domain} }

// set writes a message under the key that its table would give it, and gives the revision.
func set(t testing.TB, log *kvtest.Log, key string, m proto.Message) uint64 {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return log.Set(key, string(b))
}

func setRoute(t testing.TB, log *kvtest.Log, m *foldtestv1.Route) uint64 {
	t.Helper()
	return set(t, log, routeKey(m.Tenant, m.Domain).String(), m)
}

func get[K fold.Key, V proto.Message](t testing.TB, table *fold.Table[K, V], k K) (fold.Row[K, V], bool) {
	t.Helper()
	row, ok, err := table.GetRow(bounded(t), k)
	if err != nil {
		t.Fatal(err)
	}
	return row, ok
}

func wantRoute(t testing.TB, tb *tables, tenant, domain, node string) {
	t.Helper()
	row, ok := get(t, tb.routes.Table, routeKey(tenant, domain))
	if node == "" {
		if ok {
			t.Fatalf("route %s/%s is %v, want none", tenant, domain, row.Value)
		}
		return
	}
	if want := route(tenant, domain, node); !ok || !proto.Equal(row.Value, want) {
		t.Fatalf("route %s/%s is %v (%v), want %v", tenant, domain, row.Value, ok, want)
	}
}

// faultStore fails applies as a test tells it to.
type faultStore struct {
	store.Store
	mu    sync.Mutex
	apply func(n int, b *store.Batch, c kv.Cursor) error // before the store's own; n counts from 1
	n     int
}

func (s *faultStore) Apply(ctx context.Context, b *store.Batch, c kv.Cursor) error {
	s.mu.Lock()
	s.n++
	n, f := s.n, s.apply
	s.mu.Unlock()
	if f != nil {
		if err := f(n, b, c); err != nil {
			return err
		}
	}
	return s.Store.Apply(ctx, b, c)
}

func collect[T any](t testing.TB, seq func(func(T, error) bool)) []T {
	t.Helper()
	var out []T
	for v, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

// resumeFromStart opens its first watch over the whole log, as a resume would, where a re-list would deliver only the
// last message of each key.
type resumeFromStart struct{ *kvtest.Log }

func (r resumeFromStart) Open(ctx context.Context, req kv.OpenRequest) (kv.Watch, error) {
	if !req.After.IsNone() {
		return r.Log.Open(ctx, req)
	}
	info, err := r.Log.Info(ctx)
	if err != nil {
		return nil, err
	}
	return &wholeLog{info: info, updates: r.Log.Retained()}, nil
}

// wholeLog delivers a log's retained messages in one go.
type wholeLog struct {
	info    kv.LogInfo
	updates []kv.Update
	done    bool
}

func (w *wholeLog) Info() kv.LogInfo { return w.info }

func (w *wholeLog) Next(ctx context.Context, into kv.Delivery, _, _ int) (kv.Delivery, error) {
	if w.done {
		<-ctx.Done()
		return into, ctx.Err()
	}
	w.done = true
	into.Updates = append(into.Updates, w.updates...)
	into.Frontier = w.info.Last
	return into, nil
}

func (w *wholeLog) Close(context.Context) error { return nil }
