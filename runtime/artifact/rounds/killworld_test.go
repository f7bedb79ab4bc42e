package rounds_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	foldtestv1 "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1"
	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/artifact/rounds"
	"github.com/typedfold/fold/runtime/artifact/transport"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/lease"
	"github.com/typedfold/fold/runtime/protocol"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
)

const (
	domains    = 400
	writeBurst = 4
	writeEvery = 10 * time.Millisecond
)

// truth is every write minus every delete up to a revision, which only grows.
type truth struct {
	store store.Store
	next  int // of the history
	rows  map[string]bool
}

func newTruth(dir string) (*truth, error) {
	s, err := logstore.Open(dir, logstore.Options{Durability: logstore.None})
	return &truth{store: s, rows: map[string]bool{}}, err
}

// at is the truth at a revision, as a check answers.
func (r *truth) at(ctx context.Context, history []kv.Update, rev uint64) (nodeState, error) {
	if now := r.store.Cursor().Revision(); now > rev {
		return nodeState{}, fmt.Errorf("the truth at %d is asked for after that at %d", rev, now)
	}
	from := r.next
	for ; r.next < len(history) && history[r.next].Version.Rank() <= rev; r.next++ {
		if u := &history[r.next]; u.Op == kv.OpPut {
			r.rows[u.Key] = true
		} else {
			delete(r.rows, u.Key)
		}
	}
	if err := r.store.Apply(ctx, &store.Batch{Updates: history[from:r.next]}, kv.CursorAt(rev)); err != nil {
		return nodeState{}, err
	}
	d, err := fold.DigestOf(ctx, r.store)
	return nodeState{Revision: rev, Digest: d.String(), Rows: uint64(len(r.rows))}, err
}

// writeSome writes a few random puts and deletes. The world is locked.
func (k *killing) writeSome(r *rand.Rand, n int) error {
	for range n {
		if err := k.write(fmt.Sprint("d", r.IntN(domains)), r.IntN(4) > 0, strings.Repeat(fmt.Sprintf("%016x", r.Uint64()), 1+r.IntN(80))); err != nil {
			return err
		}
	}
	return nil
}

// write writes one key, and notes what it wrote: nobody else writes to the bucket.
func (k *killing) write(domain string, put bool, text string) error {
	u := kv.Update{Key: ft.RouteKey{Tenant: "t", Domain: domain}.String(), Op: kv.OpDelete, Reason: kv.ReasonUser}
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	var err error
	if put {
		u.Op = kv.OpPut
		if u.Value, err = proto.Marshal(&foldtestv1.Route{Tenant: "t", Domain: domain, NodeId: text}); err != nil {
			return err
		}
		u.Version, err = k.bucket.Put(ctx, u.Key, u.Value, kv.PutOptions{})
	} else {
		u.Version, err = k.bucket.Delete(ctx, u.Key, kv.DeleteOptions{})
	}
	k.history = append(k.history, u)
	return err
}

func (k *killing) head() uint64 { return k.history[len(k.history)-1].Version.Rank() }

// churn writes, little by little, until ctx ends.
func (k *killing) churn(ctx context.Context, r *rand.Rand) error {
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		k.mu.Lock()
		err := k.writeSome(r, writeBurst)
		k.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// later is a time by which each lease that was taken until now has expired.
func (k *killing) later() int64 {
	k.clock += int64(1000 * roundTTL / time.Second)
	return k.clock
}

// publishElsewhere has another node of the fleet publish what the log holds. The world is locked, and the node is dead.
func (k *killing) publishElsewhere() {
	k.t.Helper()
	k.caughtUp(k.exporter)
	now := time.Unix(k.later(), 0)
	l, err := lease.New(lease.Options{Bucket: k.leases, Key: "export.routes", Holder: "exporter", Now: func() time.Time { return now }})
	must(k.t, err)
	k.exporter.round.Lease = l
	res, err := k.exporter.round.Run(bounded(k.t))
	if err != nil || res.Ending != rounds.Published || res.Manifest.Rank() != k.head() {
		k.t.Fatalf("the other node's round at %d ended %v: %v", k.head(), res.Ending, err)
	}
}

// overtake has the bucket evict all that the dead node has not seen, and much that it has, up to the newest artifact.
func (k *killing) overtake() {
	k.t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	must(k.t, k.writeSome(k.rng, 8+k.rng.IntN(60)))
	k.publishElsewhere()
	// One message that stays is what the artifact is followed from.
	k.anchors++
	must(k.t, k.write(fmt.Sprint("anchor", k.anchors), true, ""))
	k.edit(func(c *jetstream.StreamConfig) { c.MaxMsgs = 1 })
	info, err := k.bucket.Info(bounded(k.t))
	if err != nil || info.First != k.head() || info.Last != k.head() {
		k.t.Fatalf("evicted all but %d: %+v, %v", k.head(), info, err)
	}
	k.edit(func(c *jetstream.StreamConfig) { c.MaxMsgs = -1 })
	k.caughtUp(k.exporter)
}

// loseDisk takes the dead node's store away.
func (k *killing) loseDisk() { must(k.t, os.RemoveAll(filepath.Join(k.home, storeFolder))) }

// inspect checks, after a kill, what the node has left: the pointer and each generation are whole, and the pointer has not
// gone back.
func (k *killing) inspect() {
	t := k.t
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	newest, ok, err := k.transport.Pointer(bounded(t))
	must(t, errors.Join(err, newest.Err))
	at := protocol.Position{Log: newest.Manifest.Log.CreatedUnixNano, Revision: newest.Manifest.Rank()}
	if !ok || at.Log != k.pointer.Log || at.Revision < k.pointer.Revision {
		t.Fatalf("the pointer is at %+v (there: %v), it was at %+v", at, ok, k.pointer)
	}
	all, err := k.transport.Manifests(bounded(t), at)
	must(t, err)
	payloads := map[string]bool{}
	for o, err := range k.objects.List(bounded(t), "folds/routes.payloads/") {
		must(t, err)
		payloads[strings.TrimSuffix(filepath.Base(o.Key), ".tar")] = true
	}
	for _, g := range all {
		if g.Err != nil || !payloads[g.Name] {
			t.Errorf("generation %q: %v, its payload is there: %v", g.Name, g.Err, payloads[g.Name])
		}
	}
	if at.Revision > k.pointer.Revision {
		k.verify(newest)
	}
	k.pointer = at
	k.storeOpens()
}

// verify downloads an artifact, with all checks, and compares it with the truth at its cursor.
func (k *killing) verify(g transport.Generation) {
	t := k.t
	t.Helper()
	dest := filepath.Join(t.TempDir(), "artifact")
	must(t, k.transport.Download(bounded(t), g.Manifest, dest, taken))
	s, err := k.openRead(filepath.Join(dest, "data"))
	must(t, err)
	d, err := fold.DigestOf(bounded(t), s)
	must(t, errors.Join(err, s.Close()))
	want, err := k.published.at(bounded(t), k.history, g.Manifest.Rank())
	must(t, err)
	if d.String() != want.Digest {
		t.Fatalf("artifact %s holds %v, the truth at %d is %s", g.Name, d, want.Revision, want.Digest)
	}
	must(t, os.RemoveAll(dest))
	k.verified++
}

func (k *killing) openRead(dir string) (store.Store, error) {
	for _, kind := range taken.Kinds {
		if kind.Backend == k.kind {
			return kind.Open(dir)
		}
	}
	return nil, errors.New("no such backend")
}

// storeOpens checks that the dead node's store is absent or whole. One that was begun empty may have no files yet.
func (k *killing) storeOpens() {
	t := k.t
	t.Helper()
	dir := filepath.Join(k.home, storeFolder)
	if _, err := os.Lstat(dir); err != nil || k.empty {
		return
	}
	s, err := k.openRead(dir)
	if err != nil {
		t.Fatalf("the store that the kill left: %v", err)
	}
	at := s.Cursor().Revision()
	must(t, s.Close())
	if at == 0 || at > k.head() {
		t.Errorf("the store that the kill left is at %d of %d", at, k.head())
	}
}

// wantClean checks that an idle node has nothing but its store.
func (k *killing) wantClean() {
	t := k.t
	t.Helper()
	for _, folder := range []string{k.home, filepath.Join(k.home, scratchFolder)} {
		left, err := os.ReadDir(folder)
		must(t, err)
		for _, e := range left {
			if folder != k.home || !slices.Contains([]string{storeFolder, storeFolder + ".lock", scratchFolder}, e.Name()) {
				t.Errorf("%s holds %s", folder, e.Name())
			}
		}
	}
}
