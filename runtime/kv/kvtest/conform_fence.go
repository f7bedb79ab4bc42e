package kvtest

import (
	"errors"
	"slices"
	"strings"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// fences is whether a bucket can be fenced, which the suite checks where it can.
func fences(g *Target) bool {
	_, ok := g.Bucket.(kv.Fencer)
	return ok
}

var fenceCases = []conformanceCase{
	{name: "Fence", run: fenceRecords},
	{name: "FencedWrites", run: fencedWrites},
	{name: "FencedBatches", run: fencedBatches},
	{name: "FencedPurge", applies: unsealed, run: fencedPurge},
	{name: "FencedTTL", applies: func(c Capabilities) bool { return c.TTL }, run: fencedTTL},
	{name: "FenceProof", run: fenceProof},
	{name: "FenceOfLater", run: fenceOfLater},
	{name: "FenceUnreadable", run: fenceUnreadable},
	{name: "ReservedKeys", run: reservedKeys},
}

func (s *suite) fencer() kv.Fencer { return s.Bucket.(kv.Fencer) }

// fence installs a token, and gives the revision of its record.
func (s *suite) fence(token string) uint64 {
	s.Helper()
	last, err := s.fencer().InstallFence(s.ctx, token)
	s.must(err)
	rec, err := s.fencer().FenceRecord(s.ctx)
	s.must(err)
	if rec.Token != token || rec.Revision+protocol.FenceKeys-1 != last.Rank() || s.info().Last != last.Rank() {
		s.Fatalf("record %+v, the fence is at %v, the log at %d", rec, last, s.info().Last)
	}
	return rec.Revision
}

// moved fails unless the error is of a fence that moved, and the log has not.
func (s *suite) moved(last uint64, err error) {
	s.Helper()
	var moved *kv.FenceMovedError
	if !errors.As(err, &moved) || !errors.Is(err, kv.ErrFenceMoved) || errors.Is(err, kv.ErrConflict) {
		s.Fatalf("a write under another fence: %v", err)
	}
	if now := s.info().Last; now != last {
		s.Fatalf("a write under another fence moved the log from %d to %d", last, now)
	}
}

func fenceRecords(s *suite) {
	if _, err := s.fencer().FenceRecord(s.ctx); !errors.Is(err, kv.ErrKeyNotFound) {
		s.Fatalf("the record of a bucket without one: %v", err)
	}
	before := s.put("k", "1").Rank()
	first := s.fence("")
	if first != before+1 {
		s.Fatalf("the record is at %d, the log was at %d", first, before)
	}
	for _, token := range []string{"a", strings.Repeat("é", kv.MaxFencingToken/2), `"\<>&` + "\u2028\x00", "a", ""} {
		if again := s.fence(token); again <= first {
			s.Fatalf("the record went from %d to %d", first, again)
		}
	}
	last := s.info().Last
	for _, token := range []string{strings.Repeat("x", kv.MaxFencingToken+1), "\xff"} {
		if _, err := s.fencer().InstallFence(s.ctx, token); !errors.Is(err, kv.ErrFencingToken) {
			s.Fatalf("token %q: %v", token, err)
		}
	}
	if now := s.info().Last; now != last {
		s.Fatalf("a token that none can be moved the log from %d to %d", last, now)
	}
}

func fencedWrites(s *suite) {
	old := s.fence("a")
	at := s.fence("b")
	put := kv.PutOptions{Fence: at}
	for range 3 * protocol.FenceKeys { // each of the keys is asked
		_, err := s.Put(s.ctx, "put", []byte("1"), put)
		s.must(err)
	}
	v, err := s.Create(s.ctx, "k", []byte("1"), put)
	s.must(err)
	var exists *kv.ExistsError
	if _, err := s.Create(s.ctx, "k", []byte("2"), put); !errors.As(err, &exists) || exists.Current != v {
		s.Fatalf("create of what is there: %v", err)
	}
	var conflict *kv.ConflictError
	if _, err := s.Update(s.ctx, "k", []byte("2"), kv.Revision(v.Rank()-1), put); !errors.As(err, &conflict) || conflict.Current != v {
		s.Fatalf("update at another revision: %v", err)
	}
	v, err = s.Update(s.ctx, "k", []byte("2"), v, put)
	s.must(err)
	if e, err := s.Get(s.ctx, "k"); err != nil || string(e.Value) != "2" || e.Version != v || s.info().Last != v.Rank() {
		s.Fatalf("the update is %v %q at the log's %d, %v; it said %v", e.Version, e.Value, s.info().Last, err, v)
	}
	if _, err := s.Delete(s.ctx, "k", kv.DeleteOptions{At: kv.Revision(v.Rank() - 1), Fence: at}); !errors.As(err, &conflict) {
		s.Fatalf("delete at another revision: %v", err)
	}
	_, err = s.Delete(s.ctx, "k", kv.DeleteOptions{At: v, Fence: at})
	s.must(err)
	_, err = s.Create(s.ctx, "k", []byte("3"), put) // over its marker
	s.must(err)
	v, err = s.Delete(s.ctx, "k", kv.DeleteOptions{Fence: at})
	s.must(err)
	last := v.Rank()
	for _, fence := range []uint64{old, at - 1, 1} {
		put := kv.PutOptions{Fence: fence}
		_, err := s.Put(s.ctx, "put", []byte("9"), put)
		s.moved(last, err)
		_, err = s.Create(s.ctx, "new", []byte("9"), put)
		s.moved(last, err)
		_, err = s.Create(s.ctx, "put", []byte("9"), put) // the fence comes first
		s.moved(last, err)
		_, err = s.Update(s.ctx, "k", []byte("9"), v, put)
		s.moved(last, err)
		_, err = s.Delete(s.ctx, "put", kv.DeleteOptions{Fence: fence})
		s.moved(last, err)
		_, err = s.Delete(s.ctx, "k", kv.DeleteOptions{Fence: fence, At: v})
		s.moved(last, err)
	}
}

func fencedBatches(s *suite) {
	w, ok := s.Bucket.(kv.Batcher)
	if !ok {
		s.Fatal("a bucket that can be fenced writes batches")
	}
	old := s.fence("a")
	at := s.fence("b")
	commit := func(fence uint64, ops ...kv.BatchOp) (kv.Version, error) {
		return w.WriteBatch(s.ctx, kv.Batch{Ops: ops, Fence: fence})
	}
	v, err := commit(at, createOp("a", "1"), createOp("b", "1")) // each asks for its key's revision
	s.must(err)
	v, err = commit(at, updateOp("a", "2", kv.Revision(v.Rank()-1)), putOp("c", "2"), updateOp("b", "2", v), deleteOp("d", kv.Version{}))
	s.must(err)
	for i, key := range []string{"a", "c", "b"} {
		if e, err := s.Get(s.ctx, key); err != nil || string(e.Value) != "2" || e.Version.Rank() != v.Rank()-3+uint64(i) {
			s.Fatalf("%s is %q at %v, %v; the batch ended at %v", key, e.Value, e.Version, err, v)
		}
	}
	tail := v.Rank()
	matched := func(fence, tail uint64, ops ...kv.BatchOp) (kv.Version, error) {
		return w.WriteBatch(s.ctx, kv.Batch{Ops: ops, Fence: fence, Match: &tail})
	}
	_, err = matched(old, tail, putOp("a", "9"), putOp("b", "9"))
	s.moved(tail, err)
	_, err = matched(old, tail-1, createOp("a", "9"))
	s.moved(tail, err)
	_, err = commit(old, updateOp("a", "9", v), createOp("b", "9"))
	s.moved(tail, err)
	var match *kv.MatchError
	if _, err := matched(at, tail-1, createOp("x", "9"), createOp("y", "9")); !errors.As(err, &match) || match.Got != tail {
		s.Fatalf("a batch after another revision: %v", err)
	}
	var of *kv.BatchError
	if _, err := commit(at, createOp("x", "9"), createOp("a", "9")); !errors.As(err, &of) || of.Index != 1 || !errors.Is(err, kv.ErrKeyExists) {
		s.Fatalf("a batch that creates what is there: %v", err)
	}
	v, err = matched(at, tail, createOp("x", "3"), createOp("y", "3"))
	s.must(err)
	v, err = matched(at, v.Rank(), putOp("x", "4"))
	s.must(err)
	// The most that a batch may have, with and without an operation that has no revision to ask for.
	full := make([]kv.BatchOp, kv.MaxBatch)
	for i := range full {
		full[i] = createOp("many."+string(rune('a'+i%26))+"."+strings.Repeat("i", i/26+1), "1")
	}
	var size *kv.BatchSizeError
	if _, err := commit(at, full...); err != nil && (!errors.As(err, &size) || size.Limit != kv.MaxBatch-1 || s.info().Last != v.Rank()) {
		s.Fatalf("a full batch in which each operation asks for a revision: %v", err)
	} else if err == nil {
		return // this bucket can ask for more at once
	}
	full[7].Kind = kv.BatchPut
	_, err = commit(at, full...)
	s.must(err)
	if _, err := commit(0, kv.BatchOp{Kind: kv.BatchPut, Key: "k", Put: kv.PutOptions{Fence: at}}); err == nil {
		s.Fatal("an operation has a fence of its own")
	}
}

func fencedPurge(s *suite) {
	old := s.fence("a")
	at := s.fence("b")
	v := s.put("k", "1")
	_, err := s.Delete(s.ctx, "k", kv.DeleteOptions{At: v, Purge: true, Fence: at})
	s.must(err)
	s.put("k", "1")
	last, err := s.Delete(s.ctx, "k", kv.DeleteOptions{Purge: true, Fence: at})
	s.must(err)
	_, err = s.Delete(s.ctx, "k", kv.DeleteOptions{Purge: true, Fence: old})
	s.moved(last.Rank(), err)
}

func fencedTTL(s *suite) {
	put := kv.PutOptions{Fence: s.fence("a"), TTL: 1e9 * 3600, ContentType: "text/plain"}
	v, err := s.Put(s.ctx, "k", []byte("1"), put)
	s.must(err)
	_, err = s.Update(s.ctx, "k", []byte("2"), v, put)
	s.must(err)
	if e, err := s.Get(s.ctx, "k"); err != nil || e.ContentType != "text/plain" {
		s.Fatalf("%+v, %v", e, err)
	}
}

func fenceProof(s *suite) {
	at := s.fence("a")
	s.put("k", "1")
	for range 2 * protocol.FenceKeys {
		v, err := s.fencer().ProveFence(s.ctx, at)
		s.must(err)
		if last := s.info().Last; v.Rank() != last {
			s.Fatalf("the proof is at %v, the log at %d", v, last)
		}
	}
	now := s.fence("b")
	last := s.info().Last
	_, err := s.fencer().ProveFence(s.ctx, at)
	s.moved(last, err)
	_, err = s.fencer().ProveFence(s.ctx, now)
	s.must(err)
}

// A record of another log, which was longer: a read that shows an older record than was refused may be an old one.
func fenceOfLater(s *suite) {
	last := s.fence("a") + protocol.FenceKeys - 1
	_, err := s.Put(s.ctx, "k", []byte("1"), kv.PutOptions{Fence: last + 1})
	if !errors.Is(err, kv.ErrNotWritten) && !errors.Is(err, kv.ErrFenceMoved) || s.info().Last != last {
		s.Fatalf("a fence that the log does not have yet: %v; the log went from %d to %d", err, last, s.info().Last)
	}
}

// What a record that can't be read is told as is not that of a bucket without one.
func fenceUnreadable(s *suite) {
	for _, value := range []string{"", "x", `{"format":2,"token":"a","keys":64}`, `{"format":1,"token":"a","keys":3}`} {
		_, err := kv.ReadFenceRecord("b", &kv.Entry{Update: kv.Update{Op: kv.OpPut, Value: []byte(value), Version: kv.Revision(7)}})
		var bad *kv.FenceRecordError
		if !errors.As(err, &bad) || bad.Revision != 7 || bad.Hint() == "" || errors.Is(err, kv.ErrKeyNotFound) {
			s.Errorf("record %q: %v", value, err)
		}
	}
}

// reservedKeys: nobody writes them, and who asks for keys is not shown them. The log's own listings have them, since a
// listing that is shorter than the log's count is refused.
func reservedKeys(s *suite) {
	s.put("k", "1")
	s.put("_folded.k", "1")
	s.fence("a")
	for _, key := range []string{"_fold", "_fold.x", kv.FenceKey(0), kv.CheckKey(1)} {
		var bad *kv.KeyError
		if _, err := s.Put(s.ctx, key, nil, kv.PutOptions{}); !errors.As(err, &bad) {
			s.Errorf("put %s: %v", key, err)
		}
		if _, err := s.Delete(s.ctx, key, kv.DeleteOptions{}); !errors.As(err, &bad) {
			s.Errorf("delete %s: %v", key, err)
		}
		if !kv.Reserved(key) {
			s.Errorf("%s is not reserved", key)
		}
	}
	if _, err := kv.Prefixes("_fold.fence."); !errors.Is(err, kv.ErrInvalidKey) {
		s.Errorf("a scope of reserved keys: %v", err)
	}
	want := []string{"_folded.k", "k"}
	var keys, entries []string
	for k, err := range s.Keys(s.ctx, kv.AllKeys()) {
		s.must(err)
		keys = append(keys, k.Key)
	}
	for e, err := range s.Scan(s.ctx, s.scope("_f", "k")) {
		s.must(err)
		entries = append(entries, e.Key)
	}
	slices.Sort(keys)
	slices.Sort(entries)
	if !slices.Equal(keys, want) || !slices.Equal(entries, want) {
		s.Errorf("keys %q, entries %q", keys, entries)
	}
	if listed := s.lastVersions(kv.AllKeys()); uint64(len(listed)) != s.info().Subjects {
		s.Errorf("%d last versions of %d keys", len(listed), s.info().Subjects)
	}
}
