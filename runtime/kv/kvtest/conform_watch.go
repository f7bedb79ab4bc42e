package kvtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/typedfold/fold/runtime/kv"
)

var watchCases = []conformanceCase{
	{name: "WatchStateThenLive", applies: unsealed, run: watchStateThenLive},
	{name: "WatchNeverWritten", run: watchNeverWritten},
	{name: "WatchScopeWithoutKeys", run: watchScopeWithoutKeys},
	{name: "WatchHonoursLimits", run: watchLimits},
	{name: "WatchAppends", run: watchAppends},
	{name: "WatchesAreIndependent", run: watchesAreIndependent},
	{name: "NextHonoursContext", run: nextHonoursContext},
	{name: "CloseEndsNext", run: closeEndsNext},
	{name: "WatchLostWithItsLog", run: watchLost},
	{name: "WatchWritesDuringRelist", run: writesDuringRelist},
	{name: "WatchOverrun", run: watchOverrun},
	{name: "WatchInteriorGap", run: watchInteriorGap},
	{name: "AgedOut", applies: func(c Capabilities) bool { return c.AgeOut }, run: agedOut},
	{name: "PurgedMarkers", applies: func(c Capabilities) bool { return c.PurgeMarkers }, run: purgedMarkers},
}

// expect compares updates with "key@revision op" texts.
func (s *suite) expect(got []kv.Update, want ...string) {
	s.Helper()
	if len(got) != len(want) {
		s.Fatalf("got %d updates, want %d: %v", len(got), len(want), texts(got))
	}
	for i := range got {
		if text(&got[i]) != want[i] {
			s.Fatalf("update %d of %v: want %v", i, texts(got), want)
		}
	}
}

func text(u *kv.Update) string { return fmt.Sprintf("%s@%v %v", u.Key, u.Version, u.Op) }

func texts(us []kv.Update) []string {
	out := make([]string, len(us))
	for i := range us {
		out[i] = text(&us[i])
	}
	return out
}

func watchStateThenLive(s *suite) {
	s.put("a", "1")
	s.put("b", "1")
	s.put("c", "1")
	s.put("a", "2")
	s.del("b")
	_, err := s.Delete(s.ctx, "c", kv.DeleteOptions{Purge: true})
	s.must(err)
	s.put("d", "4")
	r := s.open(kv.OpenRequest{})
	state := r.to(7)
	s.expect(state, "a@4 put", "b@5 delete", "c@6 purge", "d@7 put")
	e, err := s.Get(s.ctx, "a")
	s.must(err)
	u := state[0]
	equal(s, "value", string(u.Value), "2")
	equal(s, "reason", u.Reason, kv.ReasonUser)
	equal(s, "rejected", u.Rejected, false)
	equal(s, "time", u.UnixNano, e.UnixNano)
	equal(s, "length of a tombstone", len(state[1].Value), 0)
	s.put("a", "3")
	s.expect(r.to(8), "a@8 put")
	s.del("d")
	s.put("d", "5")
	live := r.to(10)
	s.expect(live[len(live)-1:], "d@10 put")
}

// Where a log never held a message there is no frontier to tell; Info().Last says so, and what comes is delivered.
func watchNeverWritten(s *suite) {
	r := s.open(kv.OpenRequest{})
	equal(s, "last", r.w.Info().Last, 0)
	s.put("a", "1")
	s.expect(r.to(1), "a@1 put")
}

// Nothing in scope is an answer too: the frontier reaches the head that the watch began with.
func watchScopeWithoutKeys(s *suite) {
	s.put("x.1", "1")
	s.put("x.2", "1")
	for _, scope := range []kv.Scope{s.scope("a."), s.scope("x.3"), s.scope("a.", "b.c.")} {
		r := s.open(kv.OpenRequest{Scope: scope})
		s.expect(r.to(r.w.Info().Last))
	}
	r := s.open(kv.OpenRequest{Scope: s.scope("a.")})
	s.expect(r.to(2))
	s.put("x.1", "2")
	s.put("a.1", "1")
	s.put("x.1", "3")
	got := r.to(4)
	s.expect(got, "a.1@4 put")
}

func watchLimits(s *suite) {
	for i := range 30 {
		s.put(fmt.Sprintf("key%02d", i), "12345")
	}
	for _, limit := range []struct{ max, maxBytes int }{{1, 1 << 20}, {7, 1 << 20}, {30, 25}, {30, 1}, {1000, 10}, {1000, 1 << 20}} {
		r := s.open(kv.OpenRequest{})
		r.max, r.maxBytes = limit.max, limit.maxBytes
		equal(s, "updates in all", len(r.to(30)), 30)
	}
}

// Next appends: what the caller's slice already holds stays, and does not count.
func watchAppends(s *suite) {
	s.put("a", "1")
	s.put("b", "1")
	r := s.open(kv.OpenRequest{})
	d := kv.Delivery{Updates: []kv.Update{{Key: "before"}}}
	for d.Frontier < 2 {
		had := len(d.Updates)
		var err error
		d, err = s.boundedNext(s.ctx, r.w, d, 1, 1<<20)
		s.must(err)
		if len(d.Updates) > had+1 {
			s.Fatal("more than one update where one was asked for")
		}
	}
	equal(s, "updates", len(d.Updates), 3)
	equal(s, "the first", d.Updates[0].Key, "before")
	s.expect(d.Updates[1:], "a@1 put", "b@2 put")
}

func watchesAreIndependent(s *suite) {
	s.put("a", "1")
	one := s.open(kv.OpenRequest{})
	two := s.open(kv.OpenRequest{Scope: s.scope("b")})
	s.expect(one.to(1), "a@1 put")
	s.put("b", "1")
	s.must(one.w.Close(s.ctx))
	s.expect(two.to(2), "b@2 put")
	s.expect(s.open(kv.OpenRequest{After: kv.CursorAt(1)}).to(2), "b@2 put")
}

func nextHonoursContext(s *suite) {
	s.put("a", "1")
	r := s.open(kv.OpenRequest{})
	r.to(1)
	ctx, cancel := context.WithTimeout(s.ctx, 20*time.Millisecond)
	defer cancel()
	_, err := s.boundedNext(ctx, r.w, kv.Delivery{}, 10, 1<<20)
	for err == nil { // a frontier may be told once more
		_, err = s.boundedNext(ctx, r.w, kv.Delivery{}, 10, 1<<20)
	}
	s.is(err, context.DeadlineExceeded)
	s.put("a", "2")
	if _, err := s.boundedNext(s.ctx, r.w, kv.Delivery{}, 10, 1<<20); err == nil {
		s.Fatal("an error ends a watch, and this one went on")
	}
}

func closeEndsNext(s *suite) {
	s.put("a", "1")
	r := s.open(kv.OpenRequest{})
	r.to(1)
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := r.w.Next(s.ctx, kv.Delivery{}, 10, 1<<20); err != nil {
				ended <- err
				return
			}
		}
	}()
	s.must(r.w.Close(s.ctx))
	select {
	case <-ended:
	case <-s.ctx.Done():
		s.Fatal("Next went on after Close")
	}
	if _, err := s.boundedNext(s.ctx, r.w, kv.Delivery{}, 10, 1<<20); err == nil {
		s.Fatal("Next after Close gave no error")
	}
	s.must(r.w.Close(s.ctx))
}

// untilError reads until the watch ends and returns what came before.
func (r *reader) untilError() ([]kv.Update, error) {
	r.s.Helper()
	var out []kv.Update
	for {
		d, err := r.next()
		if err != nil {
			return out, err
		}
		out = append(out, d.Updates...)
	}
}

func watchLost(s *suite) {
	s.put("a", "1")
	r := s.open(kv.OpenRequest{})
	r.to(1)
	s.must(s.target.Admin.Recreate(s.ctx))
	s.put("a", "other log")
	got, err := r.untilError()
	s.is(err, kv.ErrWatchLost)
	s.expect(got)
}

// A re-list under fire ends in the bucket's state, and so does a resume from any frontier on the way.
func writesDuringRelist(s *suite) {
	const keys = 150
	s.put("anchor", "keeps the log's first revision where it is")
	s.putMany(keys, func(i int) string { return fmt.Sprintf("k.%d", i) })
	r := s.open(kv.OpenRequest{})
	r.max = 5
	state := map[string]string{}
	var halfway map[string]string
	var cursor kv.Cursor
	for round := 0; r.frontier < keys/2 || round < 60; round++ {
		s.put(fmt.Sprintf("k.%d", round*7%keys), fmt.Sprint("again ", round))
		s.del(fmt.Sprintf("k.%d", (round*11+3)%keys))
		s.put(fmt.Sprintf("new.%d", round), "new")
		d, err := r.next()
		s.must(err)
		fold(state, d.Updates)
		if halfway == nil && r.frontier > 0 && round > 10 {
			halfway, cursor = maps.Clone(state), kv.CursorAt(r.frontier)
		}
	}
	last := s.info().Last
	fold(state, r.to(last))
	want := map[string]string{}
	for key, e := range s.scan(kv.AllKeys()) {
		want[key] = string(e.Value)
	}
	if !maps.Equal(state, want) {
		s.Fatalf("the watch folded to %d keys, the bucket has %d", len(state), len(want))
	}
	if halfway == nil {
		s.Fatal("there was no frontier on the way")
	}
	fold(halfway, s.open(kv.OpenRequest{After: cursor}).to(last))
	if !maps.Equal(halfway, want) {
		s.Fatalf("a resume after %v folded to %d keys, the bucket has %d", cursor, len(halfway), len(want))
	}
}

// What retention takes from under a live watch has been delivered before, or is an expiry: never a silent hole. On a log
// that evicts nothing the head moves by supersession, and a watch goes on.
func watchOverrun(s *suite) {
	if !s.info().Retention.EvictsCurrentValues {
		watchBurst(s)
		return
	}
	s.put("k.1", "x")
	r := s.open(kv.OpenRequest{})
	r.max = 3
	r.to(1)
	for i := 2; i <= 40; i++ {
		s.put(fmt.Sprintf("k.%d", i), "x")
	}
	s.must(s.target.Admin.EvictTo(s.ctx, 21))
	s.put("k.41", "x")
	next := uint64(2)
	for next <= 41 {
		d, err := r.next()
		if err != nil {
			s.is(err, kv.ErrCursorExpired)
			expired := as[*kv.ExpiredError](s, err)
			equal(s, "first", expired.First, 21)
			equal(s, "bucket", expired.Bucket, s.Name())
			if c := expired.Cursor.Revision(); c < r.newest || c > r.frontier {
				s.Fatalf("the error's cursor is %d, the frontier was %d after revision %d", c, r.frontier, r.newest)
			}
			return
		}
		for _, u := range d.Updates {
			equal(s, "revision, none left out", u.Version.Rank(), next)
			next++
		}
		if d.Frontier >= next {
			s.Fatalf("frontier %d, and revision %d was never delivered", d.Frontier, next)
		}
	}
}

// watchBurst rewrites every key of a small bucket faster than the watch reads.
func watchBurst(s *suite) {
	r := s.open(kv.OpenRequest{})
	r.max = 1
	last := map[string]string{}
	for i := range 300 {
		key, value := fmt.Sprintf("k.%d", i%3), fmt.Sprint(i)
		s.put(key, value)
		last[key] = value
	}
	got := map[string]string{}
	fold(got, r.to(300))
	if fmt.Sprint(got) != fmt.Sprint(last) {
		s.Fatalf("after a burst the watch shows %v, want %v", got, last)
	}
}

// Superseded messages leave holes inside the log, and those are no loss.
func watchInteriorGap(s *suite) {
	s.put("anchor", "x")
	r := s.open(kv.OpenRequest{})
	r.to(1)
	for range 50 {
		s.put("hot", "x")
	}
	got := r.to(51)
	s.expect(got[len(got)-1:], "hot@51 put")
	s.expect(s.open(kv.OpenRequest{After: kv.CursorAt(1)}).to(51), "hot@51 put")
}

func agedOut(s *suite) {
	s.put("anchor", "x")
	r := s.open(kv.OpenRequest{})
	r.to(1)
	s.must(s.target.Admin.PutAgedOut(s.ctx, "a", []byte("1")))
	marker := s.info().Last
	got := r.to(marker)
	if len(got) == 0 {
		s.Fatal("no marker was delivered")
	}
	u := got[len(got)-1]
	equal(s, "key", u.Key, "a")
	equal(s, "op", u.Op, kv.OpAgedOut)
	equal(s, "reason", u.Reason, kv.ReasonMaxAge)
	_, err := s.Get(s.ctx, "a")
	s.is(err, kv.ErrKeyNotFound)
	e, err := s.Entry(s.ctx, "a")
	if err == nil { // else the marker is gone by now too
		equal(s, "op of the entry", e.Op, kv.OpAgedOut)
		equal(s, "tombstone", e.IsTombstone(), true)
	} else if !errors.Is(err, kv.ErrKeyNotFound) {
		s.Fatal(err)
	}
	equal(s, "keys", len(s.keys(kv.AllKeys())), 1)
	_, err = s.Create(s.ctx, "a", []byte("2"), kv.PutOptions{})
	s.must(err)
}

// Markers that vanish from the inside leave no trace at the log's first revision: the window check passes, and a
// resume does not tell of the delete. This is what an audit is for; an adapter must not hide it.
func purgedMarkers(s *suite) {
	s.put("anchor", "x")
	s.put("a", "1")
	s.del("a")
	s.must(s.target.Admin.PurgeMarkers(s.ctx))
	s.put("c", "1")
	_, err := s.Entry(s.ctx, "a")
	s.is(err, kv.ErrKeyNotFound)
	info := s.info()
	equal(s, "first", info.First, 1)
	equal(s, "messages", info.Messages, 2)
	equal(s, "subjects", info.Subjects, 2)
	s.expect(s.open(kv.OpenRequest{After: kv.CursorAt(2)}).to(4), "c@4 put")
}
