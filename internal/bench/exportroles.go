package main

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/zeebo/blake3"
	"google.golang.org/protobuf/proto"

	foldtestv1 "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1"
	"github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/natskv"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
	"github.com/typedfold/fold/runtime/store/pebblestore"
)

const (
	bucketHeavy = "heavy"
	heavyValue  = 1 << 10
	// leadIn is how many updates come before a checkpoint: what it has to flush.
	leadIn = 100
	// pebbleCheckpoints in a round are more than one: they are short, and a busy machine holds one up now and then.
	pebbleCheckpoints = 3
)

var exportRoles = map[string]func(context.Context, options, jetstream.JetStream) (result, error){
	"fill-heavy": fillHeavy,
	"live-export": func(ctx context.Context, o options, js jetstream.JetStream) (result, error) {
		return exportRole(ctx, o, js, openPebble, pebbleCheckpoints)
	},
	"live-export-log": func(ctx context.Context, o options, js jetstream.JetStream) (result, error) {
		o.artifacts = ""
		return exportRole(ctx, o, js, openLog, 1)
	},
}

func openPebble(dir string) (store.Store, error) {
	s, err := pebblestore.Open(dir, pebblestore.Options{})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func openLog(dir string) (store.Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s, err := logstore.Open(dir, logstore.Options{})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func heavyKeys(o options) int { return max(o.payload<<20/heavyValue, 2*leadIn) }

// heavyRoute is key number i with a value of heavyValue bytes, about, that do not compress well.
func heavyRoute(i int) (string, []byte, error) {
	m := &foldtestv1.Route{Tenant: fmt.Sprintf("t%08d", i/1000), Domain: fmt.Sprintf("d%08d", i), NodeId: base64.RawStdEncoding.EncodeToString(noise(i, heavyValue*3/4))}
	key, err := foldtestv1fold.RouteKey{Tenant: m.Tenant, Domain: m.Domain}.AppendKey(nil)
	if err != nil {
		return "", nil, err
	}
	value, err := proto.Marshal(m)
	return string(key), value, err
}

// noise is n bytes that don't compress, the same for the same seed.
func noise(seed, n int) []byte {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], uint64(seed))
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(b) // never fails
	return b
}

func fillHeavy(ctx context.Context, o options, js jetstream.JetStream) (result, error) {
	if _, err := natskv.Open(ctx, js, bucketHeavy, natskv.BucketConfig{}); err != nil {
		return result{}, err
	}
	n := heavyKeys(o)
	return publishTo(ctx, js, bucketHeavy, n, func(i int) (string, []byte, error) { return heavyRoute(fillOrder(n)(i)) })
}

// exporting is a live fold whose exports are measured.
type exporting struct {
	o  options
	js jetstream.JetStream
	s  *timed
	f  *fold.Fold
	// sent counts the updates that were published.
	sent  int
	times map[string][]float64
}

// exportRole measures, in turn: held, what an export of the fold keeps the next commit waiting while updates flow;
// checkpoint, the store's own; export, all of an export; parts, a checkpoint, a reading and hashing of its files, and an
// open. The artifact of the last round's fold is left in o.artifacts, where that is given.
func exportRole(ctx context.Context, o options, js jetstream.JetStream, open func(dir string) (store.Store, error), checkpoints int) (result, error) {
	m := startMeter()
	if err := os.Mkdir(o.dir, 0o700); err != nil {
		return result{}, err
	}
	s, err := open(filepath.Join(o.dir, "fold"))
	if err != nil {
		return result{}, err
	}
	x := &exporting{o: o, js: js, s: &timed{Store: s}, times: map[string][]float64{}}
	if err := x.start(ctx); err != nil {
		return result{}, errors.Join(err, s.Close())
	}
	err = x.rounds(ctx, checkpoints)
	if err == nil && o.artifacts != "" {
		_, err = x.f.Export(ctx, o.artifacts)
	}
	if err := errors.Join(err, x.f.Close()); err != nil {
		return result{}, err
	}
	r := m.done(heavyKeys(o))
	r.Times = x.times
	return r, nil
}

func (x *exporting) start(ctx context.Context) error {
	bucket, err := natskv.Bind(ctx, x.js, bucketHeavy, natskv.BucketConfig{})
	if err != nil {
		return err
	}
	b := fold.NewBuilder(bucket, x.s, fold.Options{Bucket: bucketName, Logger: slog.New(slog.DiscardHandler)})
	if _, err := foldtestv1fold.RegisterRoute(b); err != nil {
		return err
	}
	if x.f, err = b.Start(ctx); err != nil {
		return err
	}
	err = x.f.WaitHydrated(ctx)
	if err == nil {
		err = x.s.Settle(ctx)
	}
	if err != nil {
		return errors.Join(err, x.f.Close())
	}
	return nil
}

func (x *exporting) rounds(ctx context.Context, checkpoints int) error {
	short, whole := [2]func(context.Context) error{x.held, x.checkpoint}, [2]func(context.Context) error{x.export, x.parts}
	for i := range x.o.rounds {
		for j := range checkpoints {
			if err := inTurn(ctx, short, i+j); err != nil {
				return err
			}
		}
		if err := inTurn(ctx, whole, i); err != nil {
			return err
		}
	}
	return nil
}

// inTurn runs both, in an order that changes with i.
func inTurn(ctx context.Context, pair [2]func(context.Context) error, i int) error {
	for n := range pair {
		if err := pair[(n+i)%2](ctx); err != nil {
			return err
		}
	}
	return nil
}

func (x *exporting) took(name string, d time.Duration) {
	x.times[name] = append(x.times[name], d.Seconds())
}

// held exports while updates flow, and takes from the store's calls how long none was applied.
func (x *exporting) held(ctx context.Context) error {
	return x.in("held", func(dir string) error {
		flow := x.flow(ctx)
		if err := flow.reach(ctx, leadIn); err != nil {
			return errors.Join(err, flow.end())
		}
		x.s.watch()
		_, err := x.f.Export(ctx, dir)
		err = errors.Join(err, flow.end())
		if err == nil {
			err = x.applied(ctx)
		}
		if err != nil {
			return err
		}
		held, ok := x.s.held()
		if !ok {
			return errors.New("no update was applied on either side of the checkpoint")
		}
		x.took("held", held)
		return nil
	})
}

// checkpoint has the store export after as many updates as held did, with none under way.
func (x *exporting) checkpoint(ctx context.Context) error {
	return x.in("checkpoint", func(dir string) error {
		flow := x.flow(ctx)
		err := errors.Join(flow.reach(ctx, leadIn), flow.end())
		if err == nil {
			err = x.applied(ctx)
		}
		if err != nil {
			return err
		}
		from := time.Now()
		err = x.s.Store.Export(ctx, dir)
		x.took("checkpoint", time.Since(from))
		return err
	})
}

func (x *exporting) export(ctx context.Context) error {
	return x.in("export", func(dir string) error {
		from := time.Now()
		_, err := x.f.Export(ctx, dir)
		x.took("export", time.Since(from))
		return err
	})
}

func (x *exporting) parts(ctx context.Context) error {
	return x.in("parts", func(dir string) error {
		from := time.Now()
		if err := x.s.Store.Export(ctx, dir); err != nil {
			return err
		}
		if err := hashFiles(dir); err != nil {
			return err
		}
		s, err := x.s.Kind().Open(dir)
		if err == nil {
			err = s.Close()
		}
		x.took("parts", time.Since(from))
		return err
	})
}

// in gives f the name of a folder that is not there, and removes it afterwards.
func (x *exporting) in(name string, f func(dir string) error) error {
	syncDisk()
	dir := filepath.Join(x.o.dir, name)
	err := errors.Join(f(dir), os.RemoveAll(dir))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// hashFiles reads and hashes all files in a folder.
func hashFiles(dir string) error {
	buf := make([]byte, 1<<20)
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		h := blake3.New()
		_, err = io.CopyBuffer(h, struct{ io.Reader }{f}, buf)
		h.Sum(nil)
		return errors.Join(err, f.Close())
	})
}

// flowing publishes 1,000 updates a second until its end.
type flowing struct {
	sent chan struct{} // one for each update, up to leadIn
	stop context.CancelFunc
	over chan error
}

func (x *exporting) flow(ctx context.Context) *flowing {
	ctx, stop := context.WithCancel(ctx)
	w := &flowing{sent: make(chan struct{}, leadIn), stop: stop, over: make(chan error, 1)}
	go func() { w.over <- x.publish(ctx, w.sent) }()
	return w
}

func (x *exporting) publish(ctx context.Context, sent chan<- struct{}) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		k, v, err := heavyRoute(x.sent % heavyKeys(x.o))
		if err == nil {
			err = x.js.Conn().Publish("$KV."+bucketHeavy+"."+k, v)
		}
		if err != nil {
			return err
		}
		x.sent++
		select {
		case sent <- struct{}{}:
		default:
		}
	}
}

func (w *flowing) reach(ctx context.Context, n int) error {
	for range n {
		select {
		case <-w.sent:
		case err := <-w.over:
			w.over <- nil
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (w *flowing) end() error {
	w.stop()
	return <-w.over
}

// applied waits until the fold has all that was published.
func (x *exporting) applied(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return x.f.WaitApplied(ctx, fold.Seq(uint64(heavyKeys(x.o)+x.sent)))
}

// timed is a store that notes when it was called.
type timed struct {
	store.Store
	mu       sync.Mutex
	applies  []span
	exported span
}

type span struct{ from, to time.Time }

// watch forgets all calls but the last Apply.
func (t *timed) watch() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.applies = append([]span(nil), t.applies[max(0, len(t.applies)-1):]...)
}

func (t *timed) Apply(ctx context.Context, b *store.Batch, c fold.Cursor) error {
	from := time.Now()
	err := t.Store.Apply(ctx, b, c)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.applies = append(t.applies, span{from, time.Now()})
	return err
}

func (t *timed) Export(ctx context.Context, dir string) error {
	from := time.Now()
	err := t.Store.Export(ctx, dir)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.exported = span{from, time.Now()}
	return err
}

func (t *timed) held() (time.Duration, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return heldBy(t.exported, t.applies)
}

// heldBy is how long no Apply ran around an export: from the end of the last one before it to the beginning of the next.
func heldBy(export span, applies []span) (time.Duration, bool) {
	var before, after time.Time
	for _, a := range applies {
		switch {
		case !a.to.After(export.from):
			before = a.to
		case a.from.Before(export.to):
			return 0, false // at once
		case after.IsZero():
			after = a.from
		}
	}
	return after.Sub(before), !before.IsZero() && !after.IsZero()
}
