package kvtest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/typedfold/fold/runtime/kv"
)

// batches is whether a bucket writes batches, which the suite checks where it does.
func batches(g *Target) bool {
	_, ok := g.Bucket.(kv.Batcher)
	return ok
}

var batchCases = []conformanceCase{
	{name: "Batch", run: batchWrites},
	{name: "BatchConflict", run: batchConflict},
	{name: "BatchCreate", run: batchCreate},
	{name: "BatchCreateOverMarker", applies: func(c Capabilities) bool { return c.AgeOut }, run: batchCreateOverMarker},
	{name: "BatchMatch", run: batchMatch},
	{name: "BatchPurge", applies: unsealed, run: batchPurge},
	{name: "BatchPurgeRefused", applies: func(c Capabilities) bool { return c.Sealed }, run: batchPurgeRefused},
	{name: "BatchTTL", applies: func(c Capabilities) bool { return c.TTL }, run: batchTTL},
	{name: "BatchTTLRefused", applies: func(c Capabilities) bool { return !c.TTL }, run: batchTTLRefused},
	{name: "BatchRefusedLocally", run: batchRefusedLocally},
	{name: "BatchOfManyAndTooMany", run: batchOfMany},
	{name: "BatchWatched", run: batchWatched},
	{name: "BatchesKeepASum", run: batchesKeepASum},
}

func (s *suite) batch(ops ...kv.BatchOp) (kv.Version, error) {
	return s.Bucket.(kv.Batcher).WriteBatch(s.ctx, kv.Batch{Ops: ops})
}

func (s *suite) matched(tail uint64, ops ...kv.BatchOp) (kv.Version, error) {
	return s.Bucket.(kv.Batcher).WriteBatch(s.ctx, kv.Batch{Ops: ops, Match: &tail})
}

func putOp(key, value string) kv.BatchOp {
	return kv.BatchOp{Kind: kv.BatchPut, Key: key, Value: []byte(value)}
}

func createOp(key, value string) kv.BatchOp {
	return kv.BatchOp{Kind: kv.BatchCreate, Key: key, Value: []byte(value)}
}

func updateOp(key, value string, at kv.Version) kv.BatchOp {
	return kv.BatchOp{Kind: kv.BatchUpdate, Key: key, Value: []byte(value), At: at}
}

func deleteOp(key string, at kv.Version) kv.BatchOp {
	return kv.BatchOp{Kind: kv.BatchDelete, Key: key, At: at}
}

// has fails unless the key has the value at the revision.
func (s *suite) has(key, value string, rev uint64) {
	s.Helper()
	e, err := s.Get(s.ctx, key)
	s.must(err)
	equal(s, "value of "+key, string(e.Value), value)
	equal(s, "version of "+key, e.Version, kv.Revision(rev))
}

// blames checks that a batch failed for one operation, and wrote nothing.
func (s *suite) blames(err error, index int, key string, last uint64) {
	s.Helper()
	e := as[*kv.BatchError](s, err)
	equal(s, "operation", e.Index, index)
	equal(s, "key", e.Key, key)
	equal(s, "last revision", s.info().Last, last)
}

func batchWrites(s *suite) {
	a := s.put("a", "1")
	b := s.put("b", "1")
	c := s.put("c", "1").Rank()
	v, err := s.batch(updateOp("a", "2", a), putOp("new", "x"), createOp("d", "1"), deleteOp("b", b), deleteOp("never", kv.Version{}),
		kv.BatchOp{Kind: kv.BatchPut, Key: "c", Value: []byte("{}"), Put: kv.PutOptions{ContentType: "application/json"}})
	s.must(err)
	equal(s, "version", v, kv.Revision(c+6))
	s.has("a", "2", c+1)
	s.has("new", "x", c+2)
	s.has("d", "1", c+3)
	s.gone("b", kv.OpDelete, kv.Revision(c+4))
	s.gone("never", kv.OpDelete, kv.Revision(c+5))
	s.has("c", "{}", c+6)
	e, err := s.Get(s.ctx, "c")
	s.must(err)
	equal(s, "content type", e.ContentType, "application/json")
	v, err = s.batch(putOp("a", "3"))
	s.must(err)
	s.has("a", "3", v.Rank())
	v, err = s.batch()
	s.must(err)
	equal(s, "version of an empty batch", v, kv.Version{})
	equal(s, "last revision", s.info().Last, c+7)
}

func batchConflict(s *suite) {
	old := s.put("a", "1")
	current := s.put("a", "2")
	b := s.put("b", "1")
	last := b.Rank()
	_, err := s.batch(putOp("x", "1"), updateOp("b", "2", b), updateOp("a", "3", old), putOp("y", "1"))
	s.conflict(err, "a", old, current, last)
	s.blames(err, 2, "a", last)
	_, err = s.batch(deleteOp("b", b), deleteOp("a", old))
	s.conflict(err, "a", old, current, last)
	s.blames(err, 1, "a", last)
	_, err = s.batch(putOp("b", "2"), updateOp("never", "1", old))
	s.conflict(err, "never", old, kv.Version{}, last)
	_, err = s.batch(updateOp("a", "3", kv.Version{}), putOp("b", "2"))
	s.conflict(err, "a", kv.Version{}, current, last)
	_, err = s.batch(updateOp("a", "3", old), updateOp("b", "3", old)) // both; the first one is told
	s.blames(err, 0, "a", last)
	s.has("a", "2", current.Rank())
	s.has("b", "1", b.Rank())
	_, err = s.Entry(s.ctx, "x")
	s.is(err, kv.ErrKeyNotFound)
}

func batchCreate(s *suite) {
	a := s.put("a", "1")
	s.put("gone", "1")
	last := s.del("gone").Rank()
	_, err := s.batch(createOp("new", "1"), createOp("gone", "2"), createOp("a", "2"))
	s.blames(err, 2, "a", last)
	equal(s, "current", as[*kv.ExistsError](s, err).Current, a)
	s.is(err, kv.ErrKeyExists)
	v, err := s.batch(createOp("new", "1"), createOp("gone", "2"), putOp("a", "2"))
	s.must(err)
	equal(s, "version", v, kv.Revision(last+3))
	s.has("gone", "2", last+2)
	_, err = s.batch(createOp("new", "1"))
	s.is(err, kv.ErrKeyExists)
	s.must(s.target.Admin.EvictTo(s.ctx, last+4)) // aged out, and no marker tells of it
	_, err = s.batch(createOp("new", "3"), createOp("gone", "3"))
	s.must(err)
	s.has("new", "3", last+4)
}

func batchCreateOverMarker(s *suite) {
	s.must(s.target.Admin.PutAgedOut(s.ctx, "a", []byte("1")))
	last := s.info().Last
	_, err := s.batch(putOp("b", "1"), createOp("a", "2"))
	s.must(err)
	s.has("a", "2", last+2)
}

func batchMatch(s *suite) {
	_, err := s.matched(1, putOp("a", "1"))
	e := as[*kv.MatchError](s, err)
	equal(s, "want", e.Want, 1)
	equal(s, "got", e.Got, 0)
	v, err := s.matched(0, putOp("a", "1"), putOp("b", "1"))
	s.must(err)
	equal(s, "version", v, kv.Revision(2))
	_, err = s.matched(1, putOp("a", "2"), putOp("b", "2"))
	e = as[*kv.MatchError](s, err)
	equal(s, "want", e.Want, 1)
	equal(s, "got", e.Got, 2)
	equal(s, "bucket", e.Bucket, s.Name())
	s.is(err, kv.ErrConflict)
	equal(s, "last revision", s.info().Last, 2)
	v, err = s.matched(2, updateOp("a", "2", kv.Revision(1)), createOp("c", "1"))
	s.must(err)
	equal(s, "version", v, kv.Revision(4))
	_, err = s.matched(4, createOp("a", "3"))
	s.blames(err, 0, "a", 4)
	s.del("a")
	_, err = s.matched(5, putOp("b", "3"), createOp("a", "3")) // over a tombstone
	s.must(err)
}

func batchPurge(s *suite) {
	at := s.put("a", "1")
	s.put("b", "1")
	v, err := s.batch(kv.BatchOp{Kind: kv.BatchDelete, Key: "a", At: at, Purge: true}, kv.BatchOp{Kind: kv.BatchDelete, Key: "b", Purge: true}, putOp("c", "1"))
	s.must(err)
	s.gone("a", kv.OpPurge, kv.Revision(v.Rank()-2))
	s.gone("b", kv.OpPurge, kv.Revision(v.Rank()-1))
}

func batchPurgeRefused(s *suite) {
	last := s.put("a", "1").Rank()
	_, err := s.batch(putOp("b", "1"), kv.BatchOp{Kind: kv.BatchDelete, Key: "a", Purge: true})
	s.is(err, kv.ErrUnsupported)
	s.blames(err, 1, "a", last)
}

func batchTTL(s *suite) {
	_, err := s.batch(putOp("a", "1"), kv.BatchOp{Kind: kv.BatchCreate, Key: "b", Value: []byte("1"), Put: kv.PutOptions{TTL: time.Hour}})
	s.must(err)
	s.has("b", "1", 2)
}

func batchTTLRefused(s *suite) {
	last := s.put("a", "1").Rank()
	_, err := s.batch(putOp("a", "2"), kv.BatchOp{Kind: kv.BatchPut, Key: "b", Value: []byte("1"), Put: kv.PutOptions{TTL: time.Hour}})
	s.is(err, kv.ErrUnsupported)
	s.blames(err, 1, "b", last)
}

func batchRefusedLocally(s *suite) {
	last := s.put("a", "1").Rank()
	_, err := s.batch(putOp("b", "1"), putOp("a..b", "1"))
	s.is(err, kv.ErrInvalidKey)
	s.blames(err, 1, "a..b", last)
	_, err = s.batch(putOp("b", "1"), putOp("c", "1"), deleteOp("b", kv.Version{}))
	s.blames(err, 2, "b", last)
	twice := as[*kv.DuplicateKeyError](s, err)
	equal(s, "first", twice.First, 0)
	equal(s, "second", twice.Second, 2)
	_, err = s.batch(putOp("b", "1"), kv.BatchOp{Key: "c"})
	s.blames(err, 1, "c", last)
	_, err = s.batch(kv.BatchOp{Kind: kv.BatchDelete, Key: "a", Value: []byte("1")})
	s.blames(err, 0, "a", last)
	_, err = s.batch(kv.BatchOp{Kind: kv.BatchPut, Key: "a", Purge: true})
	s.blames(err, 0, "a", last)
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	_, err = s.Bucket.(kv.Batcher).WriteBatch(ctx, kv.Batch{Ops: []kv.BatchOp{putOp("a", "2")}})
	s.is(err, context.Canceled)
	equal(s, "last revision", s.info().Last, last)
}

func batchOfMany(s *suite) {
	ops := make([]kv.BatchOp, kv.MaxBatch+1)
	for i := range ops {
		ops[i] = createOp(fmt.Sprintf("k.%d", i), strconv.Itoa(i))
	}
	_, err := s.batch(ops...)
	e := as[*kv.BatchSizeError](s, err)
	equal(s, "operations", e.Ops, kv.MaxBatch+1)
	equal(s, "limit", e.Limit, kv.MaxBatch)
	equal(s, "last revision", s.info().Last, 0)
	v, err := s.batch(ops[:kv.MaxBatch]...)
	s.must(err)
	equal(s, "version", v, kv.Revision(kv.MaxBatch))
	equal(s, "entries", len(s.scan(kv.AllKeys())), kv.MaxBatch)
	_, err = s.batch(ops[1:]...)
	s.blames(err, 0, "k.1", kv.MaxBatch)
}

func batchWatched(s *suite) {
	s.put("z", "1")
	r := s.open(kv.OpenRequest{})
	r.to(1)
	s.must(func() error {
		_, err := s.batch(putOp("b", "1"), deleteOp("z", kv.Version{}), putOp("a", "1"))
		return err
	}())
	s.expect(r.to(4), "b@2 put", "z@3 delete", "a@4 put")
}

// batchesKeepASum has writers move amounts between accounts by batches of two updates. What they were told makes up the
// log: every revision belongs to one of them, its half of a move is next to the other, each update follows the one that it
// expected, and so the sum is the same after every move. A new watch sees nothing else.
func batchesKeepASum(s *suite) {
	const accounts, writers, each, amount = 4, 6, 8, 100
	b := &bank{s: s, log: map[uint64]kv.BatchOp{}}
	var ops []kv.BatchOp
	for i := range accounts {
		ops = append(ops, createOp(fmt.Sprintf("acct.%d", i), strconv.Itoa(amount)))
	}
	opened, err := s.batch(ops...)
	s.must(err)
	b.note(opened, ops)
	var wg sync.WaitGroup
	errs := make([]error, writers)
	for w := range writers {
		wg.Go(func() {
			for i := 0; i < each && errs[w] == nil; i++ {
				errs[w] = b.move((w+i)%accounts, (w+i+1+i%(accounts-1))%accounts, 1+i)
			}
		})
	}
	wg.Wait()
	s.must(errors.Join(errs...))
	last := uint64(accounts + 2*writers*each)
	equal(s, "last revision", s.info().Last, last)
	b.check(accounts, accounts*amount, last)
	for _, u := range s.open(kv.OpenRequest{}).to(last) {
		equal(s, "key that the watch has", u.Key, b.log[u.Version.Rank()].Key)
		equal(s, "value that the watch has", string(u.Value), string(b.log[u.Version.Rank()].Value))
	}
	for key, e := range s.scan(kv.AllKeys()) {
		equal(s, "value at the end", string(e.Value), string(b.log[e.Version.Rank()].Value))
		equal(s, "key at the end", key, b.log[e.Version.Rank()].Key)
	}
}

// bank is accounts, and the log as the writers were told of it.
type bank struct {
	s   *suite
	mu  sync.Mutex
	log map[uint64]kv.BatchOp
}

func (b *bank) note(last kv.Version, ops []kv.BatchOp) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, op := range ops {
		b.log[last.Rank()-uint64(len(ops)-1-i)] = op
	}
}

// move moves an amount from one account to another, however often others are faster.
func (b *bank) move(from, to, amount int) error {
	for {
		var ops []kv.BatchOp
		for _, side := range []struct{ account, by int }{{from, -amount}, {to, amount}} {
			e, err := b.s.Get(b.s.ctx, fmt.Sprintf("acct.%d", side.account))
			if err != nil {
				return err
			}
			n, err := strconv.Atoi(string(e.Value))
			if err != nil {
				return err
			}
			ops = append(ops, updateOp(e.Key, strconv.Itoa(n+side.by), e.Version))
		}
		v, err := b.s.batch(ops...)
		if errors.Is(err, kv.ErrConflict) {
			continue
		}
		if err == nil {
			b.note(v, ops)
		}
		return err
	}
}

func (b *bank) check(opened, want int, last uint64) {
	s := b.s
	s.Helper()
	balance, at := map[string]int{}, map[string]uint64{}
	for rev := uint64(1); rev <= last; rev++ {
		op, ok := b.log[rev]
		if !ok {
			s.Fatalf("revision %d is of no batch that a writer was told of", rev)
		}
		if op.Kind == kv.BatchUpdate {
			equal(s, fmt.Sprintf("revision that revision %d expected", rev), op.At.Rank(), at[op.Key])
		}
		n, err := strconv.Atoi(string(op.Value))
		s.must(err)
		balance[op.Key], at[op.Key] = n, rev
		if whole := rev - uint64(opened); rev >= uint64(opened) && whole%2 == 0 {
			sum := 0
			for _, n := range balance {
				sum += n
			}
			equal(s, fmt.Sprintf("sum at revision %d", rev), sum, want)
		}
	}
}
