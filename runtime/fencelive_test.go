package fold_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	foldtestv1 "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1"
	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	"github.com/typedfold/fold/internal/natstest"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
)

// fenceRig is a bucket of one kind, with a history that keeps what is overwritten, so that a test can read it all.
type fenceRig struct {
	name    string
	bucket  func(*testing.T) fold.Bucket // another connection each time
	js      jetstream.JetStream
	disturb func() // gives the log another leader; nil where it has one for good
}

func eachFenceRig(t *testing.T, f func(t *testing.T, r *fenceRig)) {
	for _, storage := range []jetstream.StorageType{jetstream.MemoryStorage, jetstream.FileStorage} {
		t.Run("one server, "+strings.ToLower(storage.String()), func(t *testing.T) {
			srv := natstest.New(t)
			cfg := natskv.BucketConfig{Storage: storage, History: 64}
			r := &fenceRig{name: storage.String(), js: connect(t, srv.URL(), natskv.ConnectOptions{})}
			r.bucket = func(t *testing.T) fold.Bucket {
				return openBucket(t, connect(t, srv.URL(), natskv.ConnectOptions{}), cfg)
			}
			f(t, r)
		})
	}
	t.Run("three servers", func(t *testing.T) {
		c := natstest.NewCluster(t, 3)
		cfg := natskv.BucketConfig{Storage: jetstream.MemoryStorage, History: 64, Replicas: 3, Timeout: 5 * time.Second}
		r := &fenceRig{name: "cluster", js: connect(t, c.Servers[0].URL(), natskv.ConnectOptions{})}
		var next atomic.Uint32
		r.bucket = func(t *testing.T) fold.Bucket {
			srv := c.Servers[int(next.Add(1))%len(c.Servers)]
			return openBucket(t, connect(t, srv.URL(), natskv.ConnectOptions{}), cfg)
		}
		r.disturb = func() { _ = c.StepDown("KV_test") } // it may have no leader right now
		f(t, r)
	})
}

// A logged is one message of the log.
type logged struct {
	seq   uint64
	key   string
	value string // a row's node; of the fence's first key the token
}

// scan reads the whole log, in order.
func (r *fenceRig) scan(t *testing.T) (all []logged) {
	t.Helper()
	ctx := bounded(t)
	s, err := r.js.Stream(ctx, "KV_test")
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		t.Fatal(err)
	}
	it, err := consumer.Messages()
	if err != nil {
		t.Fatal(err)
	}
	defer it.Stop()
	for len(all) == 0 || all[len(all)-1].seq < info.State.LastSeq {
		msg, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			t.Fatal(err)
		}
		one := logged{seq: meta.Sequence.Stream, key: strings.TrimPrefix(msg.Subject(), "$KV.test.")}
		switch {
		case one.key == kv.FenceKey(0):
			rec, err := kv.ReadFenceRecord("test", &kv.Entry{Update: kv.Update{Op: kv.OpPut, Value: msg.Data()}})
			if err != nil {
				t.Fatal(err)
			}
			one.value = rec.Token
		case !kv.Reserved(one.key):
			row, rej := ft.ParseRoute(fold.RawEntry{Key: one.key, Value: msg.Data(), Op: kv.OpPut, Version: kv.Revision(one.seq)})
			if rej != nil {
				t.Fatal(rej)
			}
			one.value = row.New.GetNodeId()
		}
		all = append(all, one)
	}
	return all
}

// scribe writes rows of its own under one token, in every way, and notes what came of each.
type scribe struct {
	bucket fold.Bucket
	w      ft.RouteWriter
	token  string
	prefix string

	mu     sync.Mutex
	acked  map[string]uint64 // by the value
	denied map[string]bool
	unsure int
	out    int // refusals by the fence
	odd    int // spurious ones
	errs   []error
}

func (s *scribe) note(value string, rev uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.acked[value] = rev
		return
	case errors.Is(err, fold.ErrOutcomeUnknown):
		s.unsure++
		return
	case errors.Is(err, fold.ErrFencedOut):
		s.out++
		var of *fold.FencedError
		if !errors.As(err, &of) || of.Installed == s.token || of.Presented != s.token {
			s.errs = append(s.errs, err)
		}
	case errors.Is(err, fold.ErrNotWritten):
		s.odd++
	}
	s.denied[value] = true // whatever else it is, it says that nothing was stored
}

// write writes one value, as often as rows has rows.
func (s *scribe) write(ctx context.Context, n int, r *rand.Rand) {
	w := s.w
	value := fmt.Sprintf("%s/%s-%d", s.token, s.prefix, n)
	row := func(i int) *foldtestv1.Route { return route("t", fmt.Sprintf("%s-%d-%d", s.prefix, n, i), value) }
	switch r.IntN(4) {
	case 0:
		rev, err := w.Put(ctx, row(0))
		s.note(value, rev.Seq(), err)
	case 1:
		rev, err := w.Create(ctx, row(0))
		s.note(value, rev.Seq(), err)
	case 2:
		b := fold.NewBatch(s.bucket)
		w.PutIn(b, row(0))
		w.CreateIn(b, row(1))
		err := b.Commit(ctx)
		s.note(value, b.Revision().Seq(), err)
	default:
		b := fold.NewBatch(s.bucket)
		w.CreateIn(b, row(0))
		w.CreateIn(b, row(1))
		err := b.Commit(ctx)
		s.note(value, b.Revision().Seq(), err)
	}
}

// TestFencedLog: whatever races, no message lies in the log under another token than its writer presented, what was
// acknowledged is there and what was refused is not. A Fence answers the end of its own record, so nothing of a token before
// is above it. It is the log that is read, and not what the clients were told.
func TestFencedLog(t *testing.T) {
	eachFenceRig(t, func(t *testing.T, r *fenceRig) {
		const generations, writers, each = 5, 4, 20
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		first := r.bucket(t)
		fenced(t, first, "g0")
		var scribes []*scribe
		for range writers {
			scribes = append(scribes, nil)
		}
		tails := map[string]uint64{}
		var all []*scribe
		var old sync.WaitGroup
		seed := historySeed(t)
		buckets := make([]fold.Bucket, writers)
		for i := range buckets {
			buckets[i] = r.bucket(t)
		}
		for g := range generations {
			token := fmt.Sprintf("g%d", g)
			var now sync.WaitGroup
			for i := range scribes {
				s := &scribe{bucket: buckets[i], w: presenting(buckets[i], token), token: token, prefix: fmt.Sprintf("%d-%d", g, i), acked: map[string]uint64{}, denied: map[string]bool{}}
				all = append(all, s)
				rnd := rand.New(rand.NewPCG(seed, uint64(g*writers+i)))
				now.Add(1)
				old.Go(func() { // it writes on under the next generation
					for n := range 2 * each {
						if n == each {
							now.Done()
						}
						s.write(ctx, n, rnd)
					}
				})
			}
			if r.disturb != nil {
				r.disturb()
			}
			now.Wait()
			next := fmt.Sprintf("g%d", g+1)
			for {
				tail, err := fold.Fence(ctx, first, next)
				if err == nil {
					tails[next] = tail.Seq()
					break
				}
				if ctx.Err() != nil {
					t.Fatal(err)
				}
			}
		}
		old.Wait()
		checkFencedLog(t, r.scan(t), all, tails)
	})
}

func checkFencedLog(t *testing.T, log []logged, scribes []*scribe, tails map[string]uint64) {
	t.Helper()
	stale, token := 0, ""
	ends := map[string]uint64{} // of each token's last record
	at := map[string]uint64{}   // the last message of each value
	for _, m := range log {
		switch {
		case m.key == kv.FenceKey(0):
			token = m.value
			ends[token] = m.seq + 63
		case !kv.Reserved(m.key):
			at[m.value] = m.seq
			if wrote, _, _ := strings.Cut(m.value, "/"); wrote != token {
				stale++
				t.Errorf("%s at %d was stored under token %s", m.value, m.seq, token)
			}
		}
	}
	for token, tail := range tails {
		if end := ends[token]; tail < end { // above it where the answer was that of a token installed already
			t.Errorf("the fence of %s answered %d, its record ends at %d", token, tail, end)
		}
	}
	acked, denied, out, odd, unsure := 0, 0, 0, 0, 0
	for _, s := range scribes {
		for value, rev := range s.acked {
			if at[value] != rev {
				t.Errorf("%s was acknowledged at %d and is at %d", value, rev, at[value])
			}
		}
		for value := range s.denied {
			if seq := at[value]; seq != 0 {
				t.Errorf("%s was refused and is at %d", value, seq)
			}
		}
		for _, err := range s.errs {
			t.Error(err)
		}
		acked, denied, out, odd, unsure = acked+len(s.acked), denied+len(s.denied), out+s.out, odd+s.odd, unsure+s.unsure
	}
	t.Logf("%d messages: %d writes acknowledged, %d refused (%d by the fence, %d spuriously), %d of unknown outcome; %d stale", len(log), acked, denied, out, odd, unsure, stale)
	if acked == 0 || out == 0 {
		t.Error("nobody wrote, or nobody was fenced out")
	}
}
