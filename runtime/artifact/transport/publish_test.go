package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

func TestPublishLayout(t *testing.T) {
	eachStore(t, func(t *testing.T, s objects.Store) {
		tr := transportOn(t, s)
		e := export(t, spec{log: logA, rev: 0x1f})
		wantPublished(t, tr, e, liveAt(logA, 1, 0x20))
		name := "000000000000001f-" + e.m.Hash().String()[:16]
		want := []string{"fleet/routes.manifest.json", "fleet/routes.manifests/" + name + ".json", "fleet/routes.payloads/" + name + ".tar"}
		if got := keys(t, s); !slices.Equal(got, want) {
			t.Errorf("the store holds %q, want %q", got, want)
		}
		raw, _, err := s.ReadPointer(bounded(t), want[0])
		if err != nil || !bytes.Equal(raw, e.m.Bytes()) {
			t.Errorf("the pointer is not the manifest: %q, %v", raw, err)
		}
		wantPointer(t, tr, e)
	})
}

func TestPublishAgainUploadsNothing(t *testing.T) {
	h := &hooked{Store: memory(t)}
	tr := transportOn(t, h)
	e := export(t, spec{log: logA, rev: 5})
	wantPublished(t, tr, e, liveAt(logA, 1, 5))
	h.call = func(op, key string) fate {
		if op != "read" && op != "stat" {
			t.Errorf("%s %s", op, key)
		}
		return fate{}
	}
	wantPublished(t, tr, e, liveAt(logA, 1, 5))
	wantPointer(t, transportOn(t, h.Store), e)
}

// TestSlowExporterIsRefused: an exporter that stopped after its upload comes back after a newer publication.
func TestSlowExporterIsRefused(t *testing.T) {
	h := &hooked{Store: memory(t)}
	tr, fast := transportOn(t, h), transportOn(t, h.Store)
	old, young := export(t, spec{log: logA, rev: 5}), export(t, spec{log: logA, rev: 9})
	live := liveAt(logA, 1, 9)
	h.call = func(op, key string) fate {
		if op == "swap" {
			wantPublished(t, fast, young, live)
			h.call = nil
		}
		return fate{}
	}
	out := publish(t, tr, old, live)
	if out.Published || out.By != (protocol.Position{Log: logA, Revision: 9}) {
		t.Errorf("the slow one ended with %+v", out)
	}
	wantPointer(t, tr, young)
	// It is not even uploaded once the pointer is ahead.
	h.call = func(op, key string) fate {
		if op == "put" {
			t.Errorf("put %s", key)
		}
		return fate{}
	}
	if out := publish(t, tr, old, live); out.Published {
		t.Errorf("a superseded one was published: %+v", out)
	}
}

// TestLogIsReadAfterThePointer: read before it, a log that was replaced in between would let its exporter win.
func TestLogIsReadAfterThePointer(t *testing.T) {
	h := &hooked{Store: memory(t)}
	tr := transportOn(t, h)
	var order []string
	h.call = func(op, _ string) fate { order = append(order, op); return fate{} }
	live := func(ctx context.Context) (kv.LogInfo, error) {
		order = append(order, "log")
		return liveAt(logA, 1, 5)(ctx)
	}
	wantPublished(t, tr, export(t, spec{log: logA, rev: 5}), live)
	if got := strings.Join(order, " "); got != "read log put put read log stat stat swap" {
		t.Errorf("the order is %s", got)
	}
}

// TestRecreatedBucket: the new log's small revisions replace the old log's large ones, and never the other way round.
func TestRecreatedBucket(t *testing.T) {
	tr := transportOn(t, memory(t))
	old, older := export(t, spec{log: logA, rev: 900}), export(t, spec{log: logA, rev: 950})
	fresh, next := export(t, spec{log: logB, rev: 3}), export(t, spec{log: logB, rev: 4})
	wantPublished(t, tr, old, liveAt(logA, 1, 900))
	wantPublished(t, tr, fresh, liveAt(logB, 1, 3))
	wantPointer(t, tr, fresh)
	if out := publish(t, tr, older, liveAt(logB, 1, 3)); out.Published || out.By != (protocol.Position{Log: logB, Revision: 3}) {
		t.Errorf("an exporter of a log that is gone ended with %+v", out)
	}
	wantPublished(t, tr, next, liveAt(logB, 1, 4))
	all, err := tr.Manifests(bounded(t), protocol.Position{Log: logB, Revision: 4})
	must(t, err)
	wantNames(t, names(all), next, fresh, old)
}

func TestPublishWithoutTheLog(t *testing.T) {
	tr := transportOn(t, memory(t))
	wantPublished(t, tr, export(t, spec{log: logA, rev: 900}), liveAt(logA, 1, 900))
	out := publish(t, tr, export(t, spec{log: logB, rev: 3}), unreadable)
	if out.Published || !errors.Is(out.Unread, errLog) {
		t.Errorf("published another log's artifact by an unread log: %+v", out)
	}
	out = publish(t, tr, export(t, spec{log: logA, rev: 901}), unreadable)
	if !out.Published || !errors.Is(out.Unread, errLog) {
		t.Errorf("the same log's newer artifact ended with %+v", out)
	}
	ctx, cancel := context.WithCancel(bounded(t))
	e := export(t, spec{log: logA, rev: 902})
	_, err := tr.Publish(ctx, e.dir, e.m, func(ctx context.Context) (kv.LogInfo, error) { cancel(); return kv.LogInfo{}, ctx.Err() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled publication ended with %v", err)
	}
}

func TestCorruptPointerIsReplaced(t *testing.T) {
	s := memory(t)
	tr := transportOn(t, s)
	if g, ok, err := tr.Pointer(bounded(t)); err != nil || ok || g.Err != nil {
		t.Errorf("no pointer reads as %+v, %v, %v", g, ok, err)
	}
	must(t, s.SwapPointer(bounded(t), tr.pointerKey(), []byte("{"), ""))
	if g, ok, err := tr.Pointer(bounded(t)); err != nil || !ok || !errors.Is(g.Err, artifact.ErrInvalid) {
		t.Errorf("a corrupt pointer reads as %+v, %v, %v", g, ok, err)
	}
	e := export(t, spec{log: logA, rev: 5})
	wantPublished(t, tr, e, liveAt(logA, 1, 5))
	wantPointer(t, tr, e)
}

func TestContendedPointer(t *testing.T) {
	h := &hooked{Store: memory(t)}
	tr := transportOn(t, h)
	swaps := 0
	h.call = func(op, _ string) fate {
		if op == "swap" {
			swaps++
			return fate{err: objects.ErrConflict}
		}
		return fate{}
	}
	e := export(t, spec{log: logA, rev: 5})
	if _, err := tr.Publish(bounded(t), e.dir, e.m, liveAt(logA, 1, 5)); !errors.Is(err, ErrContended) || swaps != pointerTries {
		t.Errorf("after %d swaps: %v", swaps, err)
	}
}

// TestPublishFailsAtEveryCall crashes a publication before, in and after each call that it makes. The old artifact or the
// new one is there whole, nothing else is announced, and the next try succeeds.
func TestPublishFailsAtEveryCall(t *testing.T) {
	old, young := export(t, spec{log: logA, rev: 5}), export(t, spec{log: logA, rev: 9})
	live, errCrash := liveAt(logA, 1, 9), errors.New("crash")
	calls := 0
	for at := 0; ; at++ {
		crashed := false
		for _, mode := range []fate{{err: errCrash}, {err: errCrash, done: true}, {err: errCrash, part: true}} {
			h := &hooked{Store: memory(t)}
			tr := transportOn(t, h.Store)
			wantPublished(t, tr, old, live)
			n, swapped := -1, false
			h.call = func(op, key string) fate {
				n++
				switch {
				case n < at:
					return fate{}
				case n == at:
					crashed, swapped = true, op == "swap" && mode.done
					calls = max(calls, n+1)
					return fate{err: mode.err, done: mode.done, part: mode.part && op == "put"}
				}
				return fate{err: errCrash}
			}
			_, err := transportOn(t, h).Publish(bounded(t), young.dir, young.m, live)
			if n >= at && !errors.Is(err, errCrash) {
				t.Fatalf("call %d: ended with %v", at, err)
			}
			if n >= at && !swapped {
				wantPointer(t, tr, old)
			} else {
				wantPointer(t, tr, young)
			}
			wantWhole(t, tr)
			wantPublished(t, tr, young, live)
			wantPointer(t, tr, young)
		}
		if !crashed {
			break
		}
	}
	if calls != 7 { // read, put, put, read, stat, stat, swap
		t.Errorf("%d calls were crashed", calls)
	}
}

// TestInterruptedUpload: neither a cancelled upload nor one whose files changed leaves anything.
func TestInterruptedUpload(t *testing.T) {
	eachStore(t, func(t *testing.T, s objects.Store) {
		e := export(t, spec{log: logA, rev: 5, fill: 3 << 20})
		ctx, cancel := context.WithCancelCause(bounded(t))
		errStop := errors.New("shut down")
		tr, err := New(Options{Store: s, Key: "routes", Progress: func(p Progress) {
			if p.Done > 1<<20 {
				cancel(errStop)
			}
		}})
		must(t, err)
		if _, err := tr.Publish(ctx, e.dir, e.m, liveAt(logA, 1, 5)); !errors.Is(err, errStop) {
			t.Errorf("ended with %v", err)
		}
		other := export(t, spec{log: logA, rev: 6})
		if _, err := tr.Publish(bounded(t), other.dir, e.m, liveAt(logA, 1, 5)); !errors.Is(err, artifact.ErrInvalid) {
			t.Errorf("another artifact's folder ended with %v", err)
		}
		if left := keys(t, s); len(left) > 0 {
			t.Errorf("left %q", left)
		}
	})
}

// TestUploadIsTriedAgain: the store asks for the stream anew, and Progress begins again.
func TestUploadIsTriedAgain(t *testing.T) {
	inner := memory(t)
	h := &hooked{Store: inner}
	puts := 0
	h.call = func(op, key string) fate {
		if op == "put" && strings.HasSuffix(key, ".tar") {
			if puts++; puts < 3 {
				return fate{err: objects.ErrUnavailable, part: true}
			}
		}
		return fate{}
	}
	guarded, err := objects.Guard(cutting{h}, "cutting", objects.Options{Backoff: time.Millisecond, MaxBackoff: time.Millisecond})
	must(t, err)
	e := export(t, spec{log: logA, rev: 5, fill: 1 << 20})
	var last Progress
	again := 0
	tr, err := New(Options{Store: guarded, Prefix: "fleet", Key: "routes", Progress: func(p Progress) {
		if !p.Upload || p.Name != Name(e.m) || p.Total != e.m.PackedSize() {
			t.Errorf("progress %+v", p)
		}
		if p.Done < last.Done {
			again++
		}
		last = p
	}})
	must(t, err)
	wantPublished(t, tr, e, liveAt(logA, 1, 5))
	if puts != 3 || again != 2 || last.Done != last.Total {
		t.Errorf("%d puts, begun again %d times, last progress %+v", puts, again, last)
	}
	wantPointer(t, transportOn(t, inner), e)
}

// cutting is a driver whose uploads break off on the store's side: the error is the store's and not the reader's.
type cutting struct{ *hooked }

func (c cutting) Put(ctx context.Context, key string, r io.Reader) error {
	if f := c.ask("put", key); f.part {
		if _, err := io.CopyN(io.Discard, r, 100<<10); err != nil {
			return err
		}
		return f.err
	}
	return c.Store.Put(ctx, key, r)
}

// TestUploadSaysItsSize: a store that uploads in parts needs it for a large fold.
func TestUploadSaysItsSize(t *testing.T) {
	h := &hooked{Store: memory(t)}
	e := export(t, spec{log: logA, rev: 5, fill: 5000})
	wantPublished(t, transportOn(t, h), e, liveAt(logA, 1, 5))
	if len(h.sizes) == 0 || h.sizes[0] != e.m.PackedSize() {
		t.Errorf("uploads of %d bytes, the payload has %d", h.sizes, e.m.PackedSize())
	}
}

func TestPackedGoesBackToItsBeginningOnly(t *testing.T) {
	e := export(t, spec{log: logA, rev: 5})
	var want bytes.Buffer
	must(t, artifact.Pack(bounded(t), e.dir, e.m, &want))
	p := &packed{ctx: bounded(t), dir: e.dir, m: e.m}
	if _, err := io.CopyN(io.Discard, p, 600); err != nil {
		t.Fatal(err)
	}
	if at, err := p.Seek(0, io.SeekCurrent); at != 600 || err != nil {
		t.Errorf("at %d, %v", at, err)
	}
	if _, err := p.Seek(5, io.SeekStart); err == nil {
		t.Error("went to the middle")
	}
	if _, err := p.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(p)
	if err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("read %d bytes of %d, %v", len(got), want.Len(), err)
	}
	must(t, p.Close())
	if _, err := p.Read(make([]byte, 1)); !errors.Is(err, errPackedClosed) {
		t.Errorf("a read after Close gave %v", err)
	}
}

// TestFleetRace: 16 exporters publish for 200 rounds, while prunes without a grace and downloads go on. Each change of the
// store is judged as it happens: the pointer never goes back and names what is there, and its target is never deleted.
func TestFleetRace(t *testing.T) {
	const writers, rounds = 16, 200
	all := make([]exported, rounds+4)
	for i := range all {
		all[i] = export(t, spec{log: logA, rev: uint64(i + 1), created: time.Unix(int64(1_700_000_000+i%3), 0)})
	}
	j := &judge{Store: memory(t), t: t}
	tr := transportOn(t, j)
	j.tr = tr
	live := liveAt(logA, 1, rounds+4)
	stop := make(chan struct{})
	var others, fleet sync.WaitGroup
	for range 2 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := tr.Prune(bounded(t), pruneOf(live)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			g, ok, err := tr.Pointer(bounded(t))
			if err == nil && ok {
				err = download(t, tr, g.Manifest)
			}
			if err != nil && !errors.Is(err, ErrGone) {
				t.Error(err)
			}
		}
	})
	for range writers {
		fleet.Go(func() {
			for r := range rounds {
				e := all[r+rand.N(4)]
				out, err := tr.Publish(bounded(t), e.dir, e.m, live)
				if errors.Is(err, ErrContended) {
					continue
				}
				if err != nil {
					t.Error(err)
				} else if !out.Published && out.By.Revision <= e.m.Rank() {
					t.Errorf("%d was superseded by %d", e.m.Rank(), out.By.Revision)
				}
			}
		})
	}
	fleet.Wait()
	close(stop)
	others.Wait()
	g, _, err := tr.Pointer(bounded(t))
	must(t, err)
	if j.swaps < rounds/2 || j.deleted < rounds/2 || g.Manifest.Rank() < rounds {
		t.Errorf("only %d publications and %d prunes, up to %s", j.swaps, j.deleted, g.Name)
	}
	must(t, download(t, tr, g.Manifest))
	if _, err := tr.Prune(bounded(t), pruneOf(live)); err != nil {
		t.Error(err)
	}
	wantWhole(t, tr)
	if left := keys(t, j.Store); len(left) != 3 {
		t.Errorf("left %q", left)
	}
}

// judge makes each change of a store one step, and checks it.
type judge struct {
	objects.Store
	t              *testing.T
	tr             *Transport
	mu             sync.Mutex
	rank           uint64
	swaps, deleted int
}

func (j *judge) SwapPointer(ctx context.Context, key string, value []byte, old objects.Token) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	m, err := artifact.Parse(value)
	if err != nil {
		j.t.Error(err)
	}
	if err = j.Store.SwapPointer(ctx, key, value, old); err != nil {
		return err
	}
	if m.Rank() < j.rank {
		j.t.Errorf("the pointer went back from %d to %d", j.rank, m.Rank())
	}
	j.rank = m.Rank()
	j.swaps++
	if body, _, err := j.Store.Get(ctx, j.tr.payloadKey(Name(m))); err != nil {
		j.t.Errorf("the pointer names %s: %v", Name(m), err)
	} else if err := body.Close(); err != nil {
		j.t.Error(err)
	}
	return nil
}

func (j *judge) Delete(ctx context.Context, key string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if raw, _, err := j.Store.ReadPointer(ctx, j.tr.pointerKey()); err == nil {
		if name := current(raw).Name; strings.Contains(key, name) {
			j.t.Errorf("delete %s, which the pointer names", key)
		}
	}
	if strings.HasSuffix(key, payloadSuffix) {
		j.deleted++
	}
	return j.Store.Delete(ctx, key)
}

func TestOptionsValidate(t *testing.T) {
	s := memory(t)
	for want, o := range map[string]Options{
		"no store":      {Key: "k"},
		"key":           {Store: s},
		"slashes":       {Store: s, Key: "a/b"},
		"bad key":       {Store: s, Key: ".fold-x"},
		"limit is 200":  {Store: s, Key: strings.Repeat("k", 190)},
		"limit is 900":  {Store: s, Prefix: strings.Repeat("p/", 440), Key: "k"},
		"empty":         {Store: s, Prefix: "a//b", Key: "k"},
		"control chara": {Store: s, Key: "k\x00"},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", fmt.Sprintf("%.40q", o.Key), err)
		}
	}
}
