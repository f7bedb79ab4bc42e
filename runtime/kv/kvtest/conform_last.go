package kvtest

import (
	"context"
	"fmt"
	"maps"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

var lastCases = []conformanceCase{
	{name: "LastVersions", run: lastVersions},
	{name: "LastVersionsOfManyKeys", run: lastVersionsOfManyKeys},
	{name: "LastVersionsInScope", run: lastVersionsInScope},
	{name: "LastVersionsUnderDeletes", run: lastVersionsUnderDeletes},
	{name: "LastVersionsStop", run: lastVersionsStop},
	{name: "LastVersionsOfAgedOut", applies: func(c Capabilities) bool { return c.AgeOut }, run: lastVersionsOfAgedOut},
	{name: "LastVersionsOfPurgedMarkers", applies: func(c Capabilities) bool { return c.PurgeMarkers }, run: lastVersionsOfPurgedMarkers},
	{name: "Sealed", applies: func(c Capabilities) bool { return c.Sealed }, run: sealed},
}

// lastVersions lists a bucket that may be written meanwhile: a key that comes again has a later version.
func (s *suite) lastVersions(scope kv.Scope) map[string]kv.KeyVersion {
	s.Helper()
	out := map[string]kv.KeyVersion{}
	for k, err := range s.LastVersions(s.ctx, scope) {
		s.must(err)
		s.take(out, scope, k)
	}
	return out
}

func (s *suite) take(into map[string]kv.KeyVersion, scope kv.Scope, k kv.KeyVersion) {
	s.Helper()
	if old, twice := into[k.Key]; twice && old.Version.Rank() >= k.Version.Rank() {
		s.Fatalf("key %q was listed at %v, then at %v", k.Key, old.Version, k.Version)
	}
	if !scope.Contains(k.Key) {
		s.Fatalf("key %q is not in scope %v", k.Key, scope)
	}
	if k.UnixNano == 0 {
		s.Fatalf("key %q is listed without a time", k.Key)
	}
	k.UnixNano = 0 // the server's own; the rest is compared
	into[k.Key] = k
}

// last checks what is listed of a scope.
func (s *suite) last(scope kv.Scope, want map[string]kv.KeyVersion) {
	s.Helper()
	if got := s.lastVersions(scope); !maps.Equal(got, want) {
		s.Fatalf("last versions in %v: got %d, want %d: %.500v", scope, len(got), len(want), got)
	}
}

func versionsOf(list ...kv.KeyVersion) map[string]kv.KeyVersion {
	out := map[string]kv.KeyVersion{}
	for _, k := range list {
		out[k.Key] = k
	}
	return out
}

func lastVersions(s *suite) {
	s.last(kv.AllKeys(), versionsOf())
	s.put("put", "1")
	s.put("twice", "1")
	s.put("deleted", "1")
	at := s.put("deleted.at", "1")
	s.put("back", "1")
	s.del("back")
	gone, err := s.Delete(s.ctx, "deleted.at", kv.DeleteOptions{At: at})
	s.must(err)
	want := versionsOf(
		kv.KeyVersion{Key: "put", Version: kv.Revision(1), Op: kv.OpPut},
		kv.KeyVersion{Key: "twice", Version: s.put("twice", "2"), Op: kv.OpPut},
		kv.KeyVersion{Key: "deleted", Version: s.del("deleted"), Op: kv.OpDelete},
		kv.KeyVersion{Key: "deleted.at", Version: gone, Op: kv.OpDelete},
		kv.KeyVersion{Key: "never", Version: s.del("never"), Op: kv.OpDelete},
		kv.KeyVersion{Key: "back", Version: s.put("back", "2"), Op: kv.OpPut},
	)
	s.last(kv.AllKeys(), want)
	if s.target.Can.Sealed {
		return
	}
	v, err := s.Delete(s.ctx, "put", kv.DeleteOptions{Purge: true})
	s.must(err)
	want["put"] = kv.KeyVersion{Key: "put", Version: v, Op: kv.OpPurge}
	s.last(kv.AllKeys(), want)
}

// Beyond what one answer of a server may hold, and with every tenth a tombstone.
func lastVersionsOfManyKeys(s *suite) {
	want := map[string]kv.KeyVersion{}
	for key, v := range s.putMany(1500, func(i int) string { return fmt.Sprintf("k%d.%d", i%3, i) }) {
		want[key] = kv.KeyVersion{Key: key, Version: v, Op: kv.OpPut}
	}
	for i := 0; i < 1500; i += 10 {
		key := fmt.Sprintf("k%d.%d", i%3, i)
		want[key] = kv.KeyVersion{Key: key, Version: s.del(key), Op: kv.OpDelete}
	}
	s.last(kv.AllKeys(), want)
	maps.DeleteFunc(want, func(key string, _ kv.KeyVersion) bool { return key[1] != '1' })
	s.last(s.scope("k1"), want)
}

// Any prefixes, those that end inside a token too; a tombstone is in scope as a value is.
func lastVersionsInScope(s *suite) {
	all := map[string]kv.KeyVersion{}
	for i, key := range []string{"n", "no", "node", "node.1", "node.10", "node.1.x", "nodes.1", "a.b", "a.b.c", "a.bc", "b"} {
		k := kv.KeyVersion{Key: key, Version: s.put(key, "x"), Op: kv.OpPut}
		if i%2 == 1 {
			k.Version, k.Op = s.del(key), kv.OpDelete
		}
		all[key] = k
	}
	for _, prefixes := range [][]string{nil, {"node."}, {"node"}, {"nod"}, {"node.1"}, {"a.b"}, {"a.b", "n"}, {"a.b.", "node.1."}, {"absent"}} {
		want := maps.Clone(all)
		maps.DeleteFunc(want, func(key string, _ kv.KeyVersion) bool { return prefixes != nil && !hasAnyPrefix(key, prefixes) })
		s.last(s.scope(prefixes...), want)
	}
}

// Whatever is deleted while the listing goes on, each key that was there is listed, as its value or as its tombstone.
func lastVersionsUnderDeletes(s *suite) {
	const n = 1200
	key := func(i int) string { return fmt.Sprintf("k.%d", i) }
	was := s.putMany(n, key)
	deleted := map[string]kv.Version{}
	got := map[string]kv.KeyVersion{}
	for k, err := range s.LastVersions(s.ctx, kv.AllKeys()) {
		s.must(err)
		s.take(got, kv.AllKeys(), k)
		if i := len(deleted); i < 50 { // from both ends: listed already, and not yet
			for _, gone := range []string{key(i), key(n - 1 - i)} {
				deleted[gone] = s.del(gone)
			}
		}
	}
	if len(got) != n {
		s.Fatalf("%d of %d keys were listed", len(got), n)
	}
	for key, k := range got {
		value, tombstone := kv.KeyVersion{Key: key, Version: was[key], Op: kv.OpPut}, kv.KeyVersion{Key: key, Version: deleted[key], Op: kv.OpDelete}
		if k != value && k != tombstone {
			s.Fatalf("listed %+v; its value was %v, its tombstone %v", k, was[key], deleted[key])
		}
	}
}

// A listing that its caller stops leaves nothing behind, and one whose context ends says so once, last.
func lastVersionsStop(s *suite) {
	s.putMany(30, func(i int) string { return fmt.Sprintf("k.%d", i) })
	for _, err := range s.LastVersions(s.ctx, kv.AllKeys()) {
		s.must(err)
		break
	}
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	n := 0
	for _, err := range s.LastVersions(ctx, kv.AllKeys()) {
		n++
		s.is(err, context.Canceled)
	}
	equal(s, "results under an ended context", n, 1)
	equal(s, "keys", len(s.lastVersions(kv.AllKeys())), 30)
}

func lastVersionsOfAgedOut(s *suite) {
	s.must(s.target.Admin.PutAgedOut(s.ctx, "a", []byte("x")))
	s.last(kv.AllKeys(), versionsOf(kv.KeyVersion{Key: "a", Version: kv.Revision(2), Op: kv.OpAgedOut}))
}

func lastVersionsOfPurgedMarkers(s *suite) {
	kept := kv.KeyVersion{Key: "a", Version: s.put("a", "1"), Op: kv.OpPut}
	s.put("b", "1")
	gone := kv.KeyVersion{Key: "b", Version: s.del("b"), Op: kv.OpDelete}
	s.last(kv.AllKeys(), versionsOf(kept, gone))
	s.must(s.target.Admin.PurgeMarkers(s.ctx))
	s.last(kv.AllKeys(), versionsOf(kept))
}

func sealed(s *suite) {
	s.put("a", "1")
	_, err := s.Delete(s.ctx, "a", kv.DeleteOptions{Purge: true})
	s.is(err, kv.ErrUnsupported)
	_, err = s.Get(s.ctx, "a")
	s.must(err)
	equal(s, "marker safety", protocol.MarkersCanVanish(s.info().Markers, 0), protocol.MarkersSealed)
}
