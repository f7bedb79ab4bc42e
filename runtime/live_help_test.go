package fold_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	"github.com/typedfold/fold/internal/natstest"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
	"github.com/typedfold/fold/runtime/store/pebblestore"
)

// live is a bucket on a real server, and folds of it in folders that stay the same for one test.
type live struct {
	backend
	srv    *natstest.Server
	files  string // the server's
	js     jetstream.JetStream
	bucket *natskv.Bucket
	cfg    natskv.BucketConfig
	dir    string // of the folds
}

func newLive(t *testing.T, b backend, cfg natskv.BucketConfig) *live {
	t.Helper()
	l := &live{backend: b, files: t.TempDir(), cfg: cfg, dir: t.TempDir()}
	l.srv = natstest.New(t, natstest.Options{StoreDir: l.files})
	l.reconnect(t)
	return l
}

// reconnect takes a connection of its own, and opens the bucket on it.
func (l *live) reconnect(t *testing.T) {
	t.Helper()
	l.js = connect(t, l.srv.URL(), natskv.ConnectOptions{})
	l.bucket = openBucket(t, l.js, l.cfg)
}

func (l *live) stream(t *testing.T) jetstream.Stream {
	t.Helper()
	s, err := l.js.Stream(bounded(t), "KV_test")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (l *live) info(t *testing.T) kv.LogInfo {
	t.Helper()
	info, err := l.bucket.Info(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// edit changes the stream's settings, as an operator does.
func (l *live) edit(t *testing.T, change func(*jetstream.StreamConfig)) {
	t.Helper()
	cfg := l.stream(t).CachedInfo().Config
	change(&cfg)
	if _, err := l.js.UpdateStream(bounded(t), cfg); err != nil {
		t.Fatal(err)
	}
}

// put writes a route of tenant t.
func (l *live) put(t *testing.T, domain, node string) uint64 {
	t.Helper()
	rev, err := ft.NewRouteWriter(l.bucket).Put(bounded(t), route("t", domain, node))
	if err != nil {
		t.Fatal(err)
	}
	return rev.Seq()
}

func (l *live) del(t *testing.T, domain string) uint64 {
	t.Helper()
	v, err := l.bucket.Delete(bounded(t), routeKey("t", domain).String(), kv.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return v.Rank()
}

// putRaw writes any key.
func (l *live) putRaw(t *testing.T, key, value string) uint64 {
	t.Helper()
	v, err := l.bucket.Put(bounded(t), key, []byte(value), kv.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return v.Rank()
}

// purgeMarkers removes every delete marker, however young, with the client's own call.
func (l *live) purgeMarkers(t *testing.T) {
	t.Helper()
	bucket, err := l.js.KeyValue(bounded(t), "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := bucket.PurgeDeletes(bounded(t), jetstream.DeleteMarkersOlderThan(-1)); err != nil {
		t.Fatal(err)
	}
}

// until polls the log until it is as asked for: retention works on the server's own clock.
func (l *live) until(t *testing.T, what string, ok func(kv.LogInfo) bool) kv.LogInfo {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	ctx := bounded(t)
	for {
		info := l.info(t)
		if ok(info) {
			return info
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: the log still is %+v", what, info)
		}
	}
}

// node starts the fold in a folder of this name.
func (l *live) node(t *testing.T, name string, o startOptions) *tables {
	t.Helper()
	return start(t, l.bucket, l.store(t, name), o)
}

func (l *live) store(t *testing.T, name string) store.Store {
	t.Helper()
	dir := filepath.Join(l.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return openStore(t, l.backend, dir)
}

// visit has the node catch up with the log, closes it, and gives what it holds.
func (l *live) visit(t *testing.T, name string, o startOptions) (fold.Digest, kv.Cursor) {
	t.Helper()
	tb := l.node(t, name, o)
	tb.hydrated(t)
	l.caughtUp(t, tb)
	d := digestOf(t, tb)
	tb.close(t) // which commits what the watch told last, the memo among it
	return d, tb.f.Cursor()
}

func (l *live) caughtUp(t *testing.T, tb *tables) {
	t.Helper()
	applied(t, tb, fold.Seq(l.info(t).Last))
}

// source has the artifacts that nodes exported.
func (l *live) source() *artifact.LocalSource {
	return &artifact.LocalSource{Dir: filepath.Join(l.dir, "artifacts"), Scratch: l.dir, Artifact: artifact.Options{Kinds: storeKinds()}}
}

func storeKinds() []store.Kind { return []store.Kind{pebblestore.Kind(), logstore.Kind()} }

// export leaves an artifact for the source, and gives its folder.
func (l *live) export(t *testing.T, tb *tables, name string) string {
	t.Helper()
	dir := filepath.Join(l.dir, "artifacts", name)
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := tb.f.Export(bounded(t), dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// wantExport checks that the node's next export opens at the log's end, under the log's own identity.
func (l *live) wantExport(t *testing.T, tb *tables) {
	t.Helper()
	m, err := artifact.Verify(bounded(t), l.export(t, tb, "next"), artifact.Options{Kinds: storeKinds()})
	if err != nil {
		t.Fatal(err)
	}
	info := l.info(t)
	if m.Rank() != info.Last || m.Log.CreatedUnixNano != info.Created.UnixNano() {
		t.Errorf("the export is at cursor %v of a log created at %d, while the log ends at %d and was created at %d",
			m.Cursor, m.Log.CreatedUnixNano, info.Last, info.Created.UnixNano())
	}
}

func digestOf(t *testing.T, tb *tables) fold.Digest {
	t.Helper()
	snap, err := tb.f.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	d, err := snap.Digest(bounded(t))
	if err := errors.Join(err, snap.Close()); err != nil {
		t.Fatal(err)
	}
	return d
}

// wantTruth checks that a node is what a new one makes of the bucket.
func (l *live) wantTruth(t *testing.T, tb *tables) {
	t.Helper()
	fresh := l.node(t, t.Name()+"-fresh", startOptions{})
	fresh.hydrated(t)
	l.caughtUp(t, fresh)
	l.caughtUp(t, tb)
	if digestOf(t, tb) != digestOf(t, fresh) {
		t.Error("the fold is not what the bucket holds")
	}
	fresh.close(t)
}

// wantRefused checks that a node stops with a typed refusal, says what to do, and serves what it had.
func wantRefused(t *testing.T, tb *tables, plan string, reason error, was fold.Digest) {
	t.Helper()
	ended(t, tb)
	var refused *fold.RefusedError
	err := tb.f.Err()
	if !errors.Is(err, fold.ErrRepairRefused) || !errors.Is(err, reason) || !errors.As(err, &refused) {
		t.Fatalf("stopped with %v", err)
	}
	if refused.Plan.String() != plan || refused.Hint() == "" || refused.Bucket != "test" {
		t.Errorf("refused with plan %v and hint %q: %v", refused.Plan, refused.Hint(), err)
	}
	if digestOf(t, tb) != was {
		t.Error("the fold was changed")
	}
}

// stall holds a store's applies back.
type stall struct {
	*faultStore
	once sync.Once
	open chan struct{}
}

func newStall(t *testing.T, s store.Store) *stall {
	st := &stall{faultStore: &faultStore{Store: s}, open: make(chan struct{})}
	t.Cleanup(st.release)
	return st
}

// hold makes each further apply wait until the release.
func (s *stall) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apply = func(int, *store.Batch, kv.Cursor) error {
		<-s.open
		return nil
	}
}

func (s *stall) release() { s.once.Do(func() { close(s.open) }) }

func marshal(t *testing.T, m proto.Message) string {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// burst publishes n routes of this size without waiting for each, and gives the last revision.
func (l *live) burst(t *testing.T, from, n int, node string) uint64 {
	t.Helper()
	var last jetstream.PubAckFuture
	for i := range n {
		r := route("t", fmt.Sprint("burst", from+i), node)
		f, err := l.js.PublishAsync("$KV.test."+routeKey(r.Tenant, r.Domain).String(), []byte(marshal(t, r)))
		if err != nil {
			t.Fatal(err)
		}
		last = f
	}
	select {
	case ack := <-last.Ok():
		return ack.Sequence
	case err := <-last.Err():
		t.Fatal(err)
	case <-bounded(t).Done():
		t.Fatal("no acknowledgement")
	}
	return 0
}

// reports gathers why a node's repairs began.
type reports struct {
	mu      sync.Mutex
	reasons []error
}

func newReports() *reports { return &reports{} }

func (r *reports) events() fold.Events {
	return fold.Events{
		RepairStarted: func(err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.reasons = append(r.reasons, err)
		},
	}
}

func (r *reports) started() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]error{}, r.reasons...)
}

// owes waits until a running node's Status names these reasons, or none.
func owes(t *testing.T, tb *tables, want string) fold.Status {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	ctx := bounded(t)
	for {
		st := tb.f.Status()
		if st.Owed == want {
			return st
		}
		select {
		case <-tick.C:
		case <-tb.f.Done():
			t.Fatalf("stopped with %v while waiting for it to owe %q", tb.f.Err(), want)
		case <-ctx.Done():
			t.Fatalf("it owes %q and not %q: %+v", st.Owed, want, st)
		}
	}
}
