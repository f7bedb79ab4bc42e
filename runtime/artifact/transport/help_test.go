package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/artifact/objects/dir"
	"github.com/typedfold/fold/runtime/artifact/objects/mem"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
	"github.com/typedfold/fold/runtime/store/pebblestore"
)

// bounded is a context that ends long after any call of a test has returned.
func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// logA and logB are two logs under one bucket's name, the second made after the first was gone.
const logA, logB = 1_700_000_000_000_000_001, 1_700_000_900_000_000_002

// exported is an artifact in a folder.
type exported struct {
	dir string
	m   artifact.Manifest
}

// spec describes an artifact to make.
type spec struct {
	log     int64
	rev     uint64
	created time.Time
	pebble  bool
	// bucket is "sim", and scope the whole bucket, when they are not given; "-" is one that is not recorded.
	bucket, scope string
	// fill is how many bytes a value has.
	fill int
}

// export makes a fold of one key and exports it.
func export(t testing.TB, s spec) exported {
	t.Helper()
	base := t.TempDir()
	st, err := openNew(s.pebble, filepath.Join(base, "store"))
	must(t, err)
	log := kv.Incarnation{CreatedUnixNano: s.log, Samples: []kv.Sample{{Revision: s.rev, UnixNano: s.log + int64(s.rev)}}}
	batch := store.Batch{
		Updates: []kv.Update{{Key: "n.a", Value: []byte(fmt.Sprint(s.rev) + strings.Repeat("x", s.fill)), Version: kv.Revision(s.rev), UnixNano: 1, Op: kv.OpPut}},
		Ops: []store.Op{
			{Key: store.MetaKey(store.MetaLog), Value: log.AppendBytes(nil)},
		},
	}
	if bucket := cmp.Or(s.bucket, "sim"); bucket != "-" {
		batch.Ops = append(batch.Ops, store.Op{Key: store.MetaKey(store.MetaBucket), Value: []byte(bucket)})
	}
	if scope := cmp.Or(s.scope, kv.AllKeys().String()); scope != "-" {
		batch.Ops = append(batch.Ops, store.Op{Key: store.MetaKey(store.MetaScope), Value: []byte(scope)})
	}
	must(t, st.Apply(bounded(t), &batch, kv.CursorAt(s.rev)))
	e := exported{dir: filepath.Join(base, "artifact")}
	if s.created.IsZero() {
		s.created = time.Unix(1_700_000_000, 0)
	}
	e.m, err = artifact.Export(bounded(t), st, e.dir, artifact.ExportOptions{Created: s.created})
	must(t, errors.Join(err, st.Close()))
	return e
}

func openNew(pebble bool, dir string) (store.Store, error) {
	if pebble {
		return pebblestore.Open(dir, pebblestore.Options{Durability: pebblestore.None})
	}
	return logstore.Open(dir, logstore.Options{Durability: logstore.None})
}

var taken = artifact.Options{Kinds: []store.Kind{logstore.Kind(), pebblestore.Kind()}, MinFreeBytes: -1}

// liveAt reads a log that stays as it is.
func liveAt(log int64, first, last uint64) Live {
	return func(context.Context) (kv.LogInfo, error) {
		return kv.LogInfo{Bucket: "sim", Created: time.Unix(0, log), First: first, Last: last}, nil
	}
}

var errLog = errors.New("the log has no leader")

func unreadable(context.Context) (kv.LogInfo, error) { return kv.LogInfo{}, errLog }

func memory(t testing.TB) objects.Store {
	t.Helper()
	s, err := mem.Open(objects.Options{Backoff: time.Millisecond, MaxBackoff: time.Millisecond})
	must(t, err)
	return s
}

func transportOn(t testing.TB, s objects.Store) *Transport {
	t.Helper()
	tr, err := New(Options{Store: s, Prefix: "fleet/", Key: "routes"})
	must(t, err)
	return tr
}

// eachStore runs a test on a store in memory and on one in a folder.
func eachStore(t *testing.T, test func(t *testing.T, s objects.Store)) {
	t.Run("mem", func(t *testing.T) { test(t, memory(t)) })
	t.Run("dir", func(t *testing.T) {
		s, err := dir.Open(t.TempDir(), dir.Options{})
		must(t, err)
		test(t, s)
	})
}

func publish(t testing.TB, tr *Transport, e exported, live Live) Outcome {
	t.Helper()
	out, err := tr.Publish(bounded(t), e.dir, e.m, live)
	must(t, err)
	return out
}

func wantPublished(t testing.TB, tr *Transport, e exported, live Live) {
	t.Helper()
	if out := publish(t, tr, e, live); !out.Published {
		t.Fatalf("the publication of %s ended with %+v", Name(e.m), out)
	}
}

// wantPointer checks that the pointer names the artifact, and that it can be had whole.
func wantPointer(t testing.TB, tr *Transport, e exported) {
	t.Helper()
	g, ok, err := tr.Pointer(bounded(t))
	must(t, err)
	if !ok || g.Err != nil || g.Name != Name(e.m) || !g.Current {
		t.Fatalf("the pointer is at %+v (%v), want %s", g.Name, g.Err, Name(e.m))
	}
	must(t, download(t, tr, g.Manifest))
}

// download brings an artifact to a folder and verifies it there.
func download(t testing.TB, tr *Transport, m artifact.Manifest) error {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "")
	must(t, err)
	dest := filepath.Join(dir, "artifact")
	if err := tr.Download(bounded(t), m, dest, taken); err != nil {
		wantEmpty(t, dir)
		return err
	}
	there, err := artifact.Verify(bounded(t), dest, taken)
	must(t, err)
	if string(there.Bytes()) != string(m.Bytes()) {
		t.Fatal("another manifest arrived")
	}
	return os.RemoveAll(dir)
}

func wantEmpty(t testing.TB, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	must(t, err)
	if len(left) > 0 {
		t.Errorf("%v was left behind", left)
	}
}

// keys are all objects of a store.
func keys(t testing.TB, s objects.Store) []string {
	t.Helper()
	var all []string
	for o, err := range s.List(bounded(t), "") {
		must(t, err)
		all = append(all, o.Key)
	}
	return all
}

// wantWhole checks that all that is announced can be had.
func wantWhole(t testing.TB, tr *Transport) {
	t.Helper()
	all, err := tr.manifests(bounded(t))
	must(t, err)
	for _, g := range all {
		if g.Err != nil {
			t.Errorf("%q is announced and can't be read: %v", g.Name, g.Err)
		} else if err := download(t, tr, g.Manifest); err != nil {
			t.Errorf("%s is announced: %v", g.Name, err)
		}
	}
}

// names are the generations' names, in their order.
func names(all []Generation) []string {
	var out []string
	for _, g := range all {
		out = append(out, g.Name)
	}
	return out
}

func wantNames(t testing.TB, got []string, want ...exported) {
	t.Helper()
	var expect []string
	for _, e := range want {
		expect = append(expect, Name(e.m))
	}
	if !slices.Equal(got, expect) {
		t.Errorf("got %q, want %q", got, expect)
	}
}

// pruneOf keeps only the newest generation, without a grace.
func pruneOf(live Live) PruneOptions { return PruneOptions{Keep: 1, Live: live} }

// hooked is a store whose calls a test sees and fails.
type hooked struct {
	objects.Store
	mu sync.Mutex
	// call comes before each call, and decides how it goes.
	call func(op, key string) fate
	// sizes are what uploads said of theirs.
	sizes []int64
}

// fate is how a call goes.
type fate struct {
	err error
	// done: the call is carried out, and fails afterwards. part: a Put breaks off half-way.
	done, part bool
	// body replaces what a Get reads.
	body func(io.ReadCloser) io.ReadCloser
}

func (h *hooked) ask(op, key string) fate {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.call == nil {
		return fate{}
	}
	return h.call(op, key)
}

func (h *hooked) run(op, key string, do func() error) error {
	f := h.ask(op, key)
	if f.err != nil && !f.done {
		return f.err
	}
	return errors.Join(do(), f.err)
}

func (h *hooked) Put(ctx context.Context, key string, r io.Reader) error {
	f := h.ask("put", key)
	if s, ok := r.(objects.Sized); ok {
		h.sizes = append(h.sizes, s.Size())
	}
	switch {
	case f.part:
		return h.Store.Put(ctx, key, io.MultiReader(io.LimitReader(r, 700), failing{f.err}))
	case f.err != nil && !f.done:
		return f.err
	}
	return errors.Join(h.Store.Put(ctx, key, r), f.err)
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func (h *hooked) Get(ctx context.Context, key string) (io.ReadCloser, objects.Info, error) {
	f := h.ask("get", key)
	if f.err != nil {
		return nil, objects.Info{}, f.err
	}
	body, info, err := h.Store.Get(ctx, key)
	if err == nil && f.body != nil {
		body = f.body(body)
	}
	return body, info, err
}

func (h *hooked) Stat(ctx context.Context, key string) (objects.Info, error) {
	if f := h.ask("stat", key); f.err != nil {
		return objects.Info{}, f.err
	}
	return h.Store.Stat(ctx, key)
}

func (h *hooked) List(ctx context.Context, prefix string) iter.Seq2[objects.Object, error] {
	if f := h.ask("list", prefix); f.err != nil {
		return maps.All(map[objects.Object]error{{}: f.err})
	}
	return h.Store.List(ctx, prefix)
}

func (h *hooked) Delete(ctx context.Context, key string) error {
	return h.run("delete", key, func() error { return h.Store.Delete(ctx, key) })
}

func (h *hooked) ReadPointer(ctx context.Context, key string) (value []byte, token objects.Token, err error) {
	if f := h.ask("read", key); f.err != nil {
		return nil, "", f.err
	}
	return h.Store.ReadPointer(ctx, key)
}

func (h *hooked) SwapPointer(ctx context.Context, key string, value []byte, old objects.Token) error {
	return h.run("swap", key, func() error { return h.Store.SwapPointer(ctx, key, value, old) })
}

func (h *hooked) CleanUploads(ctx context.Context, prefix string, d time.Duration) error {
	return h.run("clean", prefix, func() error { return h.Store.CleanUploads(ctx, prefix, d) })
}
