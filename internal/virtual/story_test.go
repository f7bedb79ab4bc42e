package virtual

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	foldtestv1 "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1"
	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
	"github.com/typedfold/fold/runtime/store/pebblestore"
)

// maxAge is how long an evicting bucket keeps a message, in virtual time.
const maxAge = time.Hour

// kinds of buckets that stories are told of.
var kinds = map[string]struct {
	cfg    natskv.BucketConfig
	purges bool
}{
	"keeps":  {cfg: natskv.BucketConfig{}},
	"sealed": {cfg: natskv.BucketConfig{Sealed: true}},
	"purged": {cfg: natskv.BucketConfig{History: 3}, purges: true},
	"ages":   {cfg: natskv.BucketConfig{MaxAge: maxAge}},
	// With TTLs, supersession can't be told from eviction, so there is history enough for no head to move by it.
	"markers": {cfg: natskv.BucketConfig{MaxAge: maxAge, MarkerTTL: 10 * time.Minute, History: 64}},
}

var stores = map[string]func(dir string) (store.Store, error){
	"logstore": func(dir string) (store.Store, error) {
		return logstore.Open(filepath.Join(dir, "fold.log"), logstore.Options{Durability: logstore.None})
	},
	"pebble": func(dir string) (store.Store, error) {
		return pebblestore.Open(filepath.Join(dir, "pebble"), pebblestore.Options{Durability: pebblestore.None})
	},
}

// node is a fold that can be stopped and started again.
type node struct {
	name    string
	dir     string
	client  *client
	seen    *recorder
	f       *fold.Fold
	routes  ft.RouteTable
	repairs map[string]int
	noted   time.Time // end of the last repair that was counted
	audits  atomic.Int64
}

// story is one bucket's life with two nodes: one that is always there and exports, and one that comes and goes.
type story struct {
	t       *testing.T
	seed    uint64
	r       *rand.Rand
	backend string
	kind    string
	dir     string
	host    *host
	writer  *client
	history *history
	steady  *node
	visitor *node
	exports int
	kept    map[string]uint64 // the artifacts that are there, and their cursors
	counts  map[string]int
}

// cfg has watches ask less often than they do by default: it is the hours of quiet that cost.
func (s *story) cfg() natskv.BucketConfig {
	c := kinds[s.kind].cfg
	c.Watch = natskv.WatchConfig{Heartbeat: 15 * time.Second, ProbeEvery: 30 * time.Second}
	return c
}

func (s *story) newNode(name string, seed uint64) *node {
	n := &node{name: name, dir: filepath.Join(s.dir, name), repairs: map[string]int{}}
	must(s.t, os.MkdirAll(n.dir, 0o700))
	n.client = dial(s.t, s.host, seed, s.cfg())
	n.seen = &recorder{Bucket: n.client.bucket}
	return n
}

func (s *story) source() *artifact.LocalSource {
	return &artifact.LocalSource{Dir: filepath.Join(s.dir, "artifacts"), Scratch: s.dir, Artifact: artifact.Options{Kinds: []store.Kind{pebblestore.Kind(), logstore.Kind()}}}
}

// start starts a node. An artifact is of use until a write after its cursor is gone, be it superseded, so the visitor finds a
// new one where values age out. That one may be of no use either by the time that the visitor reaches the server: see refusal.
func (s *story) start(n *node) {
	s.t.Helper()
	if s.history.evicts && n == s.visitor {
		s.export()
	}
	st, err := stores[s.backend](n.dir)
	must(s.t, err)
	b := fold.NewBuilder(n.seen, st, fold.Options{
		Logger: slog.New(slog.DiscardHandler),
		Repair: fold.RepairOptions{Source: s.source(), Scratch: s.dir, AuditEvery: time.Minute},
		Events: fold.Events{AuditDone: func(r *fold.RepairReport) {
			if r.Error == "" {
				n.audits.Add(1)
			}
		}},
	})
	n.routes, err = ft.RegisterRoute(b)
	must(s.t, err)
	n.f, err = b.Start(bounded(s.t))
	must(s.t, err)
}

func (s *story) stop(n *node) {
	s.t.Helper()
	s.note(n)
	if err := n.f.Err(); err != nil {
		if wrong := s.refusal(n, err); wrong != nil {
			s.t.Errorf("%s, seed %d: %v", n.name, s.seed, wrong)
		}
		s.counts["refused"]++
	}
	must(s.t, n.f.Close())
	n.f = nil
}

// note counts the node's last repair once.
func (s *story) note(n *node) {
	if r := n.f.Status().Repair; r != nil && r.Plan != "" && r.Began.After(n.noted) {
		n.noted = r.Began
		n.repairs[r.Plan]++
	}
}

func (s *story) write(domain string, remove bool) {
	s.t.Helper()
	key := ft.RouteKey{Tenant: "t", Domain: domain}
	w := written{key: key.String(), node: fmt.Sprint("n", len(s.history.all)), delete: remove, sent: time.Now()}
	var v kv.Version
	var err error
	if remove {
		v, err = s.writer.bucket.Delete(bounded(s.t), w.key, kv.DeleteOptions{})
	} else {
		var rev fold.Rev[ft.RouteKey]
		rev, err = ft.NewRouteWriter(s.writer.bucket).Put(bounded(s.t), &foldtestv1.Route{Tenant: "t", Domain: domain, NodeId: w.node})
		v = kv.Revision(rev.Seq())
	}
	must(s.t, err)
	w.rev = v.Rank()
	s.history.add(w)
}

func (s *story) scribble(n int) {
	for range n {
		s.write(fmt.Sprint("d", s.r.IntN(12)), s.r.IntN(4) == 0)
	}
}

// caughtUp waits until the node holds all that the log's end says. A visitor that had to stop, since no artifact was of use to
// it any more, is started again with the next one, which has to do.
func (s *story) caughtUp(n *node) {
	s.t.Helper()
	info, err := s.writer.bucket.Info(bounded(s.t))
	must(s.t, err)
	err = n.f.WaitApplied(bounded(s.t), fold.Seq(info.Last))
	if n == s.visitor && errors.Is(err, fold.ErrRepairRefused) {
		s.stop(n)
		s.start(n)
		err = n.f.WaitApplied(bounded(s.t), fold.Seq(info.Last))
	}
	if err != nil {
		s.t.Fatalf("%s, seed %d: %v; status %+v", n.name, s.seed, err, n.f.Status())
	}
}

func (s *story) export() {
	s.t.Helper()
	s.caughtUp(s.steady)
	s.exports++
	name := func(n int) string { return fmt.Sprint("a", n) }
	dir := filepath.Join(s.dir, "artifacts")
	must(s.t, os.MkdirAll(dir, 0o700))
	m, err := s.steady.f.Export(bounded(s.t), filepath.Join(dir, name(s.exports)))
	must(s.t, err)
	s.kept[name(s.exports)] = m.Cursor.Revision()
	if old := name(s.exports - 2); s.exports > 2 {
		must(s.t, os.RemoveAll(filepath.Join(dir, old)))
		delete(s.kept, old)
	}
}

// atomic: what a snapshot shows is the bucket at its cursor. Where markers are purged, a node may hold what was deleted
// until an audit has said so.
func (s *story) atomic(n *node) {
	s.t.Helper()
	if n.f == nil || kinds[s.kind].purges {
		return
	}
	snap, err := n.f.Snapshot()
	must(s.t, err)
	defer snap.Close()
	if snap.Cursor().IsNone() || n.f.Status().State != fold.StateLive {
		return // a re-list or a restore is under way
	}
	s.counts["views"]++
	s.compare(n, snap, snap.Cursor().Revision())
}

// compare holds a node's rows against what was written up to a revision.
func (s *story) compare(n *node, snap *fold.Snapshot, upTo uint64) {
	s.t.Helper()
	at := snap.Cursor().Revision()
	got := map[string]uint64{}
	for row, err := range n.routes.At(snap).List(context.Background(), ft.RouteAll()) {
		must(s.t, err)
		rev := row.Rev.Seq()
		got[row.Key.String()] = rev
		if w, ok := s.history.at(rev); !ok || w.key != row.Key.String() || w.node != row.Value.GetNodeId() || rev > at {
			s.t.Errorf("%s, seed %d, at cursor %d: a row %v that is none of the log's: %+v", n.name, s.seed, at, row, w)
		}
	}
	for key := range s.history.latest {
		if want, ok := s.history.mayShow(key, got[key], upTo); !ok {
			s.t.Errorf("%s, seed %d, at cursor %d: %s is at revision %d, want %d", n.name, s.seed, at, key, got[key], want)
		}
	}
}

// restart stops the server and starts it again on its files. All lines break first, and what the server has got is dealt with:
// it sleeps with a lock held while it stops, and time stands still in a bubble while somebody waits for a lock.
func (s *story) restart() {
	s.t.Helper()
	lines := []*line{s.writer.line, s.steady.client.line, s.visitor.client.line}
	for _, l := range lines {
		l.cut()
	}
	synctest.Wait()
	s.host.stop()
	time.Sleep(time.Duration(s.r.Int64N(int64(20 * time.Second))))
	s.host.start(s.t)
	for _, l := range lines {
		l.mend()
	}
	s.counts["restarts"]++
	deadline := time.Now().Add(bound)
	for {
		_, err := s.writer.bucket.Info(bounded(s.t))
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("seed %d: the server does not answer after a restart: %v", s.seed, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (s *story) purge() {
	s.t.Helper()
	js, err := s.writer.conn.JetStream()
	must(s.t, err)
	bucket, err := js.KeyValue(bounded(s.t), "test")
	must(s.t, err)
	must(s.t, bucket.PurgeDeletes(bounded(s.t), jetstream.DeleteMarkersOlderThan(-1)))
	s.counts["purges"]++
}

func (s *story) step() {
	s.t.Helper()
	switch s.r.IntN(10) {
	case 0, 1, 2, 3:
		s.scribble(1 + s.r.IntN(8))
	case 4:
		time.Sleep(time.Duration(s.r.Int64N(int64(maxAge / 2))))
	case 5:
		s.restart()
	case 6:
		if kinds[s.kind].purges {
			s.purge()
		}
	case 7:
		if s.visitor.f == nil {
			s.start(s.visitor)
		} else {
			s.stop(s.visitor)
		}
	case 8:
		for _, n := range []*node{s.steady, s.visitor} {
			n.client.line.frail.Store(s.r.IntN(2) == 0)
		}
	case 9:
		time.Sleep(time.Duration(s.r.Int64N(int64(time.Minute))))
	}
	s.atomic(s.steady)
	s.atomic(s.visitor)
}

// away has the visitor miss more than the log keeps, and, where markers are purged, a delete without one.
func (s *story) away() {
	s.t.Helper()
	if s.visitor.f == nil {
		s.start(s.visitor)
	}
	s.caughtUp(s.visitor)
	s.stop(s.visitor)
	if kinds[s.kind].purges {
		s.write("d0", false)
		s.write("d0", true)
		s.purge()
	}
	for range 3 {
		s.scribble(4)
		time.Sleep(maxAge / 2)
	}
	s.start(s.visitor)
	s.caughtUp(s.visitor)
}

// set starts the server, the writer, and the nodes' connections.
func (s *story) set() {
	s.host = &host{dir: filepath.Join(s.dir, "server")}
	s.host.start(s.t)
	s.writer = dial(s.t, s.host, s.seed, s.cfg())
	s.history, s.kept = newHistory(s.cfg().History), map[string]uint64{}
	s.history.evicts, s.history.purges, s.history.markers = s.cfg().MaxAge != 0, kinds[s.kind].purges, s.cfg().MarkerTTL != 0
	s.steady, s.visitor = s.newNode("steady", s.seed+1), s.newNode("visitor", s.seed+2)
}

// clear ends what runs, since the bubble waits for that.
func (s *story) clear() {
	for _, n := range []*node{s.steady, s.visitor} {
		if n.f != nil {
			_ = n.f.Close()
		}
		n.client.close(s.t)
	}
	s.writer.close(s.t)
	s.host.stop()
}

func (s *story) tell() {
	s.set()
	defer s.clear()
	s.start(s.steady)
	must(s.t, s.steady.f.WaitHydrated(bounded(s.t))) // while the bucket is empty, so that it needs no artifact
	s.scribble(10)
	s.export()
	for range 12 {
		s.step()
	}
	s.restart()
	for _, n := range []*node{s.steady, s.visitor} {
		n.client.line.frail.Store(true)
	}
	s.scribble(20)
	time.Sleep(10 * time.Minute)
	s.away()
	for range 12 {
		s.step()
	}
	s.end()
}

// settled waits until a node has found out all that it could not be sure of, and until then its lines may break. An audit
// is rare, and one that a lost line cut off is tried again later, hours of the bubble's time at worst: they take a fiftieth of it at most. Where values age
// out nothing has to be settled at any time.
func (s *story) settled(n *node) {
	s.t.Helper()
	for deadline := time.Now().Add(6 * time.Hour); kinds[s.kind].purges && n.f.Status().Owed != ""; time.Sleep(time.Minute) {
		if time.Now().After(deadline) {
			s.t.Fatalf("%s, seed %d: not settled: %+v", n.name, s.seed, n.f.Status())
		}
	}
}

// end lets everything settle, and holds both nodes and all that they were told against what was written.
func (s *story) end() {
	s.t.Helper()
	if s.visitor.f == nil {
		s.start(s.visitor)
	}
	s.write("last", false)
	for _, n := range []*node{s.steady, s.visitor} {
		s.caughtUp(n)
	}
	time.Sleep(5 * time.Minute) // audits
	for _, n := range []*node{s.steady, s.visitor} {
		s.caughtUp(n)
		s.settled(n)
		snap, err := n.f.Snapshot()
		must(s.t, err)
		s.compare(n, snap, s.history.all[len(s.history.all)-1].rev)
		must(s.t, snap.Close())
		s.stop(n)
		if err := n.seen.check(s.history); err != nil {
			s.t.Errorf("%s, seed %d: %v", n.name, s.seed, err)
		}
		s.counts["watches"] += len(n.seen.sessions)
		s.counts["expired"] += n.seen.refused
		s.counts["cuts"] += int(n.client.line.cuts.Load())
		s.counts["audits"] += int(n.audits.Load())
		s.counts["aged out"] += n.seen.agedOut()
		for plan, count := range n.repairs {
			s.counts[plan] += count
		}
	}
	s.counts["writes"] += len(s.history.all)
}

// TestStories: whatever happens to connections, server, retention and markers, both nodes end as every write minus every
// delete, each snapshot on the way is the bucket at its cursor, and every watch keeps its promises.
func TestStories(t *testing.T) {
	for kind := range kinds {
		for backend := range stores {
			t.Run(kind+"/"+backend, func(t *testing.T) {
				counts := map[string]int{}
				for range seeds() {
					one(t, kind, backend, counts)
				}
				t.Logf("%v", counts)
				want := []string{"writes", "watches", "restarts", "cuts"}
				if !kinds[kind].purges {
					want = append(want, "views")
				}
				if kinds[kind].cfg.MaxAge != 0 {
					want = append(want, "restore", "expired")
				}
				if kinds[kind].cfg.MarkerTTL != 0 {
					want = append(want, "aged out")
				}
				if kinds[kind].purges {
					want = append(want, "purges", "audits")
				}
				for _, what := range want {
					if counts[what] == 0 {
						t.Errorf("no %s in any story", what)
					}
				}
			})
		}
	}
}

// seeds is how many stories are told of each kind on each store.
func seeds() int {
	if n, err := strconv.Atoi(os.Getenv("VIRTUAL_STORIES")); err == nil && n > 0 {
		return n
	}
	return 1
}

// seedOf is the seed of the next story: VIRTUAL_SEED tells one again, as a failure printed it.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("VIRTUAL_SEED")
	if text == "" {
		return rand.Uint64()
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	must(t, err)
	return seed
}

func one(t *testing.T, kind, backend string, counts map[string]int) {
	t.Helper()
	seed, dir := seedOf(t), t.TempDir()
	bubble(t, func(t *testing.T) {
		s := &story{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 0)), backend: backend, kind: kind, dir: dir, counts: counts}
		s.tell()
	})
}
