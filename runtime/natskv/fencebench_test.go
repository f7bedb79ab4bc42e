package natskv_test

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
	"github.com/typedfold/fold/runtime/protocol"
)

// BenchmarkFencedWrite is what a write costs with the check of a fence record and without, one at a time. A put has room for
// the check in its message; an update asks for its key's revision there, so that with a fence it is a batch of two.
func BenchmarkFencedWrite(b *testing.B) {
	for _, storage := range []jetstream.StorageType{jetstream.MemoryStorage, jetstream.FileStorage} {
		b.Run(storage.String(), func(b *testing.B) {
			r := newRig(b, natskv.BucketConfig{Storage: storage})
			benchFence(b, r.bucket)
		})
	}
	b.Run("Replicas", func(b *testing.B) {
		c := natstest.NewCluster(b, 3)
		nc, err := c.Connect(0)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		if err != nil {
			b.Fatal(err)
		}
		bucket, err := natskv.Open(b.Context(), js, "b", natskv.BucketConfig{Replicas: 3, Storage: jetstream.FileStorage})
		if err != nil {
			b.Fatal(err)
		}
		benchFence(b, bucket)
	})
}

func benchFence(b *testing.B, bucket *natskv.Bucket) {
	end, err := bucket.InstallFence(b.Context(), "a")
	if err != nil {
		b.Fatal(err)
	}
	value := make([]byte, 128)
	for _, fence := range []uint64{0, end.Rank() - (protocol.FenceKeys - 1)} {
		name := "plain"
		if fence != 0 {
			name = "fenced"
		}
		put := kv.PutOptions{Fence: fence}
		b.Run("put/"+name, func(b *testing.B) {
			n := 0
			for b.Loop() {
				if _, err := bucket.Put(b.Context(), fmt.Sprintf("k.%d", n%1000), value, put); err != nil {
					b.Fatal(err)
				}
				n++
			}
		})
		b.Run("update/"+name, func(b *testing.B) {
			v, err := bucket.Put(b.Context(), "row", value, put)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if v, err = bucket.Update(b.Context(), "row", value, v, put); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("fence", func(b *testing.B) {
		for b.Loop() {
			if _, err := bucket.InstallFence(b.Context(), "a"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
