package kvtest

import (
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

var listCases = []conformanceCase{
	{name: "ListEmpty", run: listEmpty},
	{name: "ListFiltersTombstones", applies: unsealed, run: listTombstones},
	{name: "ListManyKeys", run: listManyKeys},
	{name: "ListStopsEarly", run: listStopsEarly},
	{name: "Scopes", run: scopes},
	{name: "Info", run: infos},
}

func (s *suite) keys(scope kv.Scope) map[string]kv.Version {
	s.Helper()
	out := map[string]kv.Version{}
	for k, err := range s.Keys(s.ctx, scope) {
		s.must(err)
		equal(s, "operation of "+k.Key, k.Op, kv.OpPut)
		if _, twice := out[k.Key]; twice {
			s.Fatalf("key %q was listed twice", k.Key)
		}
		out[k.Key] = k.Version
	}
	return out
}

func (s *suite) scan(scope kv.Scope) map[string]kv.Entry {
	s.Helper()
	out := map[string]kv.Entry{}
	for e, err := range s.Scan(s.ctx, scope) {
		s.must(err)
		if _, twice := out[e.Key]; twice {
			s.Fatalf("entry %q was scanned twice", e.Key)
		}
		out[e.Key] = e
	}
	return out
}

// listed checks all listings of a scope against what is expected.
func (s *suite) listed(scope kv.Scope, want map[string]kv.Version) {
	s.Helper()
	if got := s.keys(scope); !maps.Equal(got, want) {
		s.Fatalf("keys in %v: got %d, want %d: %.300v", scope, len(got), len(want), got)
	}
	got := map[string]kv.Version{}
	for key, last := range s.lastVersions(scope) {
		if last.Op == kv.OpPut {
			got[key] = last.Version
		}
	}
	if !maps.Equal(got, want) {
		s.Fatalf("last versions in %v: got %d values, want %d: %.300v", scope, len(got), len(want), got)
	}
	got = map[string]kv.Version{}
	for key, e := range s.scan(scope) {
		got[key] = e.Version
		if e.Op != kv.OpPut || string(e.Value) != valueOf(key) || e.UnixNano == 0 {
			s.Fatalf("scanned %+v", e)
		}
	}
	if !maps.Equal(got, want) {
		s.Fatalf("entries in %v: got %d, want %d: %.300v", scope, len(got), len(want), got)
	}
}

func valueOf(key string) string { return "value of " + key }

func listEmpty(s *suite) {
	s.listed(kv.AllKeys(), map[string]kv.Version{})
	s.listed(s.scope("a."), map[string]kv.Version{})
	s.put("b", "x")
	s.listed(s.scope("a."), map[string]kv.Version{})
	s.del("b")
	s.listed(kv.AllKeys(), map[string]kv.Version{})
}

func listTombstones(s *suite) {
	want := map[string]kv.Version{}
	for _, key := range []string{"a", "b", "c", "d"} {
		want[key] = s.put(key, valueOf(key))
	}
	s.del("a")
	_, err := s.Delete(s.ctx, "b", kv.DeleteOptions{Purge: true})
	s.must(err)
	_, err = s.Delete(s.ctx, "c", kv.DeleteOptions{At: want["c"]})
	s.must(err)
	s.del("never")
	want["d"] = s.put("d", valueOf("d"))
	delete(want, "b")
	delete(want, "c")
	want["a"] = s.put("a", valueOf("a"))
	s.listed(kv.AllKeys(), want)
}

// A listing is whole beyond the thousand or so that one answer of a server may hold.
func listManyKeys(s *suite) {
	want := s.putMany(2500, func(i int) string { return fmt.Sprintf("k%d.%d", i%3, i) })
	for key := range want {
		if strings.HasSuffix(key, "7") {
			s.del(key)
			delete(want, key)
		}
	}
	s.listed(kv.AllKeys(), want)
	part := map[string]kv.Version{}
	for key, v := range want {
		if strings.HasPrefix(key, "k1.") {
			part[key] = v
		}
	}
	s.listed(s.scope("k1."), part)
}

// putMany writes n keys from a few writers and returns their versions.
func (s *suite) putMany(n int, key func(int) string) map[string]kv.Version {
	s.Helper()
	const writers = 8
	var mu sync.Mutex
	var wg sync.WaitGroup
	out := make(map[string]kv.Version, n)
	for w := range writers {
		wg.Go(func() {
			for i := w; i < n; i += writers {
				v, err := s.Put(s.ctx, key(i), []byte(valueOf(key(i))), kv.PutOptions{})
				if err != nil {
					s.Error(err)
					return
				}
				mu.Lock()
				out[key(i)] = v
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if s.Failed() {
		s.FailNow()
	}
	return out
}

// A caller that stops a listing leaves nothing behind that would spoil the next.
func listStopsEarly(s *suite) {
	want := s.putMany(50, func(i int) string { return fmt.Sprintf("k.%d", i) })
	for range 5 {
		n := 0
		for _, err := range s.Scan(s.ctx, kv.AllKeys()) {
			s.must(err)
			if n++; n == 3 {
				break
			}
		}
		for _, err := range s.Keys(s.ctx, s.scope("k.")) {
			s.must(err)
			break
		}
	}
	s.listed(kv.AllKeys(), want)
}

// Keys, Scan and a watch agree with Scope.Contains, whatever the server's own filters can say.
func scopes(s *suite) {
	all := map[string]kv.Version{}
	last := uint64(0)
	for _, key := range []string{
		"node", "node.1", "node.10", "node.1.x", "nodes.1", "no", "n", "a", "a.b", "a.b.c", "a.bc", "a.B", "a/b.c", "b.a", "b", "z=_-", "Z.1",
	} {
		all[key] = s.put(key, valueOf(key))
		last = all[key].Rank()
	}
	for _, prefixes := range [][]string{
		nil, {"node."}, {"node"}, {"nod"}, {"node.1"}, {"node.1."}, {"a.b"}, {"a.b."}, {"a."}, {"a"}, {"node.1.x"}, {"a.b.c"},
		{"a.", "b."}, {"a.b", "node"}, {"a.b.", "a.b"}, {"node.1", "node.10", "node.1."}, {"n", "a.bc"}, {"b.a", "a.b.c", "Z."},
		{"a/"}, {"z="}, {"absent."}, {"absent"}, {"a.b.c.d"}, {"absent.", "a.b."},
	} {
		scope := s.scope(prefixes...)
		want := map[string]kv.Version{}
		for key, v := range all {
			if len(prefixes) == 0 || hasAnyPrefix(key, prefixes) {
				want[key] = v
			}
		}
		s.listed(scope, want)
		got := map[string]kv.Version{}
		for _, u := range s.open(kv.OpenRequest{Scope: scope}).to(last) {
			got[u.Key] = u.Version
		}
		if !maps.Equal(got, want) {
			s.Fatalf("a watch of %v delivered %v, want %v", prefixes, got, want)
		}
	}
}

func hasAnyPrefix(key string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(key, p) {
			return true
		}
	}
	return false
}

func infos(s *suite) {
	empty := s.info()
	equal(s, "bucket", empty.Bucket, s.Name())
	equal(s, "first", empty.First, 0)
	equal(s, "last", empty.Last, 0)
	equal(s, "messages", empty.Messages, 0)
	if empty.Created.IsZero() {
		s.Fatal("the log has no creation time")
	}
	s.put("a", "1")
	s.put("a", "2")
	last := s.put("b", "1").Rank()
	at := s.del("c").Rank()
	equal(s, "revisions count up", at, last+1)
	full := s.info()
	equal(s, "created", full.Created.UnixNano(), empty.Created.UnixNano())
	equal(s, "first", full.First, 2)
	equal(s, "last", full.Last, 4)
	equal(s, "messages", full.Messages, 3)
	equal(s, "subjects", full.Subjects, 3)
	equal(s, "first of retention", full.Retention.First, 2)
	equal(s, "eviction from inside", full.Retention.EvictsInside, s.target.Can.TTL)
	equal(s, "markers", full.Markers, s.target.Markers)
	equal(s, "identity without a question", full.Identity, protocol.LogUnknown)
	watched := s.open(kv.OpenRequest{}).w.Info()
	equal(s, "bucket of the watch", watched.Bucket, s.Name())
	equal(s, "created of the watch", watched.Created.UnixNano(), full.Created.UnixNano())
	equal(s, "first of the watch", watched.First, 2)
	equal(s, "last of the watch", watched.Last, 4)
	equal(s, "markers of the watch", watched.Markers, s.target.Markers)
	s.must(s.target.Admin.EvictTo(s.ctx, 4))
	equal(s, "first after an eviction", s.info().First, 4)
}
