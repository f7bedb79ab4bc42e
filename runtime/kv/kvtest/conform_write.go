package kvtest

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/typedfold/fold/runtime/kv"
)

var writeCases = []conformanceCase{
	{name: "PutGet", run: putGet},
	{name: "PutKeepsNoAlias", run: putKeepsNoAlias},
	{name: "ContentType", run: contentType},
	{name: "AbsentKey", run: absentKey},
	{name: "EmptyValueIsAValue", applies: func(c Capabilities) bool { return !c.EmptyPutIsTombstone }, run: emptyValue},
	{name: "EmptyValueIsATombstone", applies: func(c Capabilities) bool { return c.EmptyPutIsTombstone }, run: emptyTombstone},
	{name: "Delete", run: deletes},
	{name: "DeleteAt", run: deleteAt},
	{name: "Purge", applies: unsealed, run: purge},
	{name: "Create", run: creates},
	{name: "Update", run: updates},
	{name: "InvalidKeys", run: invalidKeys},
	{name: "EndedContext", run: endedContext},
	{name: "RacingCreates", run: racingCreates},
	{name: "RacingUpdates", run: racingUpdates},
	{name: "TTL", applies: func(c Capabilities) bool { return c.TTL }, run: putTTL},
	{name: "TTLRefused", applies: func(c Capabilities) bool { return !c.TTL }, run: putTTLRefused},
}

func putGet(s *suite) {
	if s.Name() == "" {
		s.Fatal("the bucket has no name")
	}
	large := string(bytes.Repeat([]byte("0123456789"), 20_000))
	var last kv.Version
	for _, value := range []string{"1", "2", "\x00\xff", large} {
		v := s.put("a.b/c=_-", value)
		if v.Rank() <= last.Rank() {
			s.Fatalf("version %v after %v", v, last)
		}
		last = v
		for _, read := range []func(context.Context, string) (kv.Entry, error){s.Get, s.Entry} {
			e, err := read(s.ctx, "a.b/c=_-")
			s.must(err)
			equal(s, "key", e.Key, "a.b/c=_-")
			equal(s, "value", string(e.Value), value)
			equal(s, "version", e.Version, v)
			equal(s, "op", e.Op, kv.OpPut)
			equal(s, "reason", e.Reason, kv.ReasonUser)
			equal(s, "tombstone", e.IsTombstone(), false)
			if e.UnixNano == 0 {
				s.Fatal("the entry has no time")
			}
		}
	}
}

func putKeepsNoAlias(s *suite) {
	value := []byte("before")
	_, err := s.Put(s.ctx, "a", value, kv.PutOptions{})
	s.must(err)
	copy(value, "after!")
	e, err := s.Get(s.ctx, "a")
	s.must(err)
	equal(s, "value", string(e.Value), "before")
}

func contentType(s *suite) {
	v, err := s.Put(s.ctx, "a", []byte("{}"), kv.PutOptions{ContentType: "application/json"})
	s.must(err)
	plain := s.put("b", "x")
	for key, want := range map[string]string{"a": "application/json", "b": ""} {
		e, err := s.Get(s.ctx, key)
		s.must(err)
		equal(s, "content type of a read", e.ContentType, want)
	}
	got := s.open(kv.OpenRequest{}).to(plain.Rank())
	equal(s, "updates", len(got), 2)
	equal(s, "content type of an update", got[0].ContentType, "application/json")
	equal(s, "content type of the other", got[1].ContentType, "")
	v, err = s.Update(s.ctx, "a", []byte("x"), v, kv.PutOptions{ContentType: "text/plain"})
	s.must(err)
	e, err := s.Get(s.ctx, "a")
	s.must(err)
	equal(s, "content type after an update", e.ContentType, "text/plain")
	equal(s, "version", e.Version, v)
	_, err = s.Create(s.ctx, "c", []byte("z"), kv.PutOptions{ContentType: "Application/X; charset=utf-8"})
	s.must(err)
	s.put("a", "y") // without one, the earlier one is gone
	want := map[string]string{"a": "", "b": "", "c": "Application/X; charset=utf-8"}
	scanned := map[string]string{}
	for e, err := range s.Scan(s.ctx, kv.Scope{}) {
		s.must(err)
		scanned[e.Key] = e.ContentType
	}
	for key, ct := range want {
		e, err := s.Entry(s.ctx, key)
		s.must(err)
		equal(s, "content type of the last message of "+key, e.ContentType, ct)
		equal(s, "content type of a scan of "+key, scanned[key], ct)
	}
}

func absentKey(s *suite) {
	s.put("other", "x")
	_, err := s.Get(s.ctx, "absent")
	s.is(err, kv.ErrKeyNotFound)
	_, err = s.Entry(s.ctx, "absent")
	s.is(err, kv.ErrKeyNotFound)
}

func emptyValue(s *suite) {
	v := s.put("a", "")
	for _, read := range []func(context.Context, string) (kv.Entry, error){s.Get, s.Entry} {
		e, err := read(s.ctx, "a")
		s.must(err)
		equal(s, "version", e.Version, v)
		equal(s, "length", len(e.Value), 0)
		equal(s, "op", e.Op, kv.OpPut)
	}
	equal(s, "keys", len(s.keys(kv.AllKeys())), 1)
	equal(s, "entries", len(s.scan(kv.AllKeys())), 1)
	_, err := s.Create(s.ctx, "a", nil, kv.PutOptions{})
	s.is(err, kv.ErrKeyExists)
	got := s.open(kv.OpenRequest{}).to(v.Rank())
	equal(s, "updates", len(got), 1)
	equal(s, "op of the update", got[0].Op, kv.OpPut)
}

func emptyTombstone(s *suite) {
	s.put("a", "x")
	v := s.put("a", "")
	s.gone("a", kv.OpDelete, v)
	equal(s, "keys", len(s.keys(kv.AllKeys())), 0)
	equal(s, "entries", len(s.scan(kv.AllKeys())), 0)
	s.expect(s.open(kv.OpenRequest{}).to(2), "a@2 delete")
	_, err := s.Create(s.ctx, "a", []byte("again"), kv.PutOptions{})
	s.must(err)
}

func (s *suite) gone(key string, op kv.Op, at kv.Version) {
	s.Helper()
	_, err := s.Get(s.ctx, key)
	s.is(err, kv.ErrKeyNotFound)
	e, err := s.Entry(s.ctx, key)
	s.must(err)
	equal(s, "op", e.Op, op)
	equal(s, "reason", e.Reason, kv.ReasonUser)
	equal(s, "version", e.Version, at)
	equal(s, "tombstone", e.IsTombstone(), true)
	equal(s, "length", len(e.Value), 0)
}

func deletes(s *suite) {
	put := s.put("a", "x")
	v := s.del("a")
	if v.Rank() <= put.Rank() {
		s.Fatalf("delete at %v after put at %v", v, put)
	}
	s.gone("a", kv.OpDelete, v)
	s.gone("never", kv.OpDelete, s.del("never"))
	again := s.put("a", "y")
	e, err := s.Get(s.ctx, "a")
	s.must(err)
	equal(s, "version", e.Version, again)
}

// conflict checks a refused write: typed, with the true current version, and nothing written.
func (s *suite) conflict(err error, key string, expected, current kv.Version, last uint64) {
	s.Helper()
	s.is(err, kv.ErrConflict)
	c := as[*kv.ConflictError](s, err)
	equal(s, "key", c.Key, key)
	equal(s, "expected", c.Expected, expected)
	equal(s, "current", c.Current, current)
	equal(s, "last revision", s.info().Last, last)
}

func deleteAt(s *suite) {
	old := s.put("a", "1")
	current := s.put("a", "2")
	last := s.put("other", "x").Rank()
	for _, purges := range []bool{false, true} {
		_, err := s.Delete(s.ctx, "a", kv.DeleteOptions{At: old, Purge: purges})
		s.conflict(err, "a", old, current, last)
		_, err = s.Delete(s.ctx, "never", kv.DeleteOptions{At: old, Purge: purges})
		s.conflict(err, "never", old, kv.Version{}, last)
	}
	v, err := s.Delete(s.ctx, "a", kv.DeleteOptions{At: current})
	s.must(err)
	s.gone("a", kv.OpDelete, v)
	_, err = s.Delete(s.ctx, "a", kv.DeleteOptions{At: current})
	s.conflict(err, "a", current, v, v.Rank())
}

func purge(s *suite) {
	at := s.put("a", "1")
	s.put("b", "1")
	v, err := s.Delete(s.ctx, "a", kv.DeleteOptions{At: at, Purge: true})
	s.must(err)
	s.gone("a", kv.OpPurge, v)
	v, err = s.Delete(s.ctx, "b", kv.DeleteOptions{Purge: true})
	s.must(err)
	s.gone("b", kv.OpPurge, v)
	equal(s, "messages", s.info().Messages, 2)
	_, err = s.Create(s.ctx, "b", []byte("2"), kv.PutOptions{})
	s.must(err)
}

func creates(s *suite) {
	v, err := s.Create(s.ctx, "a", []byte("1"), kv.PutOptions{})
	s.must(err)
	last := s.put("other", "x").Rank()
	_, err = s.Create(s.ctx, "a", []byte("2"), kv.PutOptions{})
	s.is(err, kv.ErrKeyExists)
	s.is(err, kv.ErrConflict)
	exists := as[*kv.ExistsError](s, err)
	equal(s, "key", exists.Key, "a")
	equal(s, "current", exists.Current, v)
	equal(s, "last revision", s.info().Last, last)

	_, err = s.Delete(s.ctx, "a", kv.DeleteOptions{At: v})
	s.must(err)
	again, err := s.Create(s.ctx, "a", []byte("3"), kv.PutOptions{})
	s.must(err)
	e, err := s.Get(s.ctx, "a")
	s.must(err)
	equal(s, "value", string(e.Value), "3")
	equal(s, "version", e.Version, again)
}

func updates(s *suite) {
	first := s.put("a", "1")
	second, err := s.Update(s.ctx, "a", []byte("2"), first, kv.PutOptions{})
	s.must(err)
	last := s.put("other", "x").Rank()
	for _, at := range []kv.Version{first, {}, kv.Revision(last), kv.Revision(last + 100)} {
		_, err = s.Update(s.ctx, "a", []byte("3"), at, kv.PutOptions{})
		s.conflict(err, "a", at, second, last)
	}
	_, err = s.Update(s.ctx, "never", []byte("3"), first, kv.PutOptions{})
	s.conflict(err, "never", first, kv.Version{}, last)

	made, err := s.Update(s.ctx, "new", []byte("1"), kv.Version{}, kv.PutOptions{})
	s.must(err)
	gone := s.del("new")
	_, err = s.Update(s.ctx, "new", []byte("2"), made, kv.PutOptions{})
	s.conflict(err, "new", made, gone, gone.Rank())
	_, err = s.Update(s.ctx, "new", []byte("2"), gone, kv.PutOptions{})
	s.must(err)
	e, err := s.Get(s.ctx, "new")
	s.must(err)
	equal(s, "value", string(e.Value), "2")
}

func invalidKeys(s *suite) {
	for _, key := range []string{"", ".", ".a", "a.", "a..b", "a b", "a*", ">", "a.>", "é", "a\n"} {
		_, err := s.Put(s.ctx, key, nil, kv.PutOptions{})
		s.is(err, kv.ErrInvalidKey)
		_, err = s.Create(s.ctx, key, nil, kv.PutOptions{})
		s.is(err, kv.ErrInvalidKey)
		_, err = s.Update(s.ctx, key, nil, kv.Revision(1), kv.PutOptions{})
		s.is(err, kv.ErrInvalidKey)
		_, err = s.Delete(s.ctx, key, kv.DeleteOptions{})
		s.is(err, kv.ErrInvalidKey)
		_, err = s.Get(s.ctx, key)
		s.is(err, kv.ErrInvalidKey)
		_, err = s.Entry(s.ctx, key)
		s.is(err, kv.ErrInvalidKey)
	}
	equal(s, "last revision", s.info().Last, 0)
}

func endedContext(s *suite) {
	last := s.put("a", "1").Rank()
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	_, err := s.Put(ctx, "a", nil, kv.PutOptions{})
	s.is(err, context.Canceled)
	_, err = s.Delete(ctx, "a", kv.DeleteOptions{})
	s.is(err, context.Canceled)
	_, err = s.Get(ctx, "a")
	s.is(err, context.Canceled)
	_, err = s.Info(ctx)
	s.is(err, context.Canceled)
	_, err = s.Open(ctx, kv.OpenRequest{})
	s.is(err, context.Canceled)
	n := 0
	for _, err = range s.Keys(ctx, kv.AllKeys()) {
		n++
	}
	s.is(err, context.Canceled)
	equal(s, "yields of a listing whose context has ended", n, 1)
	equal(s, "last revision", s.info().Last, last)
}

func racingCreates(s *suite) {
	const writers = 8
	versions := make([]kv.Version, writers)
	errs := make([]error, writers)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			versions[i], errs[i] = s.Create(s.ctx, "a", []byte(strconv.Itoa(i)), kv.PutOptions{})
		})
	}
	wg.Wait()
	winner := -1
	for i, err := range errs {
		if err == nil && winner >= 0 {
			s.Fatal("two creates of one key succeeded")
		}
		if err == nil {
			winner = i
		}
	}
	if winner < 0 {
		s.Fatalf("no create succeeded: %v", errs)
	}
	for i, err := range errs {
		if i != winner {
			equal(s, "current", as[*kv.ExistsError](s, err).Current, versions[winner])
		}
	}
	e, err := s.Get(s.ctx, "a")
	s.must(err)
	equal(s, "value", string(e.Value), strconv.Itoa(winner))
}

func racingUpdates(s *suite) {
	const writers, rounds = 4, 25
	s.put("n", "0")
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for done := 0; done < rounds; {
				e, err := s.Get(s.ctx, "n")
				if err != nil {
					s.Error(err)
					return
				}
				n, _ := strconv.Atoi(string(e.Value))
				_, err = s.Update(s.ctx, "n", []byte(strconv.Itoa(n+1)), e.Version, kv.PutOptions{})
				switch {
				case err == nil:
					done++
				case !errors.Is(err, kv.ErrConflict):
					s.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	e, err := s.Get(s.ctx, "n")
	s.must(err)
	equal(s, "value", string(e.Value), strconv.Itoa(writers*rounds))
}

func putTTL(s *suite) {
	_, err := s.Put(s.ctx, "a", []byte("1"), kv.PutOptions{TTL: time.Hour})
	s.must(err)
	e, err := s.Get(s.ctx, "a")
	s.must(err)
	equal(s, "value", string(e.Value), "1")
	equal(s, "evicts current values", s.info().Retention.EvictsCurrentValues, true)
}

func putTTLRefused(s *suite) {
	_, err := s.Put(s.ctx, "a", []byte("1"), kv.PutOptions{TTL: time.Hour})
	s.is(err, kv.ErrUnsupported)
	if e := as[*kv.UnsupportedError](s, err); e.Setting == "" {
		s.Fatal("the error does not name the setting")
	}
	equal(s, "last revision", s.info().Last, 0)
}
