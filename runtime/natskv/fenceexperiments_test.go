package natskv_test

import (
	"context"
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
	"github.com/typedfold/fold/runtime/protocol"
)

// What each part of a fence is for: simpler ones are tried against real servers, and go wrong.

const fenceSubjects = "$KV.b._fold.fence."

// fenceRig sends the messages of fences and of fenced writes one by one, on one connection and without a pause.
type fenceRig struct {
	t      *testing.T
	ctx    context.Context
	nc     *nats.Conn
	bucket *natskv.Bucket
	inbox  *nats.Subscription
	record uint64 // the revision of the record that stands
	id     int
}

func newFenceRig(t *testing.T, nc *nats.Conn, cfg natskv.BucketConfig) *fenceRig {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	r := &fenceRig{t: t, ctx: ctx, nc: nc}
	if r.bucket, err = natskv.Open(ctx, js, "b", cfg); err != nil {
		t.Fatal(err)
	}
	if r.inbox, err = nc.SubscribeSync(nats.NewInbox() + ".*"); err != nil {
		t.Fatal(err)
	}
	r.install()
	return r
}

func (r *fenceRig) install() {
	r.t.Helper()
	last, err := r.bucket.InstallFence(r.ctx, "a")
	if err != nil {
		r.t.Fatal(err)
	}
	r.record = last.Rank() - (protocol.FenceKeys - 1)
}

func (r *fenceRig) send(m *nats.Msg) {
	r.t.Helper()
	if err := r.nc.PublishMsg(m); err != nil {
		r.t.Fatal(err)
	}
}

// write sends a write that asks for a revision of a subject.
func (r *fenceRig) write(subject string, expect uint64) {
	r.t.Helper()
	m := nats.NewMsg("$KV.b.row")
	m.Reply = r.inbox.Subject[:len(r.inbox.Subject)-1] + "write"
	m.Header["Nats-Expected-Last-Subject-Sequence"] = []string{strconv.FormatUint(expect, 10)}
	m.Header["Nats-Expected-Last-Subject-Sequence-Subject"] = []string{subject}
	r.send(m)
}

// fence sends a Fence's batch. A conditional one asks that the record that was read still stands.
func (r *fenceRig) fence(conditional bool) {
	r.t.Helper()
	value, err := kv.FenceValue("b")
	if err != nil {
		r.t.Fatal(err)
	}
	r.id++
	for i := range protocol.FenceKeys {
		m := nats.NewMsg(fenceSubjects + strconv.Itoa(i))
		m.Data = value
		m.Header["Nats-Batch-Id"] = []string{"x" + strconv.Itoa(r.id)}
		m.Header["Nats-Batch-Sequence"] = []string{strconv.Itoa(i + 1)}
		if conditional {
			m.Header["Nats-Expected-Last-Subject-Sequence"] = []string{strconv.FormatUint(r.record+uint64(i), 10)}
		}
		if i == protocol.FenceKeys-1 {
			m.Header["Nats-Batch-Commit"] = []string{"1"}
			m.Reply = r.inbox.Subject[:len(r.inbox.Subject)-1] + "fence"
		}
		r.send(m)
	}
}

// answers are the revisions of n answers by what they are to, 0 for a refusal.
func (r *fenceRig) answers(n int) map[string]uint64 {
	r.t.Helper()
	out := map[string]uint64{}
	for range n {
		m, err := r.inbox.NextMsgWithContext(r.ctx)
		if err != nil {
			r.t.Fatal(err)
		}
		var ack struct {
			Error *natskv.APIError `json:"error"`
			Seq   uint64           `json:"seq"`
		}
		if err := json.Unmarshal(m.Data, &ack); err != nil {
			r.t.Fatalf("%q: %v", m.Data, err)
		}
		what := m.Subject[len(r.inbox.Subject)-1:]
		if ack.Error == nil {
			out[what] = ack.Seq
		} else if _, ok := out[what]; !ok {
			out[what] = 0
		}
	}
	return out
}

// late sends a Fence and at once a write under the record before, and reports whether that was stored behind it.
func (r *fenceRig) late(subject string, expect uint64) bool {
	r.t.Helper()
	r.fence(false)
	r.write(subject, expect)
	got := r.answers(2)
	if got["fence"] == 0 {
		r.t.Fatal("an unconditional fence was refused")
	}
	r.record = got["fence"] - (protocol.FenceKeys - 1)
	return got["write"] > got["fence"]
}

func clustered(t *testing.T) *fenceRig {
	t.Helper()
	c := natstest.NewCluster(t, 3)
	nc, err := c.Connect(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return newFenceRig(t, nc, natskv.BucketConfig{Replicas: 3, Storage: jetstream.MemoryStorage})
}

// TestFenceOfReplicas: all messages of a round are sent on one connection without a pause, so that they meet while they are
// proposed and not yet applied. They do in most rounds; a round proves something only once.
func TestFenceOfReplicas(t *testing.T) {
	r := clustered(t)
	const rounds = 200
	t.Run("wildcard check subject", func(t *testing.T) {
		r.t = t
		for range rounds {
			if r.late(fenceSubjects+"*", r.record+protocol.FenceKeys-1) {
				return
			}
		}
		t.Errorf("a wildcard let no write of a replaced token pass in %d rounds: is it safe now?", rounds)
	})
	t.Run("check subjects as they are", func(t *testing.T) {
		r.t = t
		for n := range uint64(2 * protocol.FenceKeys) {
			key, expect := protocol.FenceCheck(r.record, n)
			if r.late(fenceSubjects+strconv.Itoa(key), expect) {
				t.Fatalf("round %d: a write of a replaced token was stored behind the fence at %d", n, r.record)
			}
		}
	})
	t.Run("one key of the record", func(t *testing.T) {
		r.t = t
		refused := 0
		const burst = 8
		for range 20 {
			for range burst {
				r.write(fenceSubjects+"0", r.record)
			}
			refused += burst - r.stored(burst)
		}
		if refused == 0 {
			t.Error("writes in flight that check one key don't refuse each other: is one key enough now?")
		}
		for n := range uint64(4 * protocol.FenceKeys) {
			key, expect := protocol.FenceCheck(r.record, n)
			r.write(fenceSubjects+strconv.Itoa(key), expect)
			if n%burst == burst-1 {
				if got := r.stored(burst); got != burst {
					t.Errorf("of %d writes in flight that take the keys in turn %d were stored", burst, got)
				}
			}
		}
	})
	t.Run("conditional fence", func(t *testing.T) {
		r.t = t
		starved, longest := 0, 0
		for range rounds {
			const burst = protocol.FenceKeys / 2
			for n := range uint64(burst) {
				key, expect := protocol.FenceCheck(r.record, n)
				r.write(fenceSubjects+strconv.Itoa(key), expect)
			}
			r.fence(true)
			got := r.answers(burst + 1)
			if starved++; got["fence"] != 0 {
				r.record, starved = got["fence"]-(protocol.FenceKeys-1), 0
			}
			if longest = max(longest, starved); longest == 10 {
				break
			}
		}
		if longest < 10 {
			t.Errorf("of conditional fences at most %d in a row were refused in %d rounds", longest, rounds)
		}
		r.fence(false)
		if got := r.answers(1); got["fence"] == 0 {
			t.Error("an unconditional fence was refused")
		}
	})
}

// stored is how many of n writes were.
func (r *fenceRig) stored(n int) (stored int) {
	r.t.Helper()
	for range n {
		if r.answers(1)["write"] != 0 {
			stored++
		}
	}
	return stored
}

// TestConditionalFence: a Fence that asks for the record that it has read loses to one that came between; the newest one is
// to stand.
func TestConditionalFence(t *testing.T) {
	for _, conditional := range []bool{false, true} {
		nc, err := natstest.New(t).Connect()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		r := newFenceRig(t, nc, natskv.BucketConfig{Storage: jetstream.MemoryStorage})
		read := r.record
		r.install()
		r.record = read
		r.fence(conditional)
		if stands := r.answers(1)["fence"] != 0; stands == conditional {
			t.Errorf("conditional %v: the newest fence stands: %v", conditional, stands)
		}
	}
}

// TestFenceExpectsNothing: were a writer to ask for no record where it has seen none, it would be let in by a bucket that has
// lost its record.
func TestFenceExpectsNothing(t *testing.T) {
	nc, err := natstest.New(t).Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	r := newFenceRig(t, nc, natskv.BucketConfig{Storage: jetstream.MemoryStorage})
	stored := func(expect uint64) bool {
		r.write(fenceSubjects+"0", expect)
		return r.answers(1)["write"] != 0
	}
	if !stored(r.record) || stored(0) {
		t.Fatal("the record stands")
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(r.ctx, "KV_b")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(r.ctx, jetstream.WithPurgeSubject(fenceSubjects+">")); err != nil {
		t.Fatal(err)
	}
	if !stored(0) {
		t.Error("a log without a record refuses who asks for none: is 0 safe now?")
	}
	if stored(r.record) {
		t.Error("a log without a record lets in who asks for one")
	}
	if _, err := r.bucket.Put(r.ctx, "row", nil, kv.PutOptions{Fence: r.record}); err == nil || last(t, r.bucket) == 0 {
		t.Errorf("a write that asks for a record that is gone: %v", err)
	}
}
