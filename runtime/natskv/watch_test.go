package natskv_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
	"github.com/typedfold/fold/runtime/protocol"
)

func TestWatchOfNothingSaysSo(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{})
	r.put(t, "a", "v")
	rev := r.put(t, "a", "w")
	for name, scope := range map[string]kv.Scope{"prefix": prefixes(t, "none."), "split": prefixes(t, "n"), "many": prefixes(t, "x.", "y.")} {
		w := r.watch(t, kv.OpenRequest{Scope: scope})
		if got := w.until(t, rev); len(got) != 0 {
			t.Errorf("%s: %s", name, got.text())
		}
		w = r.watch(t, kv.OpenRequest{Scope: scope, After: kv.CursorAt(1)})
		if got := w.until(t, rev); len(got) != 0 {
			t.Errorf("%s resumed: %s", name, got.text())
		}
	}
	s, err := r.js.Stream(bounded(t), "KV_b")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(bounded(t)); err != nil {
		t.Fatal(err)
	}
	w := r.watch(t, kv.OpenRequest{})
	if got := w.until(t, rev); len(got) != 0 {
		t.Errorf("purged: %s", got.text())
	}
	if info := w.Info(); info.Last != rev || info.First != rev+1 || info.Bucket != "b" {
		t.Errorf("info %+v", info)
	}
}

func prefixes(t testing.TB, p ...string) kv.Scope {
	t.Helper()
	s, err := kv.Prefixes(p...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestScopes(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{})
	keys := []string{"nod", "node.a", "node.b.c", "nodx.a", "other", "routes.eu.1", "routes.eu-west.1", "routes.us.1", "z"}
	var rev uint64
	for _, k := range keys {
		rev = r.put(t, k, k)
	}
	for _, scope := range [][]string{{"nod"}, {"node."}, {"node"}, {"nodx.a"}, {"routes.eu"}, {"routes.eu."}, {"routes.", "node."},
		{"routes.eu", "routes.us"}, {"routes.eu.", "routes.e"}, {"node.b.", "node.", "z"}, {"q"}, {"z"}} {
		s := prefixes(t, scope...)
		var want []string
		for _, k := range keys {
			if slices.ContainsFunc(scope, func(p string) bool { return strings.HasPrefix(k, p) }) {
				want = append(want, k)
			}
		}
		w := r.watch(t, kv.OpenRequest{Scope: s})
		check := func(what string, got []string) {
			t.Helper()
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%v: %s %v, want %v", scope, what, got, want)
			}
		}
		var got []string
		for _, u := range w.until(t, rev) {
			got = append(got, u.Key)
		}
		check("watched", got)
		got = nil
		for k, err := range r.bucket.Keys(bounded(t), s) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, k.Key)
		}
		check("listed", got)
		got = nil
		for e, err := range r.bucket.Scan(bounded(t), s) {
			if err != nil || string(e.Value) != e.Key {
				t.Fatal(e, err)
			}
			got = append(got, e.Key)
		}
		check("scanned", got)
	}
}

func TestResumeDeliversTheRestOnly(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{History: 5})
	for i := range 6 {
		r.put(t, fmt.Sprintf("k%d", i%2), fmt.Sprint(i))
	}
	w := r.watch(t, kv.OpenRequest{After: kv.CursorAt(4)})
	if s := w.until(t, 6).text(); s != "k0=4@5 put, k1=5@6 put" {
		t.Fatal(s)
	}
	r.put(t, "x.y", "z")
	if s := w.until(t, 7).text(); s != "x.y=z@7 put" {
		t.Fatal(s)
	}
}

func TestManyKeys(t *testing.T) {
	const n = 3000
	r := newRig(t, natskv.BucketConfig{})
	r.fill(t, n, func(i int) string { return fmt.Sprintf("k.%d", i) })
	if got := r.watch(t, kv.OpenRequest{}).until(t, n); len(got) != n {
		t.Errorf("watched %d", len(got))
	}
	seen := map[string]bool{}
	for k, err := range r.bucket.Keys(bounded(t), kv.AllKeys()) {
		if err != nil {
			t.Fatal(err)
		}
		seen[k.Key] = true
	}
	if len(seen) != n {
		t.Errorf("listed %d", len(seen))
	}
	count := 0
	for _, err := range r.bucket.Scan(bounded(t), kv.AllKeys()) {
		if err != nil {
			t.Fatal(err)
		}
		if count++; count == 10 {
			break
		}
	}
	r.wantConsumers(t, 1) // the watch
}

func (r *rig) wantConsumers(t *testing.T, want int) {
	t.Helper()
	s, err := r.js.Stream(bounded(t), "KV_b")
	if err != nil {
		t.Fatal(err)
	}
	if got := s.CachedInfo().State.Consumers; got != want {
		t.Fatalf("%d consumers, want %d", got, want)
	}
}

func TestRareKeysMoveTheFrontier(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{Watch: natskv.WatchConfig{ProbeEvery: 50 * time.Millisecond}})
	r.put(t, "rare.a", "v")
	w := r.watch(t, kv.OpenRequest{Scope: prefixes(t, "rare.")})
	w.until(t, 1)
	var rev uint64
	for i := range 5 {
		rev = r.put(t, "busy", fmt.Sprint(i))
	}
	if got := w.until(t, rev); len(got) != 0 {
		t.Fatal(got.text())
	}
	rev = r.put(t, "rare.b", "w")
	if s := w.until(t, rev).text(); s != "rare.b=w@7 put" {
		t.Fatal(s)
	}
}

func TestExpiredCursors(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{})
	r.fill(t, 100, func(i int) string { return fmt.Sprintf("k%d", i) })
	s, err := r.js.Stream(bounded(t), "KV_b")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(bounded(t), jetstream.WithPurgeSequence(51)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cursor  uint64
		expired bool
	}{{1, true}, {49, true}, {50, false}, {51, false}, {100, false}} {
		_, err := r.bucket.Open(bounded(t), kv.OpenRequest{After: kv.CursorAt(c.cursor)})
		var expired *kv.ExpiredError
		if errors.As(err, &expired) != c.expired || !c.expired && err != nil {
			t.Errorf("cursor %d: %v", c.cursor, err)
		}
		if c.expired && (expired.First != 51 || expired.Cursor.Revision() != c.cursor || !errors.Is(err, kv.ErrCursorExpired)) {
			t.Errorf("cursor %d: %v", c.cursor, err)
		}
	}
	_, err = r.bucket.Open(bounded(t), kv.OpenRequest{After: kv.CursorAt(^uint64(0))})
	if err == nil {
		t.Error("the last revision of all was resumed")
	}
}

func TestEvictionBetweenCheckAndConsumer(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{})
	r.fill(t, 10, func(i int) string { return fmt.Sprintf("k%d", i) })
	s, err := r.js.Stream(bounded(t), "KV_b")
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy(t, r)
	b, err := natskv.Bind(bounded(t), p.js, "b", natskv.BucketConfig{})
	if err != nil {
		t.Fatal(err)
	}
	p.answers = []answer{{subject: "STREAM.INFO", reply: oldInfo(t, s)}}
	if err := s.Purge(bounded(t), jetstream.WithPurgeSequence(8)); err != nil {
		t.Fatal(err)
	}
	_, err = b.Open(bounded(t), kv.OpenRequest{After: kv.CursorAt(3)})
	wantErr(t, err, kv.ErrCursorExpired)
	r.wantConsumers(t, 0)
}

func TestReplacedAndRewoundLogs(t *testing.T) {
	for _, c := range []struct {
		name string
		puts int
	}{{"Fewer", 3}, {"More", 30}} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, natskv.BucketConfig{})
			key := func(i int) string { return fmt.Sprintf("k%d", i) }
			r.fill(t, 10, key)
			info, err := r.bucket.Info(bounded(t))
			if err != nil {
				t.Fatal(err)
			}
			if err := r.js.DeleteStream(bounded(t), "KV_b"); err != nil {
				t.Fatal(err)
			}
			r.bucket = r.open(t, natskv.BucketConfig{})
			r.fill(t, c.puts, key)
			known := kv.Incarnation{CreatedUnixNano: info.Created.UnixNano()}
			_, err = r.bucket.Open(bounded(t), kv.OpenRequest{After: kv.CursorAt(10), Known: known})
			wantErr(t, err, kv.ErrLogReplaced)
			var changed *kv.LogChangedError
			if !errors.As(err, &changed) || !changed.NotedCreated.Equal(info.Created) || changed.Last != uint64(c.puts) {
				t.Fatalf("%+v", changed)
			}
			_, err = r.bucket.Open(bounded(t), kv.OpenRequest{After: kv.CursorAt(31)})
			wantErr(t, err, kv.ErrLogRewound)
		})
	}
}

func TestSamplesTellARewoundLog(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{})
	r.fill(t, 5, func(i int) string { return fmt.Sprintf("k%d", i) })
	got := r.watch(t, kv.OpenRequest{}).until(t, 5)
	info, err := r.bucket.Info(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	open := func(after uint64, samples ...kv.Sample) error {
		known := kv.Incarnation{CreatedUnixNano: info.Created.UnixNano(), Samples: samples}
		w, err := r.bucket.Open(bounded(t), kv.OpenRequest{After: kv.CursorAt(after), Known: known})
		if err != nil {
			return err
		}
		want := protocol.LogUnknown
		if after == 3 {
			want = protocol.LogSame
		}
		if got := w.Info().Identity; got != want {
			t.Errorf("identity %v with %d samples, want %v", got, len(samples), want)
		}
		return w.Close(bounded(t))
	}
	if err := open(4, kv.Sample{Revision: 900, UnixNano: 1}); err != nil {
		t.Fatal(err)
	}
	same := kv.Sample{Revision: 3, UnixNano: got[2].UnixNano}
	for after := range uint64(2) { // what is where it was says nothing of what came after it
		if err := open(3+after, same, kv.Sample{Revision: 900, UnixNano: 1}); err != nil {
			t.Fatal(err)
		}
	}
	wantErr(t, open(4, same, kv.Sample{Revision: 4, UnixNano: got[3].UnixNano - 1}), kv.ErrLogRewound)
	wantErr(t, open(4, kv.Sample{Revision: 3, UnixNano: got[2].UnixNano - 1}), kv.ErrLogRewound)
}

func TestMarkers(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{MarkerTTL: 2 * time.Second, History: 2})
	if _, err := r.bucket.Put(bounded(t), "aged", []byte("v"), kv.PutOptions{TTL: time.Second}); err != nil {
		t.Fatal(err)
	}
	w := r.watch(t, kv.OpenRequest{})
	got := w.until(t, 2)
	if s := got.text(); s != "aged=v@1 put, aged=@2 aged_out" {
		t.Fatal(s)
	}
	if got[1].Reason != kv.ReasonMaxAge || got[0].Reason != kv.ReasonUser {
		t.Fatalf("reasons %v, %v", got[0].Reason, got[1].Reason)
	}
}

func TestPurgedMarkersLeaveAGapThatIsDelivered(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{})
	r.put(t, "old", "v")
	r.put(t, "a", "v")
	r.delete(t, "a")
	bucket, err := r.js.KeyValue(bounded(t), "b")
	if err != nil {
		t.Fatal(err)
	}
	if err := bucket.PurgeDeletes(bounded(t), jetstream.DeleteMarkersOlderThan(-1)); err != nil {
		t.Fatal(err)
	}
	r.put(t, "c", "w")
	if s := r.watch(t, kv.OpenRequest{After: kv.CursorAt(2)}).until(t, 4).text(); s != "c=w@4 put" {
		t.Fatal(s)
	}
}

func TestForeignMessages(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{})
	for _, m := range []struct{ key, value string }{{"ключ", "1"}, {"sp!ace", "2"}, {"empty", ""}} {
		if _, err := r.js.Publish(bounded(t), "$KV.b."+m.key, []byte(m.value)); err != nil {
			t.Fatal(err)
		}
	}
	w := r.watch(t, kv.OpenRequest{})
	if s := w.until(t, 3).text(); s != "ключ=1@1 put, sp!ace=2@2 put, empty=@3 put" {
		t.Fatal(s)
	}
}

func TestCloseEndsABlockedNextAndTheConsumer(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{})
	w := r.watch(t, kv.OpenRequest{})
	r.wantConsumers(t, 1)
	ended := make(chan error, 1)
	go func() {
		_, err := w.Next(bounded(t), kv.Delivery{}, 1, 1)
		ended <- err
	}()
	if err := w.Close(bounded(t)); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		wantErr(t, err, kv.ErrWatchLost)
	case <-bounded(t).Done():
		t.Fatal("Next still blocks")
	}
	r.wantConsumers(t, 0)
	w = r.watch(t, kv.OpenRequest{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := w.Next(ctx, kv.Delivery{}, 1, 1)
	wantErr(t, err, context.Canceled)
	_, err = w.Next(bounded(t), kv.Delivery{}, 1, 1)
	wantErr(t, err, context.Canceled) // an error is a watch's last word
}

func TestNextKeepsItsLimits(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{})
	r.fill(t, 20, func(i int) string { return fmt.Sprintf("k%02d", i) })
	w := r.watch(t, kv.OpenRequest{})
	var d kv.Delivery
	for want := uint64(1); want <= 20; {
		before := len(d.Updates)
		var err error
		if d, err = w.Next(bounded(t), d, 3, 10); err != nil { // two updates of five bytes
			t.Fatal(err)
		}
		if n := len(d.Updates) - before; n < 1 || n > 2 {
			t.Fatalf("%d updates", n)
		}
		for _, u := range d.Updates[before:] {
			if u.Version.Rank() != want {
				t.Fatalf("revision %v, want %d", u.Version, want)
			}
			want++
		}
		if d.Frontier != d.Updates[len(d.Updates)-1].Version.Rank() {
			t.Fatalf("frontier %d after %v", d.Frontier, d.Updates[len(d.Updates)-1].Version)
		}
	}
	if d.Pending != 0 {
		t.Fatalf("%d pending at the end", d.Pending)
	}
}

func TestSupersessionIsNoExpiryWhileNothingCanHaveAged(t *testing.T) {
	cfg := natskv.BucketConfig{MaxAge: time.Hour, MessageTTL: natskv.Off}
	r := newRig(t, cfg)
	r.put(t, "a", "old")
	w := r.watch(t, kv.OpenRequest{})
	first := w.until(t, 1)[0]
	for range 3 {
		r.put(t, "a", "new")
	}
	fresh := kv.Cursor{Version: kv.Revision(1), SeenEvicting: true, WrittenAt: uint64(first.UnixNano / 1e6)}
	known := kv.Incarnation{AgeLimit: time.Hour.Nanoseconds()}
	if s := r.watch(t, kv.OpenRequest{After: fresh, Known: known}).until(t, 4).text(); s != "a=new@4 put" {
		t.Error(s)
	}
	stale := fresh
	stale.WrittenAt -= uint64((31 * time.Minute).Milliseconds())
	for _, c := range []kv.Cursor{kv.CursorAt(1), stale} {
		_, err := r.bucket.Open(bounded(t), kv.OpenRequest{After: c, Known: known})
		wantErr(t, err, kv.ErrCursorExpired)
	}
	// Under a shorter limit, or one that nobody noted, messages may have aged out before it was raised.
	for _, limit := range []time.Duration{0, time.Millisecond} {
		_, err := r.bucket.Open(bounded(t), kv.OpenRequest{After: fresh, Known: kv.Incarnation{AgeLimit: limit.Nanoseconds()}})
		wantErr(t, err, kv.ErrCursorExpired)
	}
}
