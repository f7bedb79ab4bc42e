package natskv_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
)

// newCluster is three servers that replicate. They find each other through the first one.
func newCluster(t *testing.T) []*natstest.Server {
	t.Helper()
	var servers []*natstest.Server
	routes := []*url.URL{{Scheme: "nats-route", Host: "127.0.0.1:1"}} // nobody is there; a server without a route is no cluster
	for i := range 3 {
		s := natstest.New(t, natstest.Options{StartTimeout: 30 * time.Second, Tune: func(o *server.Options) {
			o.ServerName = fmt.Sprintf("s%d", i)
			o.Cluster = server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: server.RANDOM_PORT}
			o.Routes = routes
		}})
		servers = append(servers, s)
		routes = []*url.URL{{Scheme: "nats-route", Host: servers[0].Server().ClusterAddr().String()}}
	}
	return servers
}

// On a replicated bucket a batch is one step too, whichever server leads it, and has consecutive revisions.
func TestBatchOnAReplicatedBucket(t *testing.T) {
	servers := newCluster(t)
	nc, err := servers[0].Connect(nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var b *natskv.Bucket
	if err := poll(ctx, func() (bool, error) { // until the servers have found each other
		b, err = natskv.Open(ctx, js, "b", natskv.BucketConfig{Replicas: 3, Storage: jetstream.MemoryStorage, Timeout: 2 * time.Second})
		return err == nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	batch := puts("a", "b", "c")
	v, err := b.WriteBatch(ctx, batch)
	stored(t, b, v, err, batch)
	batch.Ops[1] = kv.BatchOp{Kind: kv.BatchUpdate, Key: "b", Value: []byte("2"), At: kv.Revision(v.Rank())} // of c
	_, err = b.WriteBatch(ctx, batch)
	var of *kv.BatchError
	if !errors.As(err, &of) || of.Index != 1 || !errors.Is(err, kv.ErrConflict) || last(t, b) != v.Rank() {
		t.Fatalf("%v", err)
	}
	batch.Ops[1].At = kv.Revision(v.Rank() - 1)
	tail := v.Rank()
	batch.Match = &tail
	v, err = b.WriteBatch(ctx, batch)
	stored(t, b, v, err, batch)

	if err := nc.Publish("$JS.API.STREAM.LEADER.STEPDOWN.KV_b", nil); err != nil {
		t.Fatal(err)
	}
	next := puts("x", "y")
	if err := poll(ctx, func() (bool, error) { // one that no leader takes is written by none
		var err error
		before, infoErr := b.Info(ctx)
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		v, err = b.WriteBatch(short, next)
		if err != nil {
			t.Logf("without a leader: %v", err)
		}
		if errors.Is(err, kv.ErrOutcomeUnknown) || infoErr != nil && err == nil {
			return err == nil, nil
		}
		if after, infoErr := b.Info(ctx); err != nil && infoErr == nil && after.Last != before.Last {
			return false, fmt.Errorf("revision %d after %w", after.Last, err)
		}
		return err == nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	stored(t, b, v, nil, next)
}
