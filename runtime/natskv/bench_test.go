package natskv_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
)

const benchMessages = 200_000

// BenchmarkWatch hydrates a bucket of 200,000 keys from an embedded server; allocs/msg counts those of the whole
// process, server included.
func BenchmarkWatch(b *testing.B) {
	r := benchRig(b)
	for b.Loop() {
		watchAll(b, r)
	}
	b.ReportMetric(float64(b.N)*benchMessages/b.Elapsed().Seconds(), "msg/s")
	perMessage(b, func() { watchAll(b, r) })
}

func watchAll(b *testing.B, r *rig) {
	w := r.watch(b, kv.OpenRequest{})
	d := kv.Delivery{Updates: make([]kv.Update, 0, 4096)}
	n := 0
	for d.Frontier < benchMessages {
		d.Updates = d.Updates[:0]
		var err error
		if d, err = w.Next(b.Context(), d, 4096, 4<<20); err != nil {
			b.Fatal(err)
		}
		n += len(d.Updates)
	}
	if n != benchMessages {
		b.Fatalf("%d updates, want %d", n, benchMessages)
	}
}

// BenchmarkRawPull is the floor: nats.go's own callback on the same consumer kind, counting messages only.
func BenchmarkRawPull(b *testing.B) {
	r := benchRig(b)
	for b.Loop() {
		rawPull(b, r)
	}
	b.ReportMetric(float64(b.N)*benchMessages/b.Elapsed().Seconds(), "msg/s")
	perMessage(b, func() { rawPull(b, r) })
}

func rawPull(b *testing.B, r *rig) {
	const batch = 5000
	name := nats.NewInbox()[len("_INBOX."):]
	create := fmt.Sprintf(`{"stream_name":"KV_b","config":{"name":%q,"deliver_policy":"last_per_subject","ack_policy":"none","filter_subject":"$KV.b.>","mem_storage":true,"num_replicas":1,"replay_policy":"instant"},"action":"create"}`, name)
	if _, err := r.nc.RequestWithContext(b.Context(), "$JS.API.CONSUMER.CREATE.KV_b."+name+".$KV.b.>", []byte(create)); err != nil {
		b.Fatal(err)
	}
	inbox, done, n := nats.NewInbox(), make(chan struct{}), 0
	pull := func() {
		if err := r.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.KV_b."+name, inbox, []byte(`{"batch":5000,"expires":30000000000}`)); err != nil {
			b.Error(err)
		}
	}
	sub, err := r.nc.Subscribe(inbox, func(m *nats.Msg) {
		if n++; n == benchMessages {
			close(done)
		} else if n%batch == 0 {
			pull()
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		b.Fatal(err)
	}
	pull()
	pull()
	<-done
	if err := sub.Unsubscribe(); err != nil {
		b.Fatal(err)
	}
}

func perMessage(b *testing.B, run func()) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/benchMessages, "allocs/msg")
}

func benchRig(b *testing.B) *rig {
	r := newRig(b, natskv.BucketConfig{})
	value := make([]byte, 140)
	for i := range benchMessages {
		if i%1000 == 999 {
			<-r.js.PublishAsyncComplete()
		}
		if _, err := r.js.PublishAsync(fmt.Sprintf("$KV.b.region.%06d.route", i), value); err != nil {
			b.Fatal(err)
		}
	}
	<-r.js.PublishAsyncComplete()
	return r
}

// BenchmarkBatch writes batches of puts, one after the other.
func BenchmarkBatch(b *testing.B) {
	for name, storage := range map[string]jetstream.StorageType{"file": jetstream.FileStorage, "memory": jetstream.MemoryStorage} {
		for _, n := range []int{2, 100, 1000} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				r := newRig(b, natskv.BucketConfig{Storage: storage})
				keys := make([]string, n)
				for i := range keys {
					keys[i] = fmt.Sprintf("k%d", i)
				}
				batch := puts(keys...)
				for b.Loop() {
					if _, err := r.bucket.WriteBatch(b.Context(), batch); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
