package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	foldtestv1 "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1"
	"github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	"github.com/typedfold/fold/internal/foldtest/gen/indexed/v1/indexedv1fold"
	"github.com/typedfold/fold/internal/natstest"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/natskv"
	"github.com/typedfold/fold/runtime/store/pebblestore"
)

const bucketName = "test"

// runRole is a child's main.
func runRole(ctx context.Context, o options) error {
	if o.role == "server" {
		return serve(o)
	}
	if role, ok := localRoles[o.role]; ok {
		return measured(o, func() (result, error) { return role(ctx, o) })
	}
	nc, err := nats.Connect(o.url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	roles := map[string]func(context.Context, options, jetstream.JetStream) (result, error){
		"fill":     fill,
		"update":   update,
		"push":     barePush,
		"pull":     barePull,
		"watchall": watchAll,
		"fold": func(ctx context.Context, o options, js jetstream.JetStream) (result, error) {
			return foldRole(ctx, o, js)
		},
		"fold-hooks": func(ctx context.Context, o options, js jetstream.JetStream) (result, error) {
			h := foldtestv1fold.RouteHookFuncs{Apply: func(context.Context, []foldtestv1fold.RouteEvent) error { return nil }}
			return foldRole(ctx, o, js, foldtestv1fold.WithRouteHooks(h))
		},
		"fold-resident": func(ctx context.Context, o options, js jetstream.JetStream) (result, error) {
			return foldRole(ctx, o, js, fold.Resident())
		},
		"fold-index-1": func(ctx context.Context, o options, js jetstream.JetStream) (result, error) {
			return foldTable(ctx, o, js, "one", func(b *fold.Builder) error { _, err := indexedv1fold.RegisterRouteOne(b); return err })
		},
		"fold-index-3": func(ctx context.Context, o options, js jetstream.JetStream) (result, error) {
			return foldTable(ctx, o, js, "three", func(b *fold.Builder) error { _, err := indexedv1fold.RegisterRouteThree(b); return err })
		},
		"greedy": func(ctx context.Context, o options, js jetstream.JetStream) (result, error) {
			return latency(ctx, o, js, fold.BatchOptions{})
		},
		"window": func(ctx context.Context, o options, js jetstream.JetStream) (result, error) {
			return latency(ctx, o, js, fold.SeedWindow())
		},
	}
	maps.Copy(roles, repairRoles)
	maps.Copy(roles, exportRoles)
	role, ok := roles[o.role]
	if !ok {
		return fmt.Errorf("no role %q", o.role)
	}
	return measured(o, func() (result, error) { return role(ctx, o, js) })
}

// localRoles need no server.
var localRoles = map[string]func(context.Context, options) (result, error){
	"transfer":    transferRole,
	"big-fill":    bigFill,
	"big-export":  bigExport,
	"big-publish": bigPublish,
	"big-import":  bigImport,
	"big-digest":  bigDigest,
}

// measured runs a role and writes down what it says.
func measured(o options, role func() (result, error)) error {
	stop, err := profile(o)
	if err != nil {
		return err
	}
	r, err := role()
	if stopErr := stop(); err == nil {
		err = stopErr
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// profile begins a CPU profile when the flags ask for one.
func profile(o options) (stop func() error, err error) {
	if o.profile == "" {
		return func() error { return nil }, nil
	}
	f, err := os.CreateTemp(o.profile, o.role+"-*.pprof")
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// serve runs the server until standard input ends.
func serve(o options) error {
	s, err := natstest.Start(natstest.Options{StoreDir: o.dir})
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(s.URL()); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return s.Shutdown()
}

// routeOf is key number i, of 25 bytes, and its value, of 200 bytes encoded.
func routeOf(i int, node byte) (string, []byte, error) {
	m := &foldtestv1.Route{Tenant: fmt.Sprintf("t%08d", i/1000), Domain: fmt.Sprintf("d%08d", i), Port: 8080}
	pad := make([]byte, 200)
	for j := range pad {
		pad[j] = 'a' + byte(i*7919+j*31)%26
	}
	pad[0] = node
	m.NodeId = string(pad[:200-proto.Size(m)-3])
	key, err := foldtestv1fold.RouteKey{Tenant: m.Tenant, Domain: m.Domain}.AppendKey(nil)
	if err != nil {
		return "", nil, err
	}
	value, err := proto.Marshal(m)
	return string(key), value, err
}

func fill(ctx context.Context, o options, js jetstream.JetStream) (result, error) {
	if _, err := natskv.Open(ctx, js, bucketName, natskv.BucketConfig{}); err != nil {
		return result{}, err
	}
	return publish(ctx, js, o.keys, fillOrder(o.keys), '0')
}

// fillOrder spreads the keys over a bucket.
func fillOrder(keys int) func(int) int { return func(n int) int { return n * 7919 % keys } }

// changeOrder is another one.
func changeOrder(keys int) func(int) int { return func(n int) int { return n * 104729 % keys } }

// update changes keys spread over the bucket.
func update(ctx context.Context, o options, js jetstream.JetStream) (result, error) {
	return publish(ctx, js, o.behind, changeOrder(o.keys), byte('1'+time.Now().UnixNano()%40))
}

// publish puts n values with many in flight, and waits for all of them to be stored.
func publish(ctx context.Context, js jetstream.JetStream, n int, key func(int) int, node byte) (result, error) {
	return publishTo(ctx, js, bucketName, n, func(i int) (string, []byte, error) { return routeOf(key(i), node) })
}

func publishTo(ctx context.Context, js jetstream.JetStream, bucket string, n int, of func(i int) (string, []byte, error)) (result, error) {
	async, err := jetstream.New(js.Conn(), jetstream.WithPublishAsyncMaxPending(4096))
	if err != nil {
		return result{}, err
	}
	m := startMeter()
	for i := range n {
		k, v, err := of(i)
		if err != nil {
			return result{}, err
		}
		if _, err := async.PublishAsync("$KV."+bucket+"."+k, v, jetstream.WithStallWait(time.Minute)); err != nil {
			return result{}, err
		}
	}
	select {
	case <-async.PublishAsyncComplete():
	case <-ctx.Done():
		return result{}, ctx.Err()
	}
	return m.done(n), nil
}

// foldRole hydrates, or catches up, a fold in Pebble; it ends when everything that was there is committed.
func foldRole(ctx context.Context, o options, js jetstream.JetStream, opts ...fold.TableOption) (result, error) {
	return foldTable(ctx, o, js, bucketName, func(b *fold.Builder) error { _, err := foldtestv1fold.RegisterRoute(b, opts...); return err })
}

// foldTable is foldRole with the table of another logical bucket.
func foldTable(ctx context.Context, o options, js jetstream.JetStream, logical string, register func(*fold.Builder) error) (result, error) {
	bucket, err := natskv.Bind(ctx, js, bucketName, natskv.BucketConfig{})
	if err != nil {
		return result{}, err
	}
	m := startMeter()
	s, err := pebblestore.Open(filepath.Join(o.dir, "fold"), pebblestore.Options{})
	if err != nil {
		return result{}, err
	}
	b := fold.NewBuilder(bucket, s, fold.Options{Bucket: logical, Logger: slog.New(slog.DiscardHandler), Batch: fold.BatchOptions{BulkMax: o.bulk}})
	if err := register(b); err != nil {
		return result{}, errors.Join(err, s.Close())
	}
	f, err := b.Start(ctx)
	if err != nil {
		return result{}, errors.Join(err, s.Close())
	}
	if err := f.WaitHydrated(ctx); err != nil {
		return result{}, errors.Join(err, f.Close())
	}
	r := m.done(int(f.Status().Updates))
	return r, f.Close()
}

// latency measures from publish to applied, at 1,000 updates a second.
func latency(ctx context.Context, o options, js jetstream.JetStream, batch fold.BatchOptions) (result, error) {
	bucket, err := natskv.Open(ctx, js, "live", natskv.BucketConfig{})
	if err != nil {
		return result{}, err
	}
	s, err := pebblestore.Open(filepath.Join(o.dir, "live"), pebblestore.Options{})
	if err != nil {
		return result{}, err
	}
	var times sent
	opts := fold.Options{Bucket: bucketName, Logger: slog.New(slog.DiscardHandler), Batch: batch, OnApplied: func(a fold.Applied) { times.applied(a.Cursor.Revision()) }}
	b := fold.NewBuilder(bucket, s, opts)
	if _, err := foldtestv1fold.RegisterRoute(b); err != nil {
		return result{}, errors.Join(err, s.Close())
	}
	f, err := b.Start(ctx)
	if err != nil {
		return result{}, errors.Join(err, s.Close())
	}
	defer func() { _ = f.Close() }()
	if err := f.WaitHydrated(ctx); err != nil {
		return result{}, err
	}
	times.base = f.Cursor().Revision()
	n := o.seconds * 1000
	times.at = make([]time.Time, 0, n)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := range n {
		<-tick.C
		k, v, err := routeOf(i%1000, 'x')
		if err != nil {
			return result{}, err
		}
		times.sends()
		if err := js.Conn().Publish("$KV.live."+k, v); err != nil {
			return result{}, err
		}
	}
	if err := f.WaitApplied(ctx, fold.Seq(times.base+uint64(n))); err != nil {
		return result{}, err
	}
	p50, p99 := times.percentiles()
	return result{Messages: n, Seconds: float64(o.seconds), P50: p50, P99: p99}, nil
}

// sent is when each update was published, by its revision after base.
type sent struct {
	mu   sync.Mutex
	base uint64
	at   []time.Time
	took []float64 // µs
}

func (s *sent) sends() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = append(s.at, time.Now())
}

func (s *sent) applied(rev uint64) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.base > 0 || rev > 0 {
		next := len(s.took)
		if next >= len(s.at) || s.base+uint64(next)+1 > rev {
			return
		}
		s.took = append(s.took, float64(now.Sub(s.at[next]).Nanoseconds())/1e3)
	}
}

func (s *sent) percentiles() (p50, p99 float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return quantile(s.took, 0.5), quantile(s.took, 0.99)
}
