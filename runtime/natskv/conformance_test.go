package natskv_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/natskv"
	"github.com/typedfold/fold/runtime/protocol"
)

func TestConformance(t *testing.T) {
	kvtest.RunConformance(t, func(t *testing.T) kvtest.Target {
		return target(t, natskv.BucketConfig{MarkerTTL: time.Minute}, kvtest.Capabilities{TTL: true, AgeOut: true, PurgeMarkers: true})
	})
}

func TestConformanceOfAReferenceBucket(t *testing.T) {
	kvtest.RunConformance(t, func(t *testing.T) kvtest.Target {
		cfg := natskv.BucketConfig{EmptyPut: natskv.EmptyPutIsTombstone, MessageTTL: natskv.Off}
		return target(t, cfg, kvtest.Capabilities{EmptyPutIsTombstone: true, PurgeMarkers: true})
	})
}

func target(t *testing.T, cfg natskv.BucketConfig, can kvtest.Capabilities) kvtest.Target {
	r := newRig(t, cfg)
	return kvtest.Target{
		Bucket: r.bucket,
		Can:    can,
		Markers: protocol.MarkerRules{
			Purge: true, Rollup: true, MessageTTL: cfg.MarkerTTL > 0, MarkerTTL: cfg.MarkerTTL.Nanoseconds(),
		},
		Admin: kvtest.Admin{
			EvictTo: func(ctx context.Context, rev uint64) error {
				s, err := r.js.Stream(ctx, "KV_b")
				if err != nil {
					return err
				}
				return s.Purge(ctx, jetstream.WithPurgeSequence(rev))
			},
			Recreate: func(ctx context.Context) error {
				if err := r.js.DeleteStream(ctx, "KV_b"); err != nil {
					return err
				}
				_, err := natskv.Open(ctx, r.js, "b", cfg)
				return err
			},
			PutAgedOut: func(ctx context.Context, key string, value []byte) error {
				if _, err := r.bucket.Put(ctx, key, value, kv.PutOptions{TTL: time.Second}); err != nil {
					return err
				}
				return poll(ctx, func() (bool, error) {
					e, err := r.bucket.Entry(ctx, key)
					return e.Op == kv.OpAgedOut, err
				})
			},
			PurgeMarkers: func(ctx context.Context) error {
				bucket, err := r.js.KeyValue(ctx, "b")
				if err != nil {
					return err
				}
				return bucket.PurgeDeletes(ctx, jetstream.DeleteMarkersOlderThan(-1))
			},
		},
	}
}

// poll asks until done, within ctx.
func poll(ctx context.Context, done func() (bool, error)) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := done()
		if ok || err != nil && !errors.Is(err, kv.ErrKeyNotFound) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("not in time: %w", ctx.Err())
		}
	}
}
