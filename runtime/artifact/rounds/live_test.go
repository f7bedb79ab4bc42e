package rounds_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	foldtestv1 "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1"
	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	"github.com/typedfold/fold/internal/natstest"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/artifact/objects/dir"
	"github.com/typedfold/fold/runtime/artifact/rounds"
	"github.com/typedfold/fold/runtime/artifact/transport"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/lease"
	"github.com/typedfold/fold/runtime/natskv"
	"github.com/typedfold/fold/runtime/protocol"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
	"github.com/typedfold/fold/runtime/store/pebblestore"
)

func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var backends = map[string]func(dir string) (store.Store, error){
	"logstore": func(dir string) (store.Store, error) {
		return logstore.Open(dir, logstore.Options{Durability: logstore.None})
	},
	"pebble": func(dir string) (store.Store, error) {
		return pebblestore.Open(dir, pebblestore.Options{Durability: pebblestore.None})
	},
}

// fleet is a bucket on a real server, a directory of artifacts, and nodes that fold the one and publish to the other.
type fleet struct {
	t         *testing.T
	backend   string
	js        jetstream.JetStream
	bucket    *natskv.Bucket
	leases    *natskv.Bucket
	objects   objects.Store
	transport *transport.Transport
	dir       string
	scratch   string
}

func eachFleet(t *testing.T, test func(f *fleet)) {
	for backend := range backends {
		t.Run(backend, func(t *testing.T) {
			nc, err := natstest.New(t).Connect()
			must(t, err)
			t.Cleanup(nc.Close)
			f := &fleet{t: t, backend: backend, dir: t.TempDir(), scratch: t.TempDir()}
			f.js, err = jetstream.New(nc)
			must(t, err)
			f.bucket, err = natskv.Open(bounded(t), f.js, "test", natskv.BucketConfig{})
			must(t, err)
			f.leases, err = natskv.Open(bounded(t), f.js, "leases", natskv.BucketConfig{})
			must(t, err)
			f.objects, err = dir.Open(t.TempDir(), dir.Options{})
			must(t, err)
			f.transport, err = transport.New(transport.Options{Store: f.objects, Prefix: "folds", Key: "routes"})
			must(t, err)
			test(f)
		})
	}
}

// member is a running fold of the fleet.
type member struct {
	*fold.Fold
	routes    ft.RouteTable
	delivered *atomic.Int64
	round     *rounds.Round
}

// start runs a node in a folder of its own name.
func (f *fleet) start(name string, o fold.Options) *member {
	f.t.Helper()
	s, err := backends[f.backend](filepath.Join(f.dir, name))
	must(f.t, err)
	m := &member{delivered: new(atomic.Int64)}
	o.Logger = slog.New(slog.DiscardHandler)
	b := fold.NewBuilder(counted{f.bucket, m.delivered}, s, o)
	var errs [7]error
	m.routes, errs[0] = ft.RegisterRoute(b)
	_, errs[1] = ft.RegisterRouteMeta(b)
	_, errs[2] = ft.RegisterSettings(b)
	_, errs[3] = ft.RegisterSession(b)
	_, errs[4] = ft.RegisterDropped(b)
	_, errs[5] = ft.RegisterHalted(b)
	_, errs[6] = ft.RegisterDoc(b)
	must(f.t, errors.Join(errs[:]...))
	m.Fold, err = b.Start(bounded(f.t))
	must(f.t, err)
	f.t.Cleanup(func() { _ = m.Close() })
	must(f.t, m.WaitHydrated(bounded(f.t)))
	f.caughtUp(m)
	l, err := lease.New(lease.Options{Bucket: f.leases, Key: "export.routes", Holder: name})
	must(f.t, err)
	m.round = &rounds.Round{
		Lease: l, TTL: time.Second, Export: m.Export, Transport: f.transport, Scratch: f.scratch, Live: f.bucket.Info,
	}
	return m
}

// publish runs a round that must publish what the log holds, and frees the lease, as its expiry does.
func (f *fleet) publish(m *member) rounds.Result {
	f.t.Helper()
	f.caughtUp(m)
	res, err := m.round.Run(bounded(f.t))
	if err != nil || res.Ending != rounds.Published || res.Problems() != nil || res.Unread != nil {
		f.t.Fatalf("the round ended %v: %v, %v, %v", res.Ending, err, res.Problems(), res.Unread)
	}
	_, err = f.leases.Delete(bounded(f.t), "export.routes", kv.DeleteOptions{})
	must(f.t, err)
	return res
}

func (f *fleet) caughtUp(m *member) {
	f.t.Helper()
	info, err := f.bucket.Info(bounded(f.t))
	must(f.t, err)
	must(f.t, m.WaitApplied(bounded(f.t), fold.Seq(info.Last)))
}

func (f *fleet) put(domains ...string) {
	f.t.Helper()
	for _, d := range domains {
		_, err := ft.NewRouteWriter(f.bucket).Put(bounded(f.t), &foldtestv1.Route{Tenant: "t", Domain: d, NodeId: "1"})
		must(f.t, err)
	}
}

func (f *fleet) digest(m *member) fold.Digest {
	f.t.Helper()
	snap, err := m.Snapshot()
	must(f.t, err)
	d, err := snap.Digest(bounded(f.t))
	must(f.t, errors.Join(err, snap.Close()))
	return d
}

// edit changes the stream's settings, as an operator does.
func (f *fleet) edit(change func(*jetstream.StreamConfig)) {
	f.t.Helper()
	s, err := f.js.Stream(bounded(f.t), "KV_test")
	must(f.t, err)
	cfg := s.CachedInfo().Config
	change(&cfg)
	_, err = f.js.UpdateStream(bounded(f.t), cfg)
	must(f.t, err)
}

var taken = artifact.Options{Kinds: []store.Kind{logstore.Kind(), pebblestore.Kind()}, Bucket: "test"}

func (f *fleet) source() *transport.Source {
	return &transport.Source{Transport: f.transport, Artifact: taken, Scratch: f.scratch}
}

// counted counts what its watches deliver.
type counted struct {
	kv.Bucket
	n *atomic.Int64
}

func (c counted) Open(ctx context.Context, req kv.OpenRequest) (kv.Watch, error) {
	w, err := c.Bucket.Open(ctx, req)
	if err != nil {
		return nil, err
	}
	return countedWatch{w, c.n}, nil
}

type countedWatch struct {
	kv.Watch
	n *atomic.Int64
}

func (w countedWatch) Next(ctx context.Context, into kv.Delivery, max, maxBytes int) (kv.Delivery, error) {
	before := len(into.Updates)
	d, err := w.Watch.Next(ctx, into, max, maxBytes)
	w.n.Add(int64(len(d.Updates) - before))
	return d, err
}

// TestBootstrapDeliversTheDeltaOnly: a new node gets the artifact, and from the log what came after it and nothing else.
func TestBootstrapDeliversTheDeltaOnly(t *testing.T) {
	eachFleet(t, func(f *fleet) {
		exporter := f.start("exporter", fold.Options{})
		for i := range 200 {
			f.put(fmt.Sprint("d", i))
		}
		res := f.publish(exporter)
		f.put("d0", "d1", "new1", "new2", "new3", "new4", "new5")
		m, err := f.transport.Bootstrap(bounded(t), filepath.Join(f.dir, "node"), f.bucket.Info, taken)
		must(t, err)
		if m.Rank() != 200 || m.Hash() != res.Manifest.Hash() {
			t.Errorf("took %s", transport.Name(m))
		}
		node := f.start("node", fold.Options{})
		f.caughtUp(exporter)
		if n := node.delivered.Load(); n != 7 {
			t.Errorf("the log delivered %d updates, of which 7 came after the artifact", n)
		}
		if f.digest(node) != f.digest(exporter) {
			t.Error("the node is not what the exporter is")
		}
		fresh := f.start("fresh", fold.Options{})
		if n := fresh.delivered.Load(); n != 205 || f.digest(fresh) != f.digest(node) {
			t.Errorf("a node without an artifact got %d", n)
		}
	})
}

// TestRoundsRestoreANodeThatWasAway: the bucket evicts all that the node has not seen. It ends as the exporter, by the
// newest generation, and by an older one that still passes where the newest is damaged.
func TestRoundsRestoreANodeThatWasAway(t *testing.T) {
	for _, damaged := range []bool{false, true} {
		t.Run(fmt.Sprint("damaged=", damaged), func(t *testing.T) {
			eachFleet(t, func(f *fleet) {
				t := f.t
				exporter := f.start("exporter", fold.Options{})
				f.put("aged", "gone", "kept")
				node := f.start("node", fold.Options{})
				f.publish(exporter)
				must(t, node.Close())
				f.put("gap")
				_, err := f.bucket.Delete(bounded(t), ft.RouteKey{Tenant: "t", Domain: "gone"}.String(), kv.DeleteOptions{})
				must(t, err)
				f.put("kept", "filler")
				f.caughtUp(exporter)
				f.edit(func(c *jetstream.StreamConfig) { c.Discard, c.MaxMsgs = jetstream.DiscardOld, 3 })
				f.publish(exporter)
				f.put("late")
				newest := f.publish(exporter)
				if damaged {
					name := transport.Name(newest.Manifest)
					must(t, f.objects.Put(bounded(t), "folds/routes.payloads/"+name+".tar", strings.NewReader("torn")))
				}
				f.put("last")
				f.caughtUp(exporter)
				info, err := f.bucket.Info(bounded(t))
				must(t, err)
				if protocol.ResumeWindowOK(3, info.First) {
					t.Fatalf("the node can still resume on %+v", info)
				}
				node = f.start("node", fold.Options{Repair: fold.RepairOptions{Source: f.source(), Scratch: f.scratch}})
				st := node.Status()
				if r := st.Repair; r == nil || r.Plan != "restore" || (r.Artifact == transport.Name(newest.Manifest)) == damaged {
					t.Errorf("repaired by %+v", r)
				}
				if f.digest(node) != f.digest(exporter) {
					t.Error("the node is not what the exporter is")
				}
				for _, domain := range []string{"aged", "gap", "kept", "late", "last", "gone"} {
					if _, ok, err := node.routes.Get(bounded(t), ft.RouteKey{Tenant: "t", Domain: domain}); err != nil || ok != (domain != "gone") {
						t.Errorf("%s: %v, %v", domain, ok, err)
					}
				}
				left, err := os.ReadDir(f.scratch)
				if err != nil || len(left) > 0 {
					t.Errorf("left %v, %v", left, err)
				}
			})
		})
	}
}

// TestRecreatedBucketIsPublishedAnew: the new log's first export replaces the old log's pointer, which no exporter of the
// old one takes back, and a new node bootstraps from it.
func TestRecreatedBucketIsPublishedAnew(t *testing.T) {
	eachFleet(t, func(f *fleet) {
		old := f.start("old", fold.Options{})
		f.put("a", "b", "c", "d")
		f.publish(old)
		must(t, f.js.DeleteKeyValue(bounded(t), "test"))
		var err error
		f.bucket, err = natskv.Open(bounded(t), f.js, "test", natskv.BucketConfig{})
		must(t, err)
		fresh := f.start("fresh", fold.Options{})
		f.put("z")
		f.publish(fresh)
		res, err := old.round.Run(bounded(t))
		if err != nil || res.Ending != rounds.Superseded || res.By.Revision != 1 {
			t.Errorf("the old log's exporter ended %v: %v", res.Ending, err)
		}
		m, err := f.transport.Bootstrap(bounded(t), filepath.Join(f.dir, "node"), f.bucket.Info, taken)
		must(t, err)
		node := f.start("node", fold.Options{})
		if m.Rank() != 1 || node.delivered.Load() != 0 || f.digest(node) != f.digest(fresh) {
			t.Errorf("took %s, then %d updates", transport.Name(m), node.delivered.Load())
		}
	})
}
