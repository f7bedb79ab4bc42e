package kvtest

import (
	"bytes"
	"fmt"
	"math"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

var resumeCases = []conformanceCase{
	{name: "ResumeDelta", run: resumeDelta},
	{name: "ResumeAtHead", run: resumeAtHead},
	{name: "ResumeScoped", run: resumeScoped},
	{name: "ResumeIgnoresMemo", run: resumeIgnoresMemo},
	{name: "Expired", run: expired},
	{name: "EmptiedLog", run: emptiedLog},
	{name: "Replaced", run: replaced},
	{name: "ReplacedUnknown", run: replacedUnknown},
	{name: "Samples", run: samples},
	{name: "Identity", run: identity},
	{name: "CursorPastTheEnd", run: cursorPastTheEnd},
	{name: "CursorOfAnotherKind", run: cursorOfAnotherKind},
	{name: "Rewound", applies: func(c Capabilities) bool { return c.Rewind }, run: rewound},
}

// refused opens a watch that must not open, and returns why.
func (s *suite) refused(req kv.OpenRequest) error {
	s.Helper()
	w, err := s.Open(s.ctx, req)
	if err == nil {
		w.Close(s.ctx)
		s.Fatalf("a watch after %v opened", req.After)
	}
	return err
}

// changed checks a refusal for another log.
func (s *suite) changed(err error, kind error, cursor kv.Cursor, last uint64) *kv.LogChangedError {
	s.Helper()
	s.is(err, kind)
	e := as[*kv.LogChangedError](s, err)
	equal(s, "bucket", e.Bucket, s.Name())
	equal(s, "cursor", e.Cursor, cursor)
	equal(s, "last", e.Last, last)
	return e
}

func resumeDelta(s *suite) {
	s.put("anchor", "x")
	s.put("a", "1")
	s.put("b", "1")
	s.put("a", "2")
	s.del("b")
	both := []string{"a@4 put", "b@5 delete"}
	for after, want := range [][]string{1: both, 2: both, 3: both, 4: both[1:]} {
		if want != nil {
			s.expect(s.open(kv.OpenRequest{After: kv.CursorAt(uint64(after))}).to(5), want...)
		}
	}
	r := s.open(kv.OpenRequest{After: kv.CursorAt(4)})
	s.put("a", "3")
	s.expect(r.to(6), "b@5 delete", "a@6 put")
}

func resumeAtHead(s *suite) {
	s.put("a", "1")
	s.put("b", "1")
	r := s.open(kv.OpenRequest{After: kv.CursorAt(2)})
	s.expect(r.to(2))
	s.put("a", "2")
	s.expect(r.to(3), "a@3 put")
}

func resumeScoped(s *suite) {
	s.put("anchor", "x")
	for i := range 5 {
		s.put(fmt.Sprintf("n.%d", i), "x")
		s.put(fmt.Sprintf("no.%d", i), "x")
		s.put(fmt.Sprintf("m%d", i), "x")
	}
	s.expect(s.open(kv.OpenRequest{Scope: s.scope("n."), After: kv.CursorAt(8)}).to(16), "n.3@11 put", "n.4@14 put")
	s.expect(s.open(kv.OpenRequest{Scope: s.scope("m3", "no.4"), After: kv.CursorAt(2)}).to(16), "m3@13 put", "no.4@15 put")
	s.expect(s.open(kv.OpenRequest{Scope: s.scope("n."), After: kv.CursorAt(14)}).to(16))
}

// The memo is the fold's own: it changes nothing about where a watch begins.
func resumeIgnoresMemo(s *suite) {
	s.put("a", "1")
	s.put("b", "1")
	c := kv.CursorAt(1)
	c.SeenEvicting, c.WrittenAt = true, 1700000000000
	s.expect(s.open(kv.OpenRequest{After: c}).to(2), "b@2 put")
	s.expect(s.open(kv.OpenRequest{After: kv.Cursor{SeenEvicting: true}}).to(2), "a@1 put", "b@2 put")
}

func expired(s *suite) {
	for i := 1; i <= 8; i++ {
		s.put(fmt.Sprintf("k.%d", i), "x")
	}
	s.must(s.target.Admin.EvictTo(s.ctx, 5))
	known := kv.Incarnation{CreatedUnixNano: s.info().Created.UnixNano()}
	for _, scope := range []kv.Scope{kv.AllKeys(), s.scope("k.7"), s.scope("k.", "absent.")} {
		for after := uint64(1); after <= 3; after++ {
			err := s.refused(kv.OpenRequest{Scope: scope, After: kv.CursorAt(after), Known: known})
			s.is(err, kv.ErrCursorExpired)
			e := as[*kv.ExpiredError](s, err)
			equal(s, "bucket", e.Bucket, s.Name())
			equal(s, "cursor", e.Cursor, kv.CursorAt(after))
			equal(s, "first", e.First, 5)
		}
	}
	s.expect(s.open(kv.OpenRequest{After: kv.CursorAt(4), Known: known}).to(8), "k.5@5 put", "k.6@6 put", "k.7@7 put", "k.8@8 put")
	equal(s, "state", len(s.open(kv.OpenRequest{Known: known}).to(8)), 4)
}

// A log that lost all its messages still knows where it ended.
func emptiedLog(s *suite) {
	s.put("a", "1")
	s.put("b", "1")
	s.put("c", "1")
	s.must(s.target.Admin.EvictTo(s.ctx, 4))
	info := s.info()
	equal(s, "first", info.First, 4)
	equal(s, "last", info.Last, 3)
	equal(s, "messages", info.Messages, 0)
	s.expect(s.open(kv.OpenRequest{}).to(3))
	s.expect(s.open(kv.OpenRequest{After: kv.CursorAt(3)}).to(3))
	err := s.refused(kv.OpenRequest{After: kv.CursorAt(2)})
	s.is(err, kv.ErrCursorExpired)
	equal(s, "first in the error", as[*kv.ExpiredError](s, err).First, 4)
}

func replaced(s *suite) {
	for i := range 6 {
		s.put(fmt.Sprintf("old.%d", i), "x")
	}
	known := kv.Incarnation{CreatedUnixNano: s.info().Created.UnixNano()}
	s.open(kv.OpenRequest{After: kv.CursorAt(6), Known: known})
	s.must(s.target.Admin.Recreate(s.ctx))
	s.put("new.1", "x")
	s.put("new.2", "x")
	now := s.info().Created
	if now.UnixNano() == known.CreatedUnixNano {
		s.Fatal("the new log has the old one's creation time")
	}
	for _, after := range []uint64{0, 1, 2, 6, 100} {
		e := s.changed(s.refused(kv.OpenRequest{After: kv.CursorAt(after), Known: known}), kv.ErrLogReplaced, kv.CursorAt(after), 2)
		equal(s, "noted", e.NotedCreated.UnixNano(), known.CreatedUnixNano)
		equal(s, "created", e.Created.UnixNano(), now.UnixNano())
	}
	known.CreatedUnixNano = now.UnixNano()
	s.expect(s.open(kv.OpenRequest{Known: known}).to(2), "new.1@1 put", "new.2@2 put")
	// Another log outranks an expired window.
	s.must(s.target.Admin.EvictTo(s.ctx, 3))
	known.CreatedUnixNano--
	s.changed(s.refused(kv.OpenRequest{After: kv.CursorAt(1), Known: known}), kv.ErrLogReplaced, kv.CursorAt(1), 2)
}

// With nothing remembered, a shorter log is still seen for what it is.
func replacedUnknown(s *suite) {
	for i := range 6 {
		s.put(fmt.Sprintf("old.%d", i), "x")
	}
	s.must(s.target.Admin.Recreate(s.ctx))
	s.changed(s.refused(kv.OpenRequest{After: kv.CursorAt(6)}), kv.ErrLogRewound, kv.CursorAt(6), 0)
	s.put("new.1", "x")
	s.changed(s.refused(kv.OpenRequest{After: kv.CursorAt(6)}), kv.ErrLogRewound, kv.CursorAt(6), 1)
	s.expect(s.open(kv.OpenRequest{}).to(1), "new.1@1 put")
}

func samples(s *suite) {
	s.put("anchor", "x")
	s.put("a", "1")
	s.put("a", "2")
	s.put("b", "1")
	known := kv.Incarnation{CreatedUnixNano: s.info().Created.UnixNano()}
	for _, u := range s.open(kv.OpenRequest{}).to(4) {
		known.Samples = append(known.Samples, kv.Sample{Revision: u.Version.Rank(), UnixNano: u.UnixNano})
	}
	gone := kv.Sample{Revision: 2, UnixNano: known.Samples[0].UnixNano}
	s.expect(s.open(kv.OpenRequest{After: kv.CursorAt(3), Known: known}).to(4), "b@4 put")
	absent := kv.Incarnation{CreatedUnixNano: known.CreatedUnixNano, Samples: []kv.Sample{gone}}
	s.expect(s.open(kv.OpenRequest{After: kv.CursorAt(3), Known: absent}).to(4), "b@4 put")
	for i := range known.Samples {
		forged := kv.Incarnation{Samples: append([]kv.Sample{gone}, known.Samples...)}
		forged.Samples[i+1].UnixNano++
		s.changed(s.refused(kv.OpenRequest{After: kv.CursorAt(3), Known: forged}), kv.ErrLogRewound, kv.CursorAt(3), 4)
		s.changed(s.refused(kv.OpenRequest{Known: forged}), kv.ErrLogRewound, kv.Cursor{}, 4)
	}
}

// A watch says what its open could prove of the log: a sample that is where it was proves it, and one that is not there
// says nothing.
func identity(s *suite) {
	s.put("anchor", "x")
	s.put("a", "1")
	superseded := s.sampleOf(2)
	s.put("a", "2")
	s.put("b", "1")
	created := s.info().Created.UnixNano()
	for _, c := range []struct {
		known kv.Incarnation
		same  uint64 // the cursor that is known to be of this log
	}{
		{kv.Incarnation{}, 99},
		{kv.Incarnation{CreatedUnixNano: created}, 99},
		{kv.Incarnation{Samples: []kv.Sample{superseded}}, 99},
		{kv.Incarnation{CreatedUnixNano: created, Samples: []kv.Sample{superseded, {Revision: 900, UnixNano: 1}}}, 99},
		{kv.Incarnation{CreatedUnixNano: created, Samples: []kv.Sample{superseded, s.sampleOf(4)}}, 4},
		{kv.Incarnation{Samples: []kv.Sample{s.sampleOf(1)}}, 1},
	} {
		for _, after := range []uint64{0, 1, 4} {
			want := protocol.LogUnknown
			if after == c.same {
				want = protocol.LogSame
			}
			got := s.open(kv.OpenRequest{After: kv.CursorAt(after), Known: c.known}).w.Info().Identity
			if got != want {
				s.Fatalf("after %d, knowing %+v: %v, want %v", after, c.known, got, want)
			}
		}
	}
}

// sampleOf is the sample of a message that the log holds.
func (s *suite) sampleOf(rev uint64) kv.Sample {
	s.Helper()
	for _, u := range s.open(kv.OpenRequest{}).to(rev) {
		if u.Version.Rank() == rev {
			return kv.Sample{Revision: rev, UnixNano: u.UnixNano}
		}
	}
	s.Fatalf("revision %d was not delivered", rev)
	return kv.Sample{}
}

func cursorPastTheEnd(s *suite) {
	s.put("a", "1")
	for _, after := range []uint64{2, 3, 1000, math.MaxUint64 - 1, math.MaxUint64} {
		s.changed(s.refused(kv.OpenRequest{After: kv.CursorAt(after)}), kv.ErrLogRewound, kv.CursorAt(after), 1)
	}
}

// A cursor that is no revision names no place in this log; it must not be taken for "from the beginning".
func cursorOfAnotherKind(s *suite) {
	s.put("a", "1")
	for _, n := range []int{1, 7, 9, 10} {
		v, err := kv.ParseVersion(bytes.Repeat([]byte{1}, n))
		s.must(err)
		s.refused(kv.OpenRequest{After: kv.Cursor{Version: v}})
	}
}

func rewound(s *suite) {
	for i := 1; i <= 6; i++ {
		s.put(fmt.Sprintf("k.%d", i), "x")
	}
	known := kv.Incarnation{CreatedUnixNano: s.info().Created.UnixNano()}
	for _, u := range s.open(kv.OpenRequest{}).to(6) {
		known.Samples = append(known.Samples, kv.Sample{Revision: u.Version.Rank(), UnixNano: u.UnixNano})
	}
	s.must(s.target.Admin.Rewind(s.ctx, 3))
	equal(s, "last", s.info().Last, 3)
	equal(s, "created", s.info().Created.UnixNano(), known.CreatedUnixNano)
	s.changed(s.refused(kv.OpenRequest{After: kv.CursorAt(6), Known: known}), kv.ErrLogRewound, kv.CursorAt(6), 3)
	s.expect(s.open(kv.OpenRequest{After: kv.CursorAt(2), Known: kv.Incarnation{CreatedUnixNano: known.CreatedUnixNano, Samples: known.Samples[:3]}}).to(3), "k.3@3 put")
	// Once other messages stand at the sampled revisions, the end alone no longer shows it.
	for i := range 5 {
		s.put(fmt.Sprintf("other.%d", i), "x")
	}
	s.changed(s.refused(kv.OpenRequest{After: kv.CursorAt(6), Known: known}), kv.ErrLogRewound, kv.CursorAt(6), 8)
}
