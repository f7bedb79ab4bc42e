package kvtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// layout is what a log holds: "first..last: key@revision=op ...".
func layout(l *Log) string {
	info, _ := l.Info(context.Background())
	d := kv.Delivery{Updates: l.Retained()}
	return fmt.Sprintf("%d..%d: %s", info.First, info.Last, strings.TrimSuffix(render(d), "|0"))
}

func expectLayout(t *testing.T, l *Log, want string) {
	t.Helper()
	if got := strings.TrimSpace(layout(l)); got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	info, err := l.Info(context.Background())
	if err != nil || info.Messages != uint64(len(l.Retained())) {
		t.Fatalf("%d messages counted, %d there: %v", info.Messages, len(l.Retained()), err)
	}
}

func TestHistoryAndRevisions(t *testing.T) {
	l := NewLog(Options{History: 2})
	expectLayout(t, l, "0..0:")
	l.Set("a", "1")
	l.Set("a", "2")
	l.Set("b", "1")
	l.Set("a", "3")
	expectLayout(t, l, "2..4: a@2=put b@3=put a@4=put")
	if _, err := l.Delete(context.Background(), "a", kv.DeleteOptions{Purge: true}); err != nil {
		t.Fatal(err)
	}
	expectLayout(t, l, "3..5: b@3=put a@5=purge")
}

func TestAdministration(t *testing.T) {
	l := NewLog(Options{})
	for _, key := range []string{"a", "b", "c", "d"} {
		l.Set(key, "1")
	}
	l.Remove("b")
	expectLayout(t, l, "1..5: a@1=put c@3=put d@4=put b@5=delete")
	l.EvictTo(2)
	expectLayout(t, l, "3..5: c@3=put d@4=put b@5=delete")
	if n := l.PurgeMarkers(); n != 1 {
		t.Fatal(n)
	}
	expectLayout(t, l, "3..5: c@3=put d@4=put")
	if at := l.AgeOut("c", true); at != 6 {
		t.Fatal(at)
	}
	expectLayout(t, l, "4..6: d@4=put c@6=aged_out")
	l.AgeOut("d", false)
	expectLayout(t, l, "6..6: c@6=aged_out")
	l.WriteMarker("d", protocol.MarkerRemove)
	expectLayout(t, l, "6..7: c@6=aged_out d@7=delete")
	if !l.RemoveMessage(6) || l.RemoveMessage(6) || l.RemoveMessage(0) || l.RemoveMessage(99) {
		t.Fatal("a message is removed once")
	}
	l.EvictTo(99)
	expectLayout(t, l, "8..7:")
	l.Set("e", "1")
	expectLayout(t, l, "8..8: e@8=put")
	truth := l.Truth(kv.AllKeys(), 8)
	if len(truth) != 3 || truth["a"].Version != kv.Revision(1) || truth["c"].Version != kv.Revision(3) || truth["e"].Version != kv.Revision(8) {
		t.Fatalf("%v", truth)
	}
}

// A restored backup holds what had been superseded since, and not what retention had taken before.
func TestRewind(t *testing.T) {
	l := NewLog(Options{})
	l.Set("a", "1")
	l.Set("b", "1")
	l.Set("c", "1")
	l.EvictTo(2)
	l.Set("b", "2")
	l.Remove("c")
	w := openAt(t, l, kv.CursorAt(5))
	before, _ := l.Info(context.Background())
	l.Rewind(3)
	expectLayout(t, l, "2..3: b@2=put c@3=put")
	after, _ := l.Info(context.Background())
	if !before.Created.Equal(after.Created) {
		t.Fatal("a rewound log has its creation time")
	}
	if _, err := w.Next(context.Background(), kv.Delivery{}, 1, 1); !errors.Is(err, kv.ErrWatchLost) {
		t.Fatal(err)
	}
	l.Set("d", "1")
	expectLayout(t, l, "2..4: b@2=put c@3=put d@4=put")
	l.Rewind(0)
	expectLayout(t, l, "0..0:")
}

func TestDiscardOldAndEditedLimits(t *testing.T) {
	l := NewLog(Options{Limits: Limits{MaxMessages: 3}})
	for i := range 5 {
		l.Set(fmt.Sprint("k", i), "x")
	}
	expectLayout(t, l, "3..5: k2@3=put k3@4=put k4@5=put")
	info, _ := l.Info(context.Background())
	if !info.Retention.EvictsCurrentValues || info.Retention.First != 3 {
		t.Fatalf("%+v", info.Retention)
	}
	l.SetLimits(Limits{MaxMessages: 1})
	expectLayout(t, l, "5..5: k4@5=put")
	l.SetLimits(Limits{})
	if info, _ = l.Info(context.Background()); info.Retention.EvictsCurrentValues {
		t.Fatal("the limits were taken off")
	}
}

// A KV delete that ages out leaves a MaxAge marker, as on a real server; a purge and the server's own do not.
func TestMarkersOfAgedTombstones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLog(Options{Limits: Limits{MaxAge: time.Hour, MarkerTTL: time.Minute}})
		l.Set("a", "1")
		l.Remove("b")
		if _, err := l.Delete(context.Background(), "c", kv.DeleteOptions{Purge: true}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour + time.Second)
		expectLayout(t, l, "4..5: a@4=aged_out b@5=aged_out")
		time.Sleep(time.Minute)
		expectLayout(t, l, "6..5:")
		l.Set("d", "1")
		l.SetLimits(Limits{})
		time.Sleep(24 * time.Hour)
		expectLayout(t, l, "6..6: d@6=put")
		l.SetLimits(Limits{MaxAge: time.Hour})
		expectLayout(t, l, "7..6:")
	})
}

func TestOverrunWithAndWithoutPrefetch(t *testing.T) {
	for prefetch, want := range map[int]string{
		0: `|0 bucket "sim": cursor 1 expired: the log starts at revision 5`,
		2: `b@2=put c@3=put |3 bucket "sim": cursor 3 expired: the log starts at revision 5`,
		9: "b@2=put c@3=put d@4=put e@5=put |5",
	} {
		l := NewLog(Options{Prefetch: prefetch, Limits: Limits{Evicts: true}})
		l.Set("a", "1")
		w := openAt(t, l, kv.CursorAt(1))
		for _, key := range []string{"b", "c", "d", "e"} {
			l.Set(key, "1")
		}
		l.EvictTo(5)
		if got := drain(t, w); got != want {
			t.Errorf("prefetch %d: got %s, want %s", prefetch, got, want)
		}
	}
}

// On a log that evicts nothing, any watch, cut and resumed anywhere, folds to the truth at its frontier.
func TestFoldOfAnyHistoryIsTheTruth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := NewLog(Options{History: rapid.IntRange(1, 3).Draw(t, "history"), Prefetch: rapid.IntRange(0, 4).Draw(t, "prefetch")})
		scope, _ := kv.Prefixes(rapid.SampledFrom([]string{"", "k", "k.1", "k."}).Draw(t, "scope"))
		l.Set("k.anchor", "keeps the first revision")
		var cursor kv.Cursor
		state := map[string]string{}
		for range rapid.IntRange(1, 5).Draw(t, "runs") {
			w, err := l.Open(context.Background(), kv.OpenRequest{Scope: scope, After: cursor})
			if err != nil {
				t.Fatal(err)
			}
			for range rapid.IntRange(0, 12).Draw(t, "steps") {
				key := rapid.SampledFrom([]string{"k.1", "k.2", "k.3", "kk", "x"}).Draw(t, "key")
				switch rapid.IntRange(0, 4).Draw(t, "step") {
				case 0:
					l.Set(key, fmt.Sprint(l.last()))
				case 1:
					l.Remove(key)
				case 2:
					l.WriteMarker(key, rapid.SampledFrom([]protocol.MarkerReason{protocol.MarkerPurge, protocol.MarkerRemove}).Draw(t, "marker"))
				default:
					if !w.(*watch).ready() {
						continue
					}
					d, err := w.Next(context.Background(), kv.Delivery{}, rapid.IntRange(1, 4).Draw(t, "max"), 1<<20)
					if err != nil {
						t.Fatal(err)
					}
					fold(state, d.Updates)
					cursor = kv.CursorAt(d.Frontier)
				}
			}
			w.Close(context.Background())
		}
		w, err := l.Open(context.Background(), kv.OpenRequest{Scope: scope, After: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for w.(*watch).ready() {
			d, err := w.Next(context.Background(), kv.Delivery{}, 3, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			fold(state, d.Updates)
		}
		want := map[string]string{}
		for key, e := range l.Truth(scope, l.last()) {
			want[key] = string(e.Value)
		}
		if !maps.Equal(state, want) {
			t.Fatalf("folded %v, truth %v", state, want)
		}
	})
}

// A re-list delivers what is there when its turn comes: what retention takes in between is silently not part of it.
// Only the log's first revision shows it, so whoever takes a re-list for the whole state looks at that afterwards.
func TestRelistMissesWhatRetentionTakesMeanwhile(t *testing.T) {
	l := NewLog(Options{Limits: Limits{Evicts: true}})
	for _, key := range []string{"a", "b", "c", "d"} {
		l.Set(key, "1")
	}
	w := openAt(t, l, kv.Cursor{})
	if w.Info().First != 1 {
		t.Fatal(w.Info())
	}
	l.EvictTo(4)
	if got := drain(t, w); got != "d@4=put |4" {
		t.Fatal(got)
	}
	if now, err := l.Info(context.Background()); err != nil || now.First != 4 {
		t.Fatal(now, err)
	}
}

// A waiting Next wakes for a write, for what ages out by a clock of the test's own, and for the end of its watch.
func TestWaitingNextWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Unix(1000, 0)
		l := NewLog(Options{Now: func() time.Time { return now }, Limits: Limits{MaxAge: time.Hour, MarkerTTL: time.Minute}})
		l.Set("a", "1")
		w := openAt(t, l, kv.CursorAt(1))
		drain(t, w)
		for _, step := range []struct {
			do   func()
			want string
		}{
			{func() { l.Set("b", "1") }, "b@2=put |2"},
			{func() { now = now.Add(time.Hour + time.Second); l.Tick() }, "a@3=aged_out b@4=aged_out |4"},
			{l.LoseWatches, `|0 bucket "sim": watch lost: the consumer is gone`},
		} {
			told := make(chan string)
			go func() {
				d, err := w.Next(context.Background(), kv.Delivery{}, 10, 1<<20)
				text := render(d)
				if err != nil {
					text += " " + err.Error()
				}
				told <- text
			}()
			synctest.Wait()
			select {
			case got := <-told:
				t.Fatalf("it did not wait: %s", got)
			default:
			}
			step.do()
			if got := <-told; got != step.want {
				t.Fatalf("got %s, want %s", got, step.want)
			}
		}
	})
}
