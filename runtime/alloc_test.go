package fold_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	foldtestv1 "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1"
	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/store"
)

func allocs(t *testing.T, f func() error) float64 {
	t.Helper()
	var err error
	n := testing.AllocsPerRun(2000, func() {
		if e := f(); e != nil {
			err = e
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestReadAllocations: a read costs what its message's fields cost, and what the store itself needs.
func TestReadAllocations(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		log := newLog()
		setRoute(t, log, route("t", "a", "n1"))
		s := openStore(t, b, t.TempDir())
		tb := start(t, log, s, startOptions{routes: []fold.TableOption{fold.Resident()}})
		tb.hydrated(t)
		ctx, k := context.Background(), routeKey("t", "a")
		wire, err := proto.Marshal(route("t", "a", "n1"))
		if err != nil {
			t.Fatal(err)
		}
		dst := &foldtestv1.Route{}
		fields := allocs(t, func() error { return proto.Unmarshal(wire, dst) })
		message := allocs(t, func() error {
			sinkMessage = dst.ProtoReflect().Type().New().Interface()
			return nil
		})
		key := store.AppendKey(nil, store.SpaceData, k.String())
		var v store.Value
		own := allocs(t, func() error {
			_, err := s.Get(key, &v)
			v.Release()
			return err
		})
		if b.name == "logstore" && own != 0 {
			t.Errorf("a Get of the store allocates %v times", own)
		}
		for _, c := range []struct {
			name string
			want float64
			f    func() error
		}{
			{"Peek", 0, func() error { tb.routes.Peek(k); return nil }},
			{"Has", own, func() error { return second(tb.routes.Has(ctx, k)) }},
			{"GetInto", own + fields, func() error { return second(tb.routes.GetInto(ctx, k, dst)) }},
			{"Get", own + fields + message, func() error { _, _, err := tb.routes.Get(ctx, k); return err }},
			{"GetRow", own + fields + message, func() error { _, _, err := tb.routes.GetRow(ctx, k); return err }},
		} {
			got := allocs(t, c.f)
			t.Logf("%s: %v allocations, of them %v are the store's own", c.name, got, min(own, got))
			if got > c.want+poolSlack {
				t.Errorf("%s allocates %v times, at most %v: %v of the store, %v of the fields, %v of the message", c.name, got, c.want, own, fields, message)
			}
		}
	})
}

var sinkMessage proto.Message

// voidStore takes every batch and keeps only its cursor.
type voidStore struct {
	store.Store
	cursor atomic.Uint64
}

func (s *voidStore) Apply(_ context.Context, _ *store.Batch, c kv.Cursor) error {
	s.cursor.Store(c.Revision())
	return nil
}

func (s *voidStore) Cursor() kv.Cursor { return kv.CursorAt(s.cursor.Load()) }

// scriptedBucket is a bucket that is watched by a script.
type scriptedBucket struct {
	*kvtest.Log
	script *kvtest.Script
}

func (b scriptedBucket) Info(ctx context.Context) (kv.LogInfo, error) { return b.script.Info(ctx) }

func (b scriptedBucket) Open(ctx context.Context, req kv.OpenRequest) (kv.Watch, error) {
	return b.script.Open(ctx, req)
}

const (
	receiveTurns = 100
	receiveSize  = 1000
)

// deliveries are many updates of good routes, after a gate, and a first one that warms up.
func deliveries(t *testing.T, gate chan struct{}) *kvtest.Script {
	t.Helper()
	turns := []kvtest.Turn{{}}
	rev := uint64(0)
	for i := range receiveTurns + 20 {
		updates := make([]kv.Update, receiveSize)
		for j := range updates {
			m := route("t", fmt.Sprint(j), "n")
			b, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			rev++
			updates[j] = put(rev, routeKey(m.Tenant, m.Domain).String(), string(b))
		}
		turn := kvtest.Deliver(updates...)
		if i == 20 {
			turn.Wait = gate
		}
		turns = append(turns, turn)
	}
	return kvtest.NewScript(kv.LogInfo{}, kvtest.Opening{Turns: turns[1:]})
}

// mallocs counts all allocations of the process while f runs, divided by the updates that are delivered.
func mallocs(f func()) float64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / (receiveTurns * receiveSize)
}

// maxPerUpdate is what batches and segments may cost, spread over their updates.
const maxPerUpdate = 0.05

func TestReceiveAllocations(t *testing.T) {
	gate := make(chan struct{})
	b := fold.NewBuilder(scriptedBucket{Log: newLog(), script: deliveries(t, gate)}, &voidStore{Store: openStore(t, backends[0], t.TempDir())}, fold.Options{Logger: quiet})
	if _, err := ft.RegisterRoute(b); err != nil {
		t.Fatal(err)
	}
	f, err := b.Start(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := f.WaitApplied(bounded(t), fold.Seq(20*receiveSize)); err != nil {
		t.Fatal(err)
	}
	ctx := bounded(t)
	got := mallocs(func() {
		close(gate)
		err = f.WaitApplied(ctx, fold.Seq((20+receiveTurns)*receiveSize))
	})
	t.Logf("%.4f allocations an update", got)
	if st := f.Status(); err != nil || got > maxPerUpdate || st.Rejections != 0 {
		t.Errorf("%.3f allocations an update (%v, %d rejections)", got, err, st.Rejections)
	}
}

func TestWatchAppliedAllocations(t *testing.T) {
	gate, warm, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	ended := make(chan error, 1)
	c := fold.WatchConfig{Watcher: deliveries(t, gate), Logger: quiet, OnApplied: func(a fold.Applied) {
		switch a.Cursor.Revision() {
		case 20 * receiveSize:
			close(warm)
		case (20 + receiveTurns) * receiveSize:
			close(done)
		}
	}}
	go func() {
		_, err := fold.WatchApplied(ctx, c, func(u *kv.Update) (uint64, bool) { return u.Version.Rank(), true }, func(context.Context, []uint64) error { return nil })
		ended <- err
	}()
	<-warm
	got := mallocs(func() {
		close(gate)
		<-done
	})
	t.Logf("%.4f allocations an update", got)
	if got > maxPerUpdate {
		t.Errorf("%.3f allocations an update", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
