package rounds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/artifact/objects/mem"
	"github.com/typedfold/fold/runtime/artifact/transport"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/lease"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
)

const (
	ttl      = 10 * time.Minute
	leaseKey = "export.routes"
)

func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour) // of virtual time
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// node is one node of a fleet, on simulated logs: a store that follows log by hand, and its round.
type node struct {
	t       *testing.T
	log     *kvtest.Log
	leases  *kvtest.Log
	lease   *faultyLeases
	limits  kvtest.Limits
	objects *faultyObjects
	store   store.Store
	round   *Round
	dir     string
	exports int
	// ahead is how far its clock is ahead, as its artifacts show.
	ahead time.Duration
	// export, when not nil, comes before each export.
	export func(ctx context.Context) error
}

// newNode is the first node of a fleet. It closes its store itself.
func newNode(t *testing.T, limits kvtest.Limits) *node {
	t.Helper()
	s, err := mem.Open(objects.Options{Attempts: 1})
	must(t, err)
	n := &node{t: t, limits: limits, log: kvtest.NewLog(kvtest.Options{Limits: limits}), leases: kvtest.NewLog(kvtest.Options{Bucket: "leases"}), objects: &faultyObjects{Store: s}}
	n.make("node-1")
	return n
}

// another is another node of the fleet.
func (n *node) another(name string) *node {
	n.t.Helper()
	o := &node{t: n.t, limits: n.limits, log: n.log, leases: n.leases, objects: n.objects}
	o.make(name)
	return o
}

func (n *node) make(name string) {
	n.t.Helper()
	n.dir = n.t.TempDir()
	n.lease = &faultyLeases{Bucket: n.leases}
	l, err := lease.New(lease.Options{Bucket: n.lease, Key: leaseKey, Holder: name})
	must(n.t, err)
	tr, err := transport.New(transport.Options{Store: n.objects, Key: "routes"})
	must(n.t, err)
	n.store, err = logstore.Open(n.t.TempDir(), logstore.Options{Durability: logstore.None})
	must(n.t, err)
	n.round = &Round{Lease: l, TTL: ttl, Export: n.doExport, Transport: tr, Scratch: n.dir, Live: n.info}
}

// info is the log's, with the age limit that a server tells.
func (n *node) info(ctx context.Context) (kv.LogInfo, error) {
	i, err := n.log.Info(ctx)
	if n.limits.MaxMessages == 0 {
		i.Retention.AgeLimit = n.limits.MaxAge
	}
	return i, err
}

func (n *node) close() { must(n.t, n.store.Close()) }

// follow has the node hold what the log holds.
func (n *node) follow() {
	n.t.Helper()
	info, err := n.log.Info(bounded(n.t))
	must(n.t, err)
	known := kv.Incarnation{CreatedUnixNano: info.Created.UnixNano()}
	batch := store.Batch{Ops: []store.Op{
		{Key: store.MetaKey(store.MetaBucket), Value: []byte(info.Bucket)},
		{Key: store.MetaKey(store.MetaScope), Value: []byte(kv.AllKeys().String())},
		{Key: store.MetaKey(store.MetaLog), Value: known.AppendBytes(nil)},
	}}
	for e, err := range n.log.Scan(bounded(n.t), kv.AllKeys()) {
		must(n.t, err)
		if e.Version.Rank() > n.store.Cursor().Revision() {
			batch.Updates = append(batch.Updates, e.Update)
		}
	}
	must(n.t, n.store.Apply(bounded(n.t), &batch, kv.CursorAt(info.Last)))
}

func (n *node) doExport(ctx context.Context, dir string) (artifact.Manifest, error) {
	n.exports++
	if n.export != nil {
		if err := n.export(ctx); err != nil {
			return artifact.Manifest{}, err
		}
	}
	return artifact.Export(ctx, n.store, dir, artifact.ExportOptions{Created: time.Now().Add(n.ahead)})
}

func (n *node) write(keys ...string) {
	for _, k := range keys {
		n.log.Set(k, "v")
	}
}

func (n *node) run() (Result, error) { return n.round.Run(bounded(n.t)) }

// published runs a round that must publish.
func (n *node) published() Result {
	n.t.Helper()
	res, err := n.run()
	if err != nil || res.Ending != Published {
		n.t.Fatalf("the round ended %v: %v", res.Ending, err)
	}
	return res
}

// wantClean checks that nothing is left of a round on this node.
func (n *node) wantClean() {
	n.t.Helper()
	left, err := os.ReadDir(n.dir)
	must(n.t, err)
	if len(left) > 0 {
		n.t.Errorf("left %v", left)
	}
}

// held is the lease's record; ok is false when it is free.
func (n *node) held() (r lease.Record, ok bool) {
	n.t.Helper()
	r, ok, err := n.round.Lease.Current(bounded(n.t))
	must(n.t, err)
	return r, ok
}

// wantCompleted checks that the lease names the artifact of this revision.
func (n *node) wantCompleted(rev uint64) {
	n.t.Helper()
	r, held := n.held()
	c, _, ok, err := r.Completed()
	if err != nil || !held || !ok || c.Revision() != rev {
		n.t.Errorf("the lease says %+v (held: %v), want it completed at %d", r, held, rev)
	}
}

func (n *node) wantFree() {
	n.t.Helper()
	if r, held := n.held(); held {
		n.t.Errorf("the lease is held: %+v", r)
	}
}

// newest is the revision that the pointer names; 0 is none.
func (n *node) newest() uint64 {
	n.t.Helper()
	g, ok, err := n.round.Transport.Pointer(bounded(n.t))
	must(n.t, errors.Join(err, g.Err))
	if !ok {
		return 0
	}
	return g.Manifest.Rank()
}

// free ends a lease that was completed, as its expiry does.
func (n *node) free() {
	n.t.Helper()
	_, err := n.leases.Delete(bounded(n.t), leaseKey, kv.DeleteOptions{})
	must(n.t, err)
}

var errFault = errors.New("injected")

// faultyObjects fails calls that a test names by their operation and a part of the key.
type faultyObjects struct {
	objects.Store
	mu   sync.Mutex
	fail string // "put .tar"
	puts int
}

func (f *faultyObjects) set(fail string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

func (f *faultyObjects) check(op, key string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if op == "put" {
		f.puts++
	}
	if what, part, ok := strings.Cut(f.fail, " "); ok && what == op && strings.Contains(key, part) {
		return fmt.Errorf("%s %s: %w", op, key, errFault)
	}
	return nil
}

func (f *faultyObjects) Put(ctx context.Context, key string, r io.Reader) error {
	if err := f.check("put", key); err != nil {
		return err
	}
	return f.Store.Put(ctx, key, r)
}

func (f *faultyObjects) List(ctx context.Context, prefix string) iter.Seq2[objects.Object, error] {
	if err := f.check("list", prefix); err != nil {
		return func(yield func(objects.Object, error) bool) { yield(objects.Object{}, err) }
	}
	return f.Store.List(ctx, prefix)
}

func (f *faultyObjects) Delete(ctx context.Context, key string) error {
	if err := f.check("delete", key); err != nil {
		return err
	}
	return f.Store.Delete(ctx, key)
}

func (f *faultyObjects) ReadPointer(ctx context.Context, key string) ([]byte, objects.Token, error) {
	if err := f.check("read", key); err != nil {
		return nil, "", err
	}
	return f.Store.ReadPointer(ctx, key)
}

func (f *faultyObjects) SwapPointer(ctx context.Context, key string, value []byte, old objects.Token) error {
	if err := f.check("swap", key); err != nil {
		return err
	}
	return f.Store.SwapPointer(ctx, key, value, old)
}

// faultyLeases fails the writes that a test names.
type faultyLeases struct {
	lease.Bucket
	update, remove, create error
}

func (f *faultyLeases) Create(ctx context.Context, key string, value []byte, o kv.PutOptions) (kv.Version, error) {
	if f.create != nil {
		return kv.Version{}, f.create
	}
	return f.Bucket.Create(ctx, key, value, o)
}

func (f *faultyLeases) Update(ctx context.Context, key string, value []byte, at kv.Version, o kv.PutOptions) (kv.Version, error) {
	if f.update != nil {
		return kv.Version{}, f.update
	}
	return f.Bucket.Update(ctx, key, value, at, o)
}

func (f *faultyLeases) Delete(ctx context.Context, key string, o kv.DeleteOptions) (kv.Version, error) {
	if f.remove != nil {
		return kv.Version{}, f.remove
	}
	return f.Bucket.Delete(ctx, key, o)
}
