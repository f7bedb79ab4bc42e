package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
	"github.com/typedfold/fold/runtime/repair"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/pebblestore"
)

// changedNode begins the node of each changed value.
const changedNode = 'c'

// changes is how many keys change: one in a hundred. Every other one of them is deleted.
func changes(keys int) int { return keys / 100 / 2 * 2 }

var repairRoles = map[string]func(context.Context, options, jetstream.JetStream) (result, error){
	"fill-bucket":         fillBucket,
	"change-bucket":       changeBucket,
	"evict":               evict,
	"old-fold":            oldFold,
	"export":              export,
	"copy":                copyFold,
	"copy-without-cursor": copyWithoutCursor,
	"hydrate": func(ctx context.Context, o options, js jetstream.JetStream) (result, error) {
		return repairRole(ctx, o, js, repair.Options{}, "")
	},
	"relist": func(ctx context.Context, o options, js jetstream.JetStream) (result, error) {
		return repairRole(ctx, o, js, repair.Options{}, "relist")
	},
	"restore": func(ctx context.Context, o options, js jetstream.JetStream) (result, error) {
		source := &artifact.LocalSource{Dir: o.artifacts, Scratch: scratch(o), Artifact: artifact.Options{Kinds: []store.Kind{pebblestore.Kind()}}}
		return repairRole(ctx, o, js, repair.Options{Source: source}, "restore")
	},
}

func fillBucket(ctx context.Context, o options, js jetstream.JetStream) (result, error) {
	if _, err := natskv.Open(ctx, js, o.bucket, natskv.BucketConfig{}); err != nil {
		return result{}, err
	}
	at := fillOrder(o.keys)
	return putMany(ctx, o, js, o.keys, func(i int, m *nats.Msg) (err error) {
		m.Subject, m.Data, err = routeOf(at(i), '0')
		return err
	})
}

// changeBucket writes half of the keys that change anew, and deletes the others.
func changeBucket(ctx context.Context, o options, js jetstream.JetStream) (result, error) {
	at := changeOrder(o.keys)
	return putMany(ctx, o, js, changes(o.keys), func(i int, m *nats.Msg) (err error) {
		m.Subject, m.Data, err = routeOf(at(i), changedNode)
		if i%2 == 1 {
			m.Data, m.Header = nil, nats.Header{"KV-Operation": []string{"DEL"}}
		}
		return err
	})
}

// ackEvery is how many messages of putMany share an acknowledgement; two of them are in flight.
const ackEvery = 1000

// putMany publishes n messages to o's bucket, waits for all of them to be stored, and tells how far it is. Only some ask
// for an acknowledgement, whose revision shows that those before are stored too: nobody else writes. next fills in a
// message, with the key as its subject.
func putMany(ctx context.Context, o options, js jetstream.JetStream, n int, next func(i int, m *nats.Msg) error) (result, error) {
	s, err := js.Stream(ctx, "KV_"+o.bucket)
	if err != nil {
		return result{}, err
	}
	base := s.CachedInfo().State.LastSeq
	m := startMeter()
	told := time.Now()
	var before jetstream.PubAckFuture
	for i := range n {
		var msg nats.Msg
		if err := next(i, &msg); err != nil {
			return result{}, err
		}
		msg.Subject = "$KV." + o.bucket + "." + msg.Subject
		if (i+1)%ackEvery != 0 && i != n-1 {
			if err := js.Conn().PublishMsg(&msg); err != nil {
				return result{}, err
			}
			continue
		}
		ack, err := js.PublishMsgAsync(&msg)
		if err != nil {
			return result{}, err
		}
		if before != nil {
			if err := acked(ctx, before, base+uint64(i/ackEvery*ackEvery)); err != nil {
				return result{}, err
			}
		}
		before = ack
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			fmt.Fprintf(os.Stderr, "  %s: %d of %d\n", o.bucket, i+1, n)
		}
	}
	if err := acked(ctx, before, base+uint64(n)); err != nil {
		return result{}, err
	}
	return m.done(n), nil
}

// acked waits for an acknowledgement, which must be of this revision.
func acked(ctx context.Context, f jetstream.PubAckFuture, want uint64) error {
	select {
	case ack := <-f.Ok():
		if ack.Sequence != want {
			return fmt.Errorf("the bucket stored a message as revision %d, want %d: it dropped some", ack.Sequence, want)
		}
		return nil
	case err := <-f.Err():
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// evict lets the bucket drop its oldest messages until it has fewer than the changes: its first revision is then past
// every cursor from before the changes, and at or before one from after them.
func evict(ctx context.Context, o options, js jetstream.JetStream) (result, error) {
	m := startMeter()
	s, err := js.Stream(ctx, "KV_"+o.bucket)
	if err != nil {
		return result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute) // the server answers when it has dropped them
	defer cancel()
	cfg := s.CachedInfo().Config
	cfg.Discard, cfg.MaxMsgs = jetstream.DiscardOld, int64(changes(o.keys)*3/4)
	if s, err = js.UpdateStream(ctx, cfg); err != nil {
		return result{}, err
	}
	info, err := s.Info(ctx)
	if err != nil {
		return result{}, err
	}
	if first := info.State.FirstSeq; first <= uint64(o.keys)+1 {
		return result{}, fmt.Errorf("the bucket begins at revision %d, no later than the cursor %d", first, o.keys)
	}
	return m.done(o.keys), nil
}

// routes is a fold of routes.
type routes struct {
	*fold.Fold
	table foldtestv1fold.RouteTable
}

// startRoutes starts a fold in o.dir. Nothing is audited meanwhile.
func startRoutes(ctx context.Context, o options, js jetstream.JetStream, ro repair.Options, events fold.Events) (*routes, error) {
	bucket, err := natskv.Bind(ctx, js, o.bucket, natskv.BucketConfig{})
	if err != nil {
		return nil, err
	}
	s, err := pebblestore.Open(o.dir, pebblestore.Options{})
	if err != nil {
		return nil, err
	}
	ro.AuditEvery = -1
	b := fold.NewBuilder(bucket, s, fold.Options{
		Bucket: bucketName, Repair: ro, Events: events, Logger: slog.New(slog.DiscardHandler), Batch: fold.BatchOptions{BulkMax: o.bulk},
	})
	r := &routes{}
	if r.table, err = foldtestv1fold.RegisterRoute(b); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if r.Fold, err = b.Start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return r, nil
}

// caughtUp waits until the fold has everything, and says up to where.
func (r *routes) caughtUp(ctx context.Context) error {
	if err := r.WaitHydrated(ctx); err != nil {
		return err
	}
	return r.WaitApplied(ctx, fold.Seq(r.Status().Head))
}

// oldFold hydrates the fold that the repairs begin with.
func oldFold(ctx context.Context, o options, js jetstream.JetStream) (result, error) {
	m := startMeter()
	r, err := startRoutes(ctx, o, js, repair.Options{}, fold.Events{})
	if err != nil {
		return result{}, err
	}
	if err := errors.Join(r.caughtUp(ctx), r.Close()); err != nil {
		return result{}, err
	}
	return m.done(o.keys), settled(ctx, o.dir)
}

// settled leaves a store as it is some time after a hydrate.
func settled(ctx context.Context, dir string) error {
	s, err := pebblestore.Open(dir, pebblestore.Options{})
	if err != nil {
		return err
	}
	return errors.Join(s.Settle(ctx), s.Close())
}

// export brings a fold up to date and leaves an artifact.
func export(ctx context.Context, o options, js jetstream.JetStream) (result, error) {
	m := startMeter()
	r, err := startRoutes(ctx, o, js, repair.Options{}, fold.Events{})
	if err != nil {
		return result{}, err
	}
	err = r.caughtUp(ctx)
	if err == nil {
		err = os.MkdirAll(o.artifacts, 0o700)
	}
	if err == nil {
		_, err = r.Export(ctx, filepath.Join(o.artifacts, "newest"))
	}
	if err := errors.Join(err, r.Close()); err != nil {
		return result{}, err
	}
	return m.done(changes(o.keys)), nil
}

func copyFold(ctx context.Context, o options, _ jetstream.JetStream) (result, error) {
	m := startMeter()
	s, err := pebblestore.Open(o.from, pebblestore.Options{})
	if err != nil {
		return result{}, err
	}
	if err := errors.Join(s.Export(ctx, o.dir), s.Close()); err != nil {
		return result{}, err
	}
	return m.done(o.keys), nil
}

// copyWithoutCursor takes the cursor from the copy, as an import that can't keep it does.
func copyWithoutCursor(ctx context.Context, o options, js jetstream.JetStream) (result, error) {
	r, err := copyFold(ctx, o, js)
	if err != nil {
		return result{}, err
	}
	s, err := pebblestore.Open(o.dir, pebblestore.Options{})
	if err != nil {
		return result{}, err
	}
	return r, errors.Join(s.Apply(ctx, &store.Batch{}, kv.Cursor{}), s.Close())
}

// scratch is the folder for a repair's temporary files, on the disk of everything else.
func scratch(o options) string { return o.artifacts + ".scratch" }

// repairRole starts the fold in o.dir and measures until it has everything. plan is the repair that it must have done;
// "" is none.
func repairRole(ctx context.Context, o options, js jetstream.JetStream, ro repair.Options, plan string) (result, error) {
	debug.SetMemoryLimit(int64(o.memory) << 20)
	repaired := make(chan *repairPart, 1)
	events := fold.Events{RepairDone: func(r *fold.RepairReport) {
		select {
		case repaired <- &repairPart{Seconds: r.Ended.Sub(r.Began).Seconds(), PeakMB: peakMB(), Deleted: r.Deleted, Put: r.Put}:
		default: // a second one is what check refuses
		}
	}}
	ro.Scratch = scratch(o)
	if err := os.MkdirAll(ro.Scratch, 0o700); err != nil {
		return result{}, err
	}
	stop, err := watchHeap(o)
	if err != nil {
		return result{}, err
	}
	m := startMeter()
	r, err := startRoutes(ctx, o, js, ro, events)
	if err != nil {
		return result{}, err
	}
	err = r.caughtUp(ctx)
	out := m.done(o.keys)
	var stopErr error
	out.HeapMB, stopErr = stop()
	if err = errors.Join(err, stopErr); err == nil {
		err = r.check(ctx, o, plan)
	}
	if err := errors.Join(err, r.Close()); err != nil {
		return result{}, err
	}
	if plan != "" {
		out.Repair = <-repaired
	}
	return out, nil
}

// check refuses a fold that is not what it must be after the changes, or came there in another way.
func (r *routes) check(ctx context.Context, o options, plan string) error {
	did, puts, deletes := "", uint64(0), uint64(0)
	if report := r.Status().Repair; report != nil {
		did, puts, deletes = report.Plan, report.Put, report.Deleted
	}
	half := uint64(changes(o.keys) / 2)
	wantPuts := map[string]uint64{"restore": half}[plan]
	wantDeletes := map[string]uint64{"relist": half, "restore": half}[plan]
	if did != plan || puts != wantPuts || deletes != wantDeletes {
		return fmt.Errorf("plan %q with %d puts and %d deletes, want %q with %d and %d", did, puts, deletes, plan, wantPuts, wantDeletes)
	}
	n, err := r.table.Count(ctx, foldtestv1fold.RouteAll())
	if err != nil {
		return err
	}
	if want := uint64(o.keys) - half; n != want {
		return fmt.Errorf("%d rows, want %d", n, want)
	}
	return r.checkChanged(ctx, o)
}

// checkChanged reads every changed key.
func (r *routes) checkChanged(ctx context.Context, o options) error {
	at := changeOrder(o.keys)
	for i := range changes(o.keys) {
		key, _, err := routeOf(at(i), changedNode)
		if err != nil {
			return err
		}
		k, err := foldtestv1fold.ParseRouteKey(key)
		if err != nil {
			return err
		}
		row, ok, err := r.table.Get(ctx, k)
		if err != nil {
			return err
		}
		if deleted := i%2 == 1; ok == deleted || ok && row.NodeId[0] != changedNode {
			return fmt.Errorf("key %s, change %d, is there: %v, with node %.8q", key, i, ok, row.GetNodeId())
		}
	}
	return nil
}
