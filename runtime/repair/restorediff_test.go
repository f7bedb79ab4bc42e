package repair

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
	"github.com/typedfold/fold/runtime/store"
)

// mapView is a view of a map of store keys: small enough to be made for each of very many cases.
type mapView struct {
	rows   map[string][]byte
	cursor kv.Cursor
}

func (v mapView) Cursor() kv.Cursor { return v.cursor }
func (v mapView) Close() error      { return nil }

func (v mapView) Get(key []byte, into *store.Value) (bool, error) {
	b, ok := v.rows[string(key)]
	if ok {
		own := bytes.Clone(b)
		into.Hold(own, scribble(own))
	}
	return ok, nil
}

// scribble are bytes that are something else once they are given back.
type scribble []byte

func (s scribble) Close() error {
	for i := range s {
		s[i] = 0xEE
	}
	return nil
}

func (v mapView) Iter(o store.IterOptions) (store.Iterator, error) {
	it := &mapIter{view: v}
	for k := range v.rows {
		if bytes.Compare([]byte(k), o.Lower) >= 0 && (o.Upper == nil || bytes.Compare([]byte(k), o.Upper) < 0) {
			it.keys = append(it.keys, k)
		}
	}
	slices.Sort(it.keys)
	return it, nil
}

type mapIter struct {
	view mapView
	keys []string
	at   int
}

func (i *mapIter) Next() bool             { i.at++; return i.at <= len(i.keys) }
func (i *mapIter) SeekTo([]byte) bool     { panic("not used") }
func (i *mapIter) Key() []byte            { return []byte(i.keys[i.at-1]) }
func (i *mapIter) Value() ([]byte, error) { return i.view.rows[i.keys[i.at-1]], nil }
func (i *mapIter) Err() error             { return nil }
func (i *mapIter) Close() error           { return nil }

// put sets a row, as of this message.
func (v mapView) put(key string, rev uint64) {
	u := kv.Update{Key: key, Value: fmt.Appendf(nil, "%s@%d", key, rev), Version: kv.Revision(rev), UnixNano: int64(1000 + rev)}
	v.rows[string(store.AppendKey(nil, store.SpaceData, key))] = store.AppendRecord(nil, &u)
}

// revs are the revisions of the rows.
func (v mapView) revs() map[string]uint64 {
	all := map[string]uint64{}
	for k, b := range v.rows {
		if r, err := store.ParseRecord(b); err == nil && k[0] == byte(store.SpaceData) {
			all[store.NATSKey([]byte(k))] = r.Version.Rank()
		}
	}
	return all
}

// mapFold is a fold over a map. It fails at a call, and counts the row's moves that must not be.
type mapFold struct {
	mapView
	failAt  int
	calls   int
	listed  map[string]bool
	bad     []string
	changed map[string]bool
}

var errCut = errors.New("cut short")

func (f *mapFold) Snapshot() (store.Snapshot, error) {
	return mapView{rows: maps.Clone(f.rows), cursor: f.cursor}, nil
}

func (f *mapFold) Fold(_ context.Context, changes []Change) error {
	if f.calls++; f.calls == f.failAt {
		return errCut
	}
	before := f.revs()
	for _, c := range changes {
		if at := kv.Revision(before[c.Key]); !c.Expect.IsUnknown() && c.Expect != at {
			f.bad = append(f.bad, fmt.Sprintf("%s expects %v and is at %v", c.Key, c.Expect, at))
			continue
		}
		f.changed[c.Key] = true
		if c.Op.Removes() {
			if f.listed[c.Key] || !c.Version.IsUnknown() || c.Reason != kv.ReasonRepair {
				f.bad = append(f.bad, fmt.Sprintf("deletes %s, listed %v, as %+v", c.Key, f.listed[c.Key], c.Update))
			}
			delete(f.rows, string(store.AppendKey(nil, store.SpaceData, c.Key)))
			continue
		}
		if c.Version.Rank() < before[c.Key] {
			f.bad = append(f.bad, fmt.Sprintf("%s goes back from %d to %v", c.Key, before[c.Key], c.Version))
		}
		f.rows[string(store.AppendKey(nil, store.SpaceData, c.Key))] = store.AppendRecord(nil, &c.Update)
	}
	return nil
}

// listedLog lists these keys, each as written at revision 15, and a delete marker of another.
type listedLog struct {
	opens
	keys  []string
	lists int
}

func (l *listedLog) Info(context.Context) (kv.LogInfo, error) {
	return kv.LogInfo{Bucket: "sim", Created: time.Unix(1, 0), First: 9, Last: 20, Subjects: uint64(len(l.keys) + 1),
		Retention: kv.Retention{EvictsCurrentValues: true, First: 9}}, nil
}

func (l *listedLog) LastVersions(_ context.Context, scope kv.Scope) iter.Seq2[kv.KeyVersion, error] {
	l.lists++
	return func(yield func(kv.KeyVersion, error) bool) {
		all := []kv.KeyVersion{{Key: "a", Version: kv.Revision(16), Op: kv.OpDelete}}
		for _, k := range l.keys {
			all = append(all, kv.KeyVersion{Key: k, Version: kv.Revision(15), Op: kv.OpPut})
		}
		for _, k := range all {
			if scope.Contains(k.Key) && !yield(k, nil) {
				return
			}
		}
	}
}

func (l *listedLog) Entry(context.Context, string) (kv.Entry, error) {
	return kv.Entry{}, kv.ErrKeyNotFound
}

// oneArtifact is a source of one artifact that is in memory.
type oneArtifact struct {
	m            Manifest
	view         store.Snapshot
	fetched      int
	open         int
	fetchErr     error
	manifestThen *Manifest // what it says once it is here, when that is another one
}

func (s *oneArtifact) Candidates(context.Context) ([]Manifest, error) { return []Manifest{s.m}, nil }

func (s *oneArtifact) Fetch(context.Context, Manifest) (Artifact, error) {
	s.fetched++
	if s.fetchErr != nil {
		return nil, s.fetchErr
	}
	s.open++
	return s, nil
}

func (s *oneArtifact) Snapshot() (store.Snapshot, error) { return s.view, nil }
func (s *oneArtifact) Close() error                      { s.open--; return nil }

func (s *oneArtifact) Manifest() Manifest {
	if s.manifestThen != nil {
		return *s.manifestThen
	}
	return s.m
}

func artifactOf(scope kv.Scope, cursor kv.Cursor) (*oneArtifact, mapView) {
	view := mapView{rows: map[string][]byte{string(store.MetaKey(store.MetaBucket)): []byte("sim")}, cursor: cursor}
	return &oneArtifact{m: Manifest{ID: "x", Cursor: cursor, Scope: scope, HasScope: true}, view: view}, view
}

// diffCase is one pair of folds, one listing, and one scope.
type diffCase struct {
	local, artifact map[string]uint64
	listed          []string
	scope           kv.Scope
}

var diffKeys = []string{"a-b", "a.b", "b.c"} // the first two are in another order in a store

// want is what the fold holds after the restore: of both entries the later one; what the artifact lacks only stays
// while the bucket lists it.
func (c *diffCase) want() map[string]uint64 {
	w := map[string]uint64{}
	for _, k := range diffKeys {
		l, a := c.local[k], c.artifact[k]
		switch {
		case !c.scope.Contains(k), a == 0 && slices.Contains(c.listed, k):
			w[k] = l
		case a != 0:
			w[k] = max(l, a)
		}
		if w[k] == 0 {
			delete(w, k)
		}
	}
	return w
}

func (c *diffCase) folds() (*mapFold, *oneArtifact, *listedLog) {
	f := &mapFold{mapView: mapView{rows: map[string][]byte{}, cursor: kv.CursorAt(5)}, listed: map[string]bool{}, changed: map[string]bool{}}
	for k, rev := range c.local {
		f.put(k, rev)
	}
	for _, k := range c.listed {
		f.listed[k] = true
	}
	src, view := artifactOf(kv.AllKeys(), kv.CursorAt(10))
	for k, rev := range c.artifact {
		view.put(k, rev)
	}
	return f, src, &listedLog{keys: c.listed}
}

func (c *diffCase) run(t *testing.T, f *mapFold, src *oneArtifact, log Log, r *Report) (Outcome, error) {
	p := New(log, f, f, c.scope, Options{Mode: Restore, Source: src, Chunk: 1, RunBytes: 2048, Scratch: "/nowhere"})
	return p.Repair(t.Context(), Request{Cause: protocol.CauseExpired, Cursor: f.cursor}, r)
}

// each calls do with every assignment of revisions to the keys; 0 is none.
func eachFold(revs []uint64, do func(map[string]uint64)) {
	total := 1
	for range diffKeys {
		total *= len(revs)
	}
	for n := range total {
		m := map[string]uint64{}
		for _, k := range diffKeys {
			if rev := revs[n%len(revs)]; rev != 0 {
				m[k] = rev
			}
			n /= len(revs)
		}
		do(m)
	}
}

// TestRestoreDiffExhaustively goes through every small pair of folds, listing, scope, and cut between two chunks. A
// row may be ahead of the fold's own cursor, and of the artifact's row.
func TestRestoreDiffExhaustively(t *testing.T) {
	scopes := []kv.Scope{kv.AllKeys(), prefixes(t, "a"), prefixes(t, "a.b"), prefixes(t, "a-b", "b")}
	cases, cuts, deletes := 0, 0, uint64(0)
	eachFold([]uint64{0, 3, 7}, func(local map[string]uint64) {
		eachFold([]uint64{0, 3, 7}, func(artifact map[string]uint64) {
			for set := range 1 << len(diffKeys) {
				c := diffCase{local: local, artifact: artifact}
				for i, k := range diffKeys {
					if set&(1<<i) != 0 {
						c.listed = append(c.listed, k)
					}
				}
				for _, c.scope = range scopes {
					cases++
					n, d := c.checkCuts(t)
					cuts += n
					deletes += d
				}
			}
			if t.Failed() {
				t.FailNow()
			}
		})
	})
	t.Logf("%d cases, %d cuts, %d deletes", cases, cuts, deletes)
	if cases < 20_000 || cuts < 10_000 || deletes < 5_000 {
		t.Errorf("%d cases, %d cuts, %d deletes: the domain shrank", cases, cuts, deletes)
	}
}

// checkCuts runs a case whole, then cut at each of its chunks and begun again.
func (c *diffCase) checkCuts(t *testing.T) (cuts int, deleted uint64) {
	f, src, log := c.folds()
	var whole Report
	out, err := c.run(t, f, src, log, &whole)
	c.verify(t, "whole", f, src, out, err)
	c.verifyReport(t, &whole, f, log)
	for cut := 1; cut <= f.calls; cut++ {
		g, src, log := c.folds()
		g.failAt = cut
		if _, err := c.run(t, g, src, log, &Report{}); !errors.Is(err, errCut) || g.calls != cut || errors.Is(err, ErrRefused) {
			t.Fatalf("%+v: cut at chunk %d: %v after %d", c, cut, err, g.calls)
		}
		if src.open != 0 || g.cursor != kv.CursorAt(5) {
			t.Fatalf("%+v: %d artifacts are open after a cut, cursor %v", c, src.open, g.cursor)
		}
		out, err := c.run(t, g, src, log, &Report{})
		c.verify(t, fmt.Sprintf("cut at chunk %d", cut), g, src, out, err)
		cuts++
	}
	return cuts, whole.Deleted
}

func (c *diffCase) verify(t *testing.T, when string, f *mapFold, src *oneArtifact, out Outcome, err error) {
	t.Helper()
	if err != nil || len(f.bad) > 0 || !maps.Equal(f.revs(), c.want()) || src.open != 0 {
		t.Errorf("%s: local %v, artifact %v, listed %v, scope %v: %v, now %v, want %v, %v", when, c.local, c.artifact, c.listed, c.scope, err, f.revs(), c.want(), f.bad)
	}
	if out.Cursor != (kv.Cursor{Version: kv.Revision(10), SeenEvicting: true}) || out.Relist || out.Known.CreatedUnixNano != time.Unix(1, 0).UnixNano() {
		t.Errorf("%s: outcome %+v", when, out)
	}
}

// verifyReport checks what was counted, and that only what has to change did.
func (c *diffCase) verifyReport(t *testing.T, r *Report, f *mapFold, log *listedLog) {
	t.Helper()
	var rows, put, deleted uint64
	vanished, want := 0, c.want()
	for _, k := range diffKeys {
		if !c.scope.Contains(k) {
			continue
		}
		l, has := c.local[k]
		if has {
			rows++
		}
		if has && c.artifact[k] == 0 {
			vanished++
		}
		switch now := want[k]; {
		case has && now == 0:
			deleted++
		case now != l:
			put++
		}
	}
	if r.Rows != rows || r.Put != put || r.Deleted != deleted || uint64(len(f.changed)) != put+deleted || r.Artifact != "x" {
		t.Errorf("local %v, artifact %v, listed %v, scope %v: report %+v, %d changed, want %d rows, %d put, %d deleted", c.local, c.artifact, c.listed, c.scope, r, len(f.changed), rows, put, deleted)
	}
	if (log.lists > 0) != (vanished > 0) {
		t.Errorf("%d keys vanished, %d listings", vanished, log.lists)
	}
}

func TestIdentical(t *testing.T) {
	a := store.Record{Value: []byte("v"), ContentType: "c", Version: kv.Revision(3), UnixNano: 4}
	for name, change := range map[string]func(*store.Record){
		"version":      func(r *store.Record) { r.Version = kv.Revision(4) },
		"time":         func(r *store.Record) { r.UnixNano = 5 },
		"content type": func(r *store.Record) { r.ContentType = "" },
		"value":        func(r *store.Record) { r.Value = []byte("w") },
	} {
		b := a
		change(&b)
		if identical(&a, &b) {
			t.Errorf("another %s is identical", name)
		}
	}
	b := a
	b.Rejected = true
	if !identical(&a, &b) {
		t.Error("whether a table refused it makes a difference")
	}
}

// TestRestoreTakesAnotherMessageOfTheSameRevision: two rows of one revision that differ are of two histories, and the
// artifact's counts.
func TestRestoreTakesAnotherMessageOfTheSameRevision(t *testing.T) {
	c := diffCase{local: map[string]uint64{"a.b": 3}, artifact: map[string]uint64{"a.b": 3}}
	f, src, log := c.folds()
	u := kv.Update{Key: "a.b", Value: []byte("other"), Version: kv.Revision(3), UnixNano: 77, ContentType: "text"}
	src.view.(mapView).rows[string(store.AppendKey(nil, store.SpaceData, "a.b"))] = store.AppendRecord(nil, &u)
	if _, err := c.run(t, f, src, log, &Report{}); err != nil {
		t.Fatal(err)
	}
	r, err := store.ParseRecord(f.rows[string(store.AppendKey(nil, store.SpaceData, "a.b"))])
	if err != nil || string(r.Value) != "other" || r.UnixNano != 77 || r.ContentType != "text" || r.Version != kv.Revision(3) {
		t.Errorf("the fold has %+v (%v)", r, err)
	}
}

// TestRestoreFindsAnArtifactThatLacksAWrite: the bucket still lists a write from before the artifact's cursor, which
// neither has; no resume would bring it.
func TestRestoreFindsAnArtifactThatLacksAWrite(t *testing.T) {
	for _, x := range []struct {
		cursor, row uint64
		ok          bool
	}{{14, 3, true}, {15, 3, false}, {15, 15, true}, {15, 16, true}, {20, 14, false}} {
		c := diffCase{local: map[string]uint64{"a.b": x.row}, listed: []string{"a.b"}}
		f, src, log := c.folds()
		src.m.Cursor = kv.CursorAt(x.cursor)
		src.view = mapView{rows: src.view.(mapView).rows, cursor: src.m.Cursor}
		_, err := c.run(t, f, src, log, &Report{})
		if x.ok && err != nil || !x.ok && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "since revision 15")) {
			t.Errorf("cursor %d, row %d, listed at 15: %v", x.cursor, x.row, err)
		}
		if f.calls != 0 || src.open != 0 || !maps.Equal(f.revs(), c.local) {
			t.Errorf("cursor %d, row %d: %d chunks, %d open, %v", x.cursor, x.row, f.calls, src.open, f.revs())
		}
	}
}
