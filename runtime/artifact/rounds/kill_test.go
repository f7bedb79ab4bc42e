package rounds_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/internal/s3test"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/artifact/transport"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
	"github.com/typedfold/fold/runtime/protocol"
)

var (
	killCount = flag.Int("fold.kills", 200, "how many kills TestKilledAtAnyMoment does, at least 60")
	killSeed  = flag.Uint64("fold.killseed", 0, "what TestKilledAtAnyMoment does next, as a failed run told; 0 is another one each time")
)

const (
	leastOfStep = 10 // kills, in the whole test
	waitLimit   = time.Minute
)

var killedSteps = []string{stepExport, stepUpload, stepImport, stepRestore}

// TestKilledAtAnyMoment: a node that exports, uploads, imports and restores, on a bucket that is written to and evicts, is
// killed in all of it. What it leaves is whole, and it starts again, at the truth.
func TestKilledAtAnyMoment(t *testing.T) {
	beNode()
	seed := *killSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-fold.killseed %d", seed)
	places := map[string]func(t *testing.T) string{
		"dir": func(t *testing.T) string { return "file://" + filepath.ToSlash(t.TempDir()) },
		"s3":  func(t *testing.T) string { return s3test.New(t).Bucket(t) },
	}
	all := map[string]int{}
	for i, w := range []struct {
		backend, place string
		share          int // of a hundred kills
	}{{"logstore", "dir", 45}, {"pebble", "dir", 30}, {"pebble", "s3", 25}} {
		t.Run(w.backend+" "+w.place, func(t *testing.T) {
			k := newKilling(t, w.backend, places[w.place](t), rand.New(rand.NewPCG(seed, uint64(i))))
			k.run((*killCount*w.share + 99) / 100)
			for step, n := range k.kills {
				all[step] += n
			}
		})
	}
	t.Logf("kills:%s", counts(all))
	for _, step := range killedSteps {
		if all[step] < leastOfStep && !t.Failed() {
			t.Errorf("%d kills in step %s, want %d", all[step], step, leastOfStep)
		}
	}
}

func counts(kills map[string]int) (s string) {
	for _, step := range slices.Sorted(maps.Keys(kills)) {
		s += fmt.Sprintf(" %s %d", step, kills[step])
	}
	return s
}

// killing is a fleet of which one node, a process of its own, is killed.
type killing struct {
	*fleet
	server, place, kind string
	home                string
	rng                 *rand.Rand
	exporter            *member
	clock               int64
	anchors             int
	empty               bool // the node's store was begun empty, and was not seen whole since

	mu      sync.Mutex // holds who writes back
	history []kv.Update

	heads, published *truth
	pointer          protocol.Position // when it was looked at last

	tookMu sync.Mutex
	took   map[string]time.Duration // of each step, about

	kills            map[string]int
	checks, verified int
	rounds           int // that were not killed
}

func newKilling(t *testing.T, backend, place string, rng *rand.Rand) *killing {
	t.Helper()
	srv := natstest.New(t)
	nc, err := srv.Connect()
	must(t, err)
	t.Cleanup(nc.Close)
	f := &fleet{t: t, backend: backend, dir: t.TempDir(), scratch: t.TempDir()}
	f.js, err = jetstream.New(nc)
	must(t, err)
	f.bucket, err = natskv.Open(bounded(t), f.js, "test", natskv.BucketConfig{MaxBytes: 64 << 20, DiscardOld: true})
	must(t, err)
	f.leases, err = natskv.Open(bounded(t), f.js, "leases", natskv.BucketConfig{})
	must(t, err)
	s, err := openObjects(bounded(t), place)
	must(t, err)
	f.objects, err = objects.ForPublishing(bounded(t), s, "folds/", false)
	must(t, err)
	f.transport, err = transport.New(transport.Options{Store: f.objects, Prefix: "folds", Key: "routes"})
	must(t, err)
	k := &killing{
		fleet: f, server: srv.URL(), place: place, home: t.TempDir(), rng: rng, clock: time.Now().Unix(),
		took: map[string]time.Duration{}, kills: map[string]int{},
	}
	must(t, os.Mkdir(filepath.Join(k.home, scratchFolder), 0o700))
	k.heads, err = newTruth(t.TempDir())
	must(t, err)
	k.published, err = newTruth(t.TempDir())
	must(t, err)
	k.exporter = f.start("exporter", fold.Options{})
	k.exporter.round.TTL = roundTTL
	must(t, k.writeSome(rng, 2*domains))
	k.publishElsewhere()
	newest, _, err := f.transport.Pointer(bounded(t))
	must(t, err)
	k.kind = newest.Manifest.Backend
	k.pointer.Log = newest.Manifest.Log.CreatedUnixNano
	return k
}

// run kills the node n times within the four steps, and so often elsewhere as it happens.
func (k *killing) run(n int) {
	t := k.t
	ctx, stop := context.WithCancel(t.Context())
	writer := rand.New(rand.NewPCG(k.rng.Uint64(), 0))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := k.churn(ctx, writer); err != nil {
			t.Errorf("write: %v", err)
		}
	})
	defer wg.Wait()
	defer stop()
	began := time.Now()
	p := k.begin(false)
	k.wantTruth(p)
	for tries := 0; k.done() < n && !t.Failed(); tries++ {
		if tries > 4*n {
			t.Fatalf("%d tries, and no more than these kills:%s", tries, counts(k.kills))
		}
		p = k.killIn(p, k.choose())
		// Some are killed again at any moment of their recovery.
		for k.rng.IntN(4) == 0 {
			k.await(p, time.Duration(k.rng.Float64()*float64(k.recovery())))
			k.kill(p)
			p = k.begin(false)
		}
		k.wantTruth(p)
	}
	must(t, p.in.Close())
	if !p.endsWithin(waitLimit) {
		t.Errorf("the node did not end in %v; it was in step %s", waitLimit, p.kill())
	} else if p.lastErr != nil {
		t.Error(p.ended())
	}
	t.Logf("%v, %d rounds, kills:%s; the truth was met %d times, %d artifacts were compared with it",
		time.Since(began).Round(time.Second), k.rounds, counts(k.kills), k.checks, k.verified)
}

// done is how many kills hit one of the four steps.
func (k *killing) done() (n int) {
	for _, step := range killedSteps {
		n += k.kills[step]
	}
	return n
}

// choose is one of the four steps, that with the fewest kills more often.
func (k *killing) choose() string {
	a, b := killedSteps[k.rng.IntN(len(killedSteps))], killedSteps[k.rng.IntN(len(killedSteps))]
	if k.kills[b] < k.kills[a] {
		return b
	}
	return a
}

// killIn brings an idle node into a step, through another life where it takes that, kills it there, and returns its next
// life.
func (k *killing) killIn(p *process, step string) *process {
	k.t.Helper()
	switch {
	case step == stepImport || step == stepRestore:
		k.kill(p)
		empty := false
		if step == stepImport {
			k.loseDisk()
		} else if empty = k.rng.IntN(4) == 0; empty {
			k.loseDisk()
		} else {
			k.overtake()
		}
		p = k.begin(empty)
	default:
		if k.rng.IntN(2) == 0 { // another one before, which prunes as well
			must(k.t, p.order(commandRound))
			must(k.t, p.reach(bounded(k.t), stepIdle))
			k.rounds++
		}
		must(k.t, p.order(commandRound))
	}
	must(k.t, p.reach(bounded(k.t), step))
	k.await(p, time.Duration(k.rng.Float64()*1.2*float64(k.about(step))))
	k.kill(p)
	return k.begin(false)
}

func (k *killing) begin(empty bool) *process {
	k.t.Helper()
	p, err := startProcess(k.t.Context(), nodeTask{
		Server: k.server, Objects: k.place, Backend: k.backend, Home: k.home, Clock: k.later(), Empty: empty,
	}, k.tell)
	must(k.t, err)
	k.empty = k.empty || empty
	return p
}

// await lets the node go on for a while, but not end.
func (k *killing) await(p *process, d time.Duration) {
	k.t.Helper()
	if p.endsWithin(d) {
		k.t.Fatal(p.ended())
	}
}

func (k *killing) kill(p *process) {
	k.t.Helper()
	step := p.kill()
	if !p.wasKilled() {
		k.t.Fatal(p.ended())
	}
	if k.kills[step]++; step != stepIdle {
		k.inspect()
	}
}

// wantTruth waits until the node is idle, and compares it with every write minus every delete.
func (k *killing) wantTruth(p *process) {
	t := k.t
	t.Helper()
	must(t, p.reach(bounded(t), stepIdle))
	k.mu.Lock()
	defer k.mu.Unlock()
	want, err := k.heads.at(bounded(t), k.history, k.head())
	must(t, err)
	got, err := p.check(bounded(t), want.Revision)
	must(t, err)
	if got != want {
		t.Fatalf("the node holds %+v, the truth is %+v", got, want)
	}
	k.wantClean()
	k.empty = false
	k.checks++
}

// tell keeps about how long a step takes.
func (k *killing) tell(step string, took time.Duration) {
	k.tookMu.Lock()
	defer k.tookMu.Unlock()
	if was, ok := k.took[step]; ok {
		took = (3*was + took) / 4
	}
	k.took[step] = took
}

func (k *killing) about(step string) time.Duration {
	k.tookMu.Lock()
	defer k.tookMu.Unlock()
	if d, ok := k.took[step]; ok {
		return d
	}
	return 20 * time.Millisecond
}

// recovery is about how long a node takes to be idle.
func (k *killing) recovery() (d time.Duration) {
	for _, step := range []string{stepStart, stepImport, stepOpen, stepRestore} {
		d += k.about(step)
	}
	return d
}
