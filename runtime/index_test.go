package fold_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	indexedv1 "github.com/typedfold/fold/internal/foldtest/gen/indexed/v1"
	ix "github.com/typedfold/fold/internal/foldtest/gen/indexed/v1/indexedv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/schema"
	"github.com/typedfold/fold/runtime/store"
)

// TestEffectOfUpdates: among the updates that a part takes to change rows, a refused one and a remove end the row, and
// a value that ages out where the table keeps it leaves it.
func TestEffectOfUpdates(t *testing.T) {
	want := map[fold.Op][2]string{
		fold.OpPut: {"set", "ends"}, fold.OpDelete: {"ends", "ends"}, fold.OpPurge: {"ends", "ends"}, fold.OpAgedOut: {"stays", "ends"},
	}
	for op := fold.OpPut; op <= fold.OpAgedOut; op++ {
		for i, rejected := range []bool{false, true} {
			if got := fold.EffectOf(op, rejected); got != want[op][i] {
				t.Errorf("%v, rejected %v: %s, want %s", op, rejected, got, want[op][i])
			}
		}
	}
}

// TestEntryDifferences tries every pair of sets of four entries, each added twice and out of order.
func TestEntryDifferences(t *testing.T) {
	names := []string{"b", "a", "ab", ""}
	set := func(bits int) *fold.EntrySet {
		s := &fold.EntrySet{}
		for range 2 {
			for i, name := range names {
				if bits>>i&1 != 0 {
					s.Add(name)
				}
			}
		}
		return s
	}
	only := func(in, notIn int) (list []string) {
		for i, name := range names {
			if in&^notIn>>i&1 != 0 {
				list = append(list, name)
			}
		}
		slices.Sort(list)
		return list
	}
	for before := range 1 << len(names) {
		for after := range 1 << len(names) {
			gone, came := set(before).Diff(set(after))
			if !slices.Equal(gone, only(before, after)) || !slices.Equal(came, only(after, before)) {
				t.Errorf("%04b to %04b: %q gone, %q came", before, after, gone, came)
			}
		}
		s := set(before)
		if list := s.List(); !slices.Equal(list, only(before, 0)) {
			t.Errorf("%04b is %q", before, list)
		}
		for i, name := range names {
			if s.Has(name) != (before>>i&1 != 0) {
				t.Errorf("%04b has %q: %v", before, name, s.Has(name))
			}
		}
	}
}

func setHost(t testing.TB, log *kvtest.Log, h *indexedv1.Host) {
	t.Helper()
	set(t, log, ix.HostKey{Region: h.Region, Name: h.Name}.String(), h)
}

// fill writes values of all tables, good ones and others.
func fill(log *kvtest.Log, n int) {
	r := rand.New(rand.NewPCG(3, 3))
	for range n {
		log.Set(someValue(r))
	}
}

func (tb *indexed) caughtUp(t testing.TB, log *kvtest.Log) {
	t.Helper()
	ctx := bounded(t)
	info, err := log.Info(ctx)
	if err == nil {
		err = tb.f.WaitApplied(ctx, fold.Seq(info.Last))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (tb *indexed) mustCheck(t testing.TB) {
	t.Helper()
	if err := tb.check(bounded(t)); err != nil {
		t.Error(err)
	}
}

func indexKeys(t testing.TB, g store.Getter) []string {
	t.Helper()
	keys, err := fold.IndexKeys(g)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// verified is what both verifiers find of the tables, which must be the same.
func verified(t testing.TB, g store.Getter) *fold.IndexReport {
	t.Helper()
	r, err := fold.VerifyIndexesOf(bounded(t), g, indexedMessages...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestIndexesFollowTheirDefinitions: an index with another name is the same one, one with other fields is built anew
// and the old one's entries go, one that is removed goes, and one of a table that a run does not have is built when
// the table is back.
func TestIndexesFollowTheirDefinitions(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		log, dir := newLog(), t.TempDir()
		fill(log, 300)
		tb := mustStartIndexed(t, log, openStore(t, b, dir), fold.Options{})
		tb.caughtUp(t, log)
		tb.mustCheck(t)
		if err := tb.f.Close(); err != nil {
			t.Fatal(err)
		}
		var told []fold.RebuildProgress
		events := fold.Events{Rebuild: func(p fold.RebuildProgress) { told = append(told, p) }}
		run := func(register func(*fold.Builder) error) []string {
			told = nil
			s := openStore(t, b, dir)
			builder := fold.NewBuilder(log, s, fold.Options{Logger: quiet, Events: events})
			if err := register(builder); err != nil {
				t.Fatal(err)
			}
			f, err := builder.Start(bounded(t))
			if err != nil {
				t.Fatal(err)
			}
			r, err := f.VerifyIndexes(bounded(t))
			keys := indexKeys(t, s)
			if err := errors.Join(err, r.Err(), f.Close()); err != nil {
				t.Fatal(err)
			}
			if uint64(len(keys)) != r.Entries {
				t.Errorf("%d entries in the store, %d in the indexes", len(keys), r.Entries)
			}
			return keys
		}
		hosts := func(edit func([]schema.Index) []schema.Index) func(*fold.Builder) error {
			return func(b *fold.Builder) error {
				_, err := fold.Register(b, fold.WithIndexes(ix.HostDesc, edit))
				return err
			}
		}
		all := run(hosts(func(l []schema.Index) []schema.Index { return l }))
		if len(told) != 0 || len(all) == 0 {
			t.Errorf("the same indexes again: %v, %d entries", told, len(all))
		}
		renamed := run(hosts(func(l []schema.Index) []schema.Index { l[1].Name, l[1].Unique = "by_other", true; return l }))
		if len(told) != 0 || !slices.Equal(renamed, all) {
			t.Errorf("after a new name: %v, %d entries, want %d", told, len(renamed), len(all))
		}
		turned := run(hosts(func(l []schema.Index) []schema.Index {
			l[1].Fields = []schema.IndexField{l[1].Fields[1], l[1].Fields[0]}
			return l
		}))
		rows := len(turned)
		if len(told) == 0 || told[0].Table != "Host" || told[0].Index != "by_rack_state" || len(turned) != len(all) || slices.Equal(turned, all) {
			t.Errorf("after other fields: %v, %d entries, want %d others", told, rows, len(all))
		}
		if last := told[len(told)-1]; last.Done != last.Total || last.Done == 0 {
			t.Errorf("the last of it is %+v", last)
		}
		fewer := run(hosts(func(l []schema.Index) []schema.Index { return l[:1] }))
		if len(told) != 0 || len(fewer) == 0 || len(fewer) >= len(all) {
			t.Errorf("with one index: %v, %d entries of %d", told, len(fewer), len(all))
		}
		if none := run(func(b *fold.Builder) error { _, err := ix.RegisterPlain(b); return err }); len(none) != 0 {
			t.Errorf("without the table %d entries are left", len(none))
		}
		if back := run(hosts(func(l []schema.Index) []schema.Index { return l })); !slices.Equal(back, all) {
			t.Errorf("with the table again: %d entries, want %d", len(back), len(all))
		}
		if told == nil || !strings.Contains(told[len(told)-1].Index, "by_node,by_rack_state") {
			t.Errorf("with the table again: %v", told)
		}
	})
}

func builderOf(t testing.TB, log *kvtest.Log, s store.Store) *fold.Builder {
	t.Helper()
	b := fold.NewBuilder(log, s, fold.Options{Logger: quiet})
	var errs [7]error
	_, errs[0] = ix.RegisterHost(b)
	_, errs[1] = ix.RegisterHostNote(b)
	_, errs[2] = ix.RegisterTagged(b)
	_, errs[3] = ix.RegisterLease(b)
	_, errs[4] = ix.RegisterMode(b)
	_, errs[5] = ix.RegisterPlain(b)
	_, errs[6] = ix.RegisterLegacy(b)
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestRebuildAfterACrashAnywhere ends a rebuild at each of its commits: an index that has a mark is whole, and the next
// start makes the others so.
func TestRebuildAfterACrashAnywhere(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		log, dir := newLog(), t.TempDir()
		fill(log, 150)
		tb := mustStartIndexed(t, log, openStore(t, b, dir), fold.Options{})
		tb.caughtUp(t, log)
		if err := tb.f.Close(); err != nil {
			t.Fatal(err)
		}
		s := &faultStore{Store: openStore(t, b, dir)}
		defer func() { _ = s.Close() }()
		want := indexKeys(t, s)
		failed := errors.New("power is off")
		steps := 0
		for ; ; steps++ {
			if steps > 1000 {
				t.Fatal("the rebuild does not end")
			}
			// Some marks go, and there is an entry of an earlier definition.
			var ops []store.Op
			for i, m := range marksOf(t, s) {
				if i%2 == steps%2 {
					ops = append(ops, store.Op{Key: m, Delete: true})
				}
			}
			ops = append(ops, store.Op{Key: []byte("ihost\x00OLD\x00" + fmt.Sprint(steps))})
			if err := s.Store.Apply(bounded(t), &store.Batch{Ops: ops}, s.Cursor()); err != nil {
				t.Fatal(err)
			}
			s.n, s.apply = 0, func(n int, batch *store.Batch, _ kv.Cursor) error {
				if len(batch.Ops) > 40 {
					return fmt.Errorf("a batch of %d ops", len(batch.Ops))
				}
				if n > steps {
					return failed
				}
				return nil
			}
			err := fold.BuildIndexes(bounded(t), builderOf(t, log, s), 7, nil)
			if err != nil && !errors.Is(err, failed) {
				t.Fatal(err)
			}
			unbuilt := map[string]bool{}
			for _, p := range verified(t, s).Problems {
				if p.Problem == fold.IndexUnbuilt {
					unbuilt[p.Table+p.Index] = true
				} else if !unbuilt[p.Table+p.Index] {
					t.Fatalf("after %d commits: %v", steps, p)
				}
			}
			if err == nil {
				break
			}
		}
		if steps < 6 {
			t.Errorf("only %d commits", steps)
		}
		if err := verified(t, s).Err(); err != nil {
			t.Error(err)
		}
		if got := indexKeys(t, s); !slices.Equal(got, want) {
			t.Errorf("%d entries, want %d", len(got), len(want))
		}
	})
}

func marksOf(t testing.TB, g store.Getter) (marks [][]byte) {
	t.Helper()
	prefix := store.MetaKey(store.MetaIndex)
	it, err := g.Iter(store.IterOptions{Lower: prefix, Upper: store.PrefixEnd(prefix)})
	if err != nil {
		t.Fatal(err)
	}
	for it.Next() {
		marks = append(marks, bytes.Clone(it.Key()))
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	return marks
}

// markOf is the mark of the index that an entry is of.
func markOf(t testing.TB, g store.Getter, entry []byte) []byte {
	t.Helper()
	for _, m := range marksOf(t, g) {
		if _, space, ok := store.ParseIndexMark(m); ok && bytes.Contains(entry, []byte(space)) {
			return m
		}
	}
	t.Fatalf("no mark of %q", entry)
	return nil
}

// TestRebuildHeedsItsContext: a Start that has no more time ends, and leaves no mark of what it did not build.
func TestRebuildHeedsItsContext(t *testing.T) {
	log := newLog()
	fill(log, 100)
	s := openStore(t, backends[0], t.TempDir())
	tb := mustStartIndexed(t, log, s, fold.Options{})
	tb.caughtUp(t, log)
	snap := &snapshotStore{Store: s}
	ctx, cancel := context.WithCancel(bounded(t))
	cancel()
	if err := fold.BuildIndexes(ctx, builderOf(t, log, snap), 7, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// snapshotStore is a store in which no mark is there.
type snapshotStore struct{ store.Store }

func (s *snapshotStore) Iter(o store.IterOptions) (store.Iterator, error) {
	if bytes.HasPrefix(o.Lower, store.MetaKey(store.MetaIndex)) {
		o.Upper = o.Lower
	}
	return s.Store.Iter(o)
}

// TestNewStoreIsMarkedAtOnce: the indexes of a new store cost one commit, whatever they are.
func TestNewStoreIsMarkedAtOnce(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		s := &faultStore{Store: openStore(t, b, t.TempDir())}
		defer func() { _ = s.Close() }()
		told := 0
		if err := fold.BuildIndexes(bounded(t), builderOf(t, newLog(), s), 0, func(fold.RebuildProgress) { told++ }); err != nil {
			t.Fatal(err)
		}
		if err := verified(t, s).Err(); err != nil || s.n != 1 || told != 0 {
			t.Errorf("%v; %d commits, told %d times", err, s.n, told)
		}
		if err := fold.BuildIndexes(bounded(t), builderOf(t, newLog(), s), 0, nil); err != nil || s.n != 1 {
			t.Errorf("again: %v, %d commits", err, s.n)
		}
	})
}

// TestVerifyFindsEachDifference spoils a store in each way, and looks at what is told, by the fold and by the
// descriptors alone.
func TestVerifyFindsEachDifference(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		log, s := newLog(), openStore(t, b, t.TempDir())
		setHost(t, log, &indexedv1.Host{Region: "eu", Name: "a", NodeId: "n1", Cert: []byte("c")})
		setHost(t, log, &indexedv1.Host{Region: "eu", Name: "b", NodeId: "n2"})
		tb := mustStartIndexed(t, log, s, fold.Options{})
		tb.caughtUp(t, log)
		tb.mustCheck(t)
		entry := func(has string) []byte {
			for _, k := range indexKeys(t, s) {
				if strings.Contains(k, has) {
					return []byte(k)
				}
			}
			t.Fatalf("no entry with %q", has)
			return nil
		}
		byNode := entry("\x00n1\x00")
		for _, c := range []struct {
			name  string
			op    store.Op
			index string
			key   string
			want  fold.IndexProblem
		}{
			{"an entry lacks", store.Op{Key: byNode, Delete: true}, "by_node", "host.eu.a", fold.IndexMissing},
			{"an entry of another value", store.Op{Key: bytes.Replace(byNode, []byte("n1"), []byte("n9"), 1)}, "by_node", "host.eu.a", fold.IndexExtra},
			{"an entry of no row", store.Op{Key: append(bytes.Clone(byNode), 'x')}, "by_node", "host.eu.ax", fold.IndexExtra},
			{"an entry of another shape", store.Op{Key: append(bytes.Clone(byNode), 0, 'x')}, "by_node", "host.eu.a.x", fold.IndexExtra},
			{"an entry that is cut short", store.Op{Key: byNode[:bytes.Index(byNode, []byte("\x00n1"))+2]}, "by_node", "", fold.IndexExtra},
			{"no mark", store.Op{Key: markOf(t, s, byNode), Delete: true}, "by_node", "", fold.IndexUnbuilt},
		} {
			before := store.Op{Key: c.op.Key, Delete: !c.op.Delete}
			if c.want == fold.IndexUnbuilt {
				before.Value, _ = store.Meta(s, strings.TrimPrefix(string(c.op.Key), string(store.MetaKey(""))))
			}
			apply := func(op store.Op) {
				if err := s.Apply(bounded(t), &store.Batch{Ops: []store.Op{op}}, s.Cursor()); err != nil {
					t.Fatal(err)
				}
			}
			apply(c.op)
			r, err := tb.f.VerifyIndexes(bounded(t))
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range []*fold.IndexReport{r, verified(t, s)} {
				if r.Found != 1 || len(r.Problems) != 1 {
					t.Errorf("%s: %+v", c.name, r)
					continue
				}
				p := r.Problems[0]
				if p.Problem != c.want || c.index != "" && p.Index != c.index || c.key != "" && p.Key != c.key {
					t.Errorf("%s: %v", c.name, p)
				}
				if err := r.Err(); !errors.Is(err, store.ErrCorrupt) || fold.Hint(err) == "" {
					t.Errorf("%s: %v", c.name, err)
				}
			}
			// Without types only what needs none is seen.
			blind, unmarked, err := fold.CheckIndexes(bounded(t), s)
			wantBlind := uint64(0)
			if strings.HasPrefix(c.name, "an entry of no row") || strings.HasSuffix(c.name, "shape") || strings.HasSuffix(c.name, "short") {
				wantBlind = 1
			}
			if err != nil || blind.Found != wantBlind || (unmarked > 0) != (c.want == fold.IndexUnbuilt) || wantBlind > 0 && blind.Problems[0].Index != "by_node" {
				t.Errorf("%s: without types %+v, %d unmarked, %v", c.name, blind, unmarked, err)
			}
			apply(before)
		}
		tb.mustCheck(t)

		// A read tells what it meets.
		if err := s.Apply(bounded(t), &store.Batch{Ops: []store.Op{{Key: append(bytes.Clone(byNode), 'x')}}}, s.Cursor()); err != nil {
			t.Fatal(err)
		}
		var broken *fold.IndexError
		seen := 0
		for row, err := range tb.hosts.ListByNode(bounded(t), "n1") {
			if err == nil {
				seen++
				continue
			}
			if !errors.As(err, &broken) || broken.Key != "host.eu.ax" || row.Value != nil {
				t.Errorf("%v %v", row, err)
			}
		}
		if seen != 1 || broken == nil {
			t.Errorf("%d rows, %v", seen, broken)
		}
	})
}

// TestIndexReads: what is wrong is said, and nothing is left open.
func TestIndexReads(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		log, s := newLog(), openStore(t, b, t.TempDir())
		for i := range 20 {
			setHost(t, log, &indexedv1.Host{Region: "eu", Name: fmt.Sprint(i), NodeId: "n", Cert: []byte("same")})
		}
		early, err := fold.Register(fold.NewBuilder(log, s, fold.Options{}), ix.HostDesc)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := (ix.HostTable{Table: early}).GetByCert(bounded(t), nil); !errors.Is(err, fold.ErrNotStarted) {
			t.Errorf("before Start: %v", err)
		}
		tb := mustStartIndexed(t, log, s, fold.Options{})
		tb.caughtUp(t, log)
		ctx := bounded(t)
		if _, err := fold.CountIndex(ctx, tb.hosts.Table, "by_nothing", fold.NewIndexKey(nil, nil)); err == nil || !strings.Contains(err.Error(), `"by_nothing"`) {
			t.Errorf("no such index: %v", err)
		}
		if _, err := fold.CountIndex(ctx, tb.plain.Table, "by_node", fold.NewIndexKey(nil, nil)); err == nil {
			t.Error("a table without indexes has one")
		}
		for _, err := range tb.hosts.ListBySeen(ctx, fold.Time{}, fold.Span{Nanos: -1}) {
			var rej *fold.Rejection
			if !errors.As(err, &rej) || rej.Field != "drain" {
				t.Errorf("no length of time: %v", err)
			}
		}
		var not *fold.NotUniqueError
		if _, ok, err := tb.hosts.GetByCert(ctx, []byte("same")); ok || !errors.As(err, &not) || len(not.Keys) != fold.MaxNotUniqueKeys || !not.More || fold.Hint(err) == "" {
			t.Errorf("%v %v", ok, err)
		}
		over, cancel := context.WithCancel(ctx)
		defer cancel()
		n := 0
		for _, err := range tb.hosts.ListByNode(over, "n") {
			if n++; n == 3 {
				cancel()
			}
			if n == 4 && !errors.Is(err, context.Canceled) || n > 4 || n < 4 && err != nil {
				t.Errorf("row %d: %v", n, err)
			}
		}
		if _, err := tb.hosts.CountByNode(over, "n"); !errors.Is(err, context.Canceled) || n != 4 {
			t.Errorf("%d rows, then %v", n, err)
		}
		snap, err := tb.f.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		seq := tb.hosts.ListByNode(ctx, "n")
		for range 2 { // each range opens anew
			for _, err := range seq {
				if err != nil {
					t.Error(err)
				}
				break
			}
		}
		for i := range 19 {
			set(t, log, ix.HostKey{Region: "eu", Name: fmt.Sprint(i)}.String(), &indexedv1.Host{Region: "eu", Name: fmt.Sprint(i)})
		}
		tb.caughtUp(t, log)
		if row, ok, err := tb.hosts.GetByCert(ctx, []byte("same")); err != nil || !ok || row.Key.Name != "19" {
			t.Errorf("%v %v %v", row, ok, err)
		}
		was := tb.hosts.At(snap)
		if n, err := was.CountByNode(ctx, "n"); err != nil || n != 20 {
			t.Errorf("the snapshot has %d, %v", n, err)
		}
		if rows := collect(t, was.ListByNode(ctx, "n", fold.Limit(5), fold.Reverse())); len(rows) != 5 || rows[0].Key.Name != "9" {
			t.Errorf("the snapshot lists %v", rows)
		}
		if err := errors.Join(snap.Close(), tb.f.Close()); err != nil {
			t.Error(err)
		}
	})
}

// TestIndexesGoWithTheStore: an artifact has entries and marks, so that an import builds nothing; one of a fold with
// other indexes is brought up to date when it is opened.
func TestIndexesGoWithTheStore(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		log, dir := newLog(), t.TempDir()
		fill(log, 200)
		s := openStore(t, b, dir)
		tb := mustStartIndexed(t, log, s, fold.Options{})
		tb.caughtUp(t, log)
		out := filepath.Join(dir, "artifact")
		m, err := tb.f.Export(bounded(t), out)
		if err != nil {
			t.Fatal(err)
		}
		take := artifact.Options{Kinds: []store.Kind{s.Kind()}, Bucket: "test", Scope: &m.Scope, Log: m.Log.CreatedUnixNano}
		for _, dir := range []string{filepath.Join(dir, "copy"), filepath.Join(dir, "other")} {
			if _, err := artifact.Import(bounded(t), out, dir, take); err != nil {
				t.Fatal(err)
			}
		}
		copied, err := openExport(b, filepath.Join(dir, "copy"))
		if err != nil {
			t.Fatal(err)
		}
		if err := verified(t, copied).Err(); err != nil {
			t.Error(err)
		}
		told := 0
		again := mustStartIndexed(t, log, copied, fold.Options{Events: fold.Events{Rebuild: func(fold.RebuildProgress) { told++ }}})
		again.caughtUp(t, log)
		again.mustCheck(t)
		if told != 0 {
			t.Errorf("the copy's indexes were built %d times", told)
		}
		other, err := openExport(b, filepath.Join(dir, "other"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = other.Close() }()
		builder := fold.NewBuilder(log, other, fold.Options{Logger: quiet})
		_, err = fold.Register(builder, fold.WithIndexes(ix.HostDesc, func(l []schema.Index) []schema.Index {
			l[0].Fields = slices.Concat(l[0].Fields, l[2].Fields)
			return l
		}))
		if err := errors.Join(err, fold.BuildIndexes(bounded(t), builder, 0, func(p fold.RebuildProgress) { told++ })); err != nil || told != 1 {
			t.Errorf("%v, %d", err, told)
		}
	})
}

// TestIndexReadAllocations: a lookup costs a view, an iterator, the key and the row.
func TestIndexReadAllocations(t *testing.T) {
	for i, budget := range []float64{16, 28} {
		b := backends[i]
		t.Run(b.name, func(t *testing.T) {
			log := newLog()
			for i := range 100 {
				setHost(t, log, &indexedv1.Host{Region: "eu", Name: fmt.Sprint(i), NodeId: "n", Cert: []byte(fmt.Sprint("cert", i))})
			}
			tb := mustStartIndexed(t, log, openStore(t, b, t.TempDir()), fold.Options{})
			tb.caughtUp(t, log)
			ctx, cert := context.Background(), []byte("cert42")
			n := allocs(t, func() error {
				row, ok, err := tb.hosts.GetByCert(ctx, cert)
				if err == nil && (!ok || row.Key.Name != "42") {
					err = fmt.Errorf("row %v", row)
				}
				return err
			})
			if n > budget {
				t.Errorf("a unique lookup has %v allocations, at most %v", n, budget)
			}
			t.Logf("a unique lookup has %v allocations", n)
		})
	}
}

// TestNewKeysAreNeverOldOnes: a key that was added is not new, in whichever part of the filter it is, and few that were
// not are taken for old ones.
func TestNewKeysAreNeverOldOnes(t *testing.T) {
	k := fold.MakeNewKeys()
	if !k.IsNew("") || !k.Add("") || k.IsNew("") {
		t.Error("the empty key")
	}
	const n = fold.NewKeysBlock + 1000
	for i := range n {
		if !k.Add(fmt.Sprint("key.", i)) {
			t.Fatal("no more room")
		}
	}
	wrong := 0
	for i := range n {
		if k.IsNew(fmt.Sprint("key.", i)) {
			t.Fatalf("key %d is new", i)
		}
		if i < 100_000 && !k.IsNew(fmt.Sprint("other.", i)) {
			wrong++
		}
	}
	if wrong > 1000 {
		t.Errorf("%d of 100000 keys are taken for old ones", wrong)
	}
	full := fold.MakeNewKeys()
	if full.Fill(fold.NewKeysRoom - 1); !full.Add("a") || full.Add("b") {
		t.Error("a full filter takes more, or one with room does not")
	}
}

// askedStore counts the reads of rows.
type askedStore struct {
	store.Store
	asked atomic.Int64
}

func (s *askedStore) Get(key []byte, v *store.Value) (bool, error) {
	if key[0] == byte(store.SpaceData) {
		s.asked.Add(1)
	}
	return s.Store.Get(key, v)
}

// TestNewKeysAreNotAskedFor: a hydrate into an empty store reads no rows for keys that come for the first time, and one
// that was interrupted does.
func TestNewKeysAreNotAskedFor(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		log, dir := newHistoryLog(2), t.TempDir()
		for i := range 500 {
			setHost(t, log, &indexedv1.Host{Region: "eu", Name: fmt.Sprint(i), NodeId: "n"})
		}
		for i := range 10 {
			setHost(t, log, &indexedv1.Host{Region: "eu", Name: fmt.Sprint(i), NodeId: "m"})
		}
		s := &askedStore{Store: openStore(t, b, dir)}
		tb := mustStartIndexed(t, resumeFromStart{log}, s, fold.Options{Batch: fold.BatchOptions{Max: 100}})
		tb.caughtUp(t, log)
		if n := s.asked.Load(); n > 40 {
			t.Errorf("%d rows were read", n)
		}
		tb.mustCheck(t)
		if err := tb.f.Close(); err != nil {
			t.Fatal(err)
		}
		s = &askedStore{Store: openStore(t, b, dir)}
		tb = mustStartIndexed(t, log, s, fold.Options{})
		setHost(t, log, &indexedv1.Host{Region: "eu", Name: "new", NodeId: "n"})
		tb.caughtUp(t, log)
		if n := s.asked.Load(); n == 0 {
			t.Error("a store with rows was not asked")
		}
		tb.mustCheck(t)
	})
}

// TestIndexesOfOtherCodecs: JSON, an encoded message where JSON is written, and a raw value have the entries of what
// reads see.
func TestIndexesOfOtherCodecs(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		log, s, ctx := newLog(), openStore(t, b, t.TempDir()), bounded(t)
		builder := fold.NewBuilder(log, s, fold.Options{Logger: quiet})
		docs, err := ix.RegisterDoc(builder)
		if err != nil {
			t.Fatal(err)
		}
		blobs, err := ix.RegisterBlob(builder)
		if err != nil {
			t.Fatal(err)
		}
		f, err := builder.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		if _, err := ix.NewDocWriter(log).Put(ctx, &indexedv1.Doc{Id: "json", Owner: "me"}); err != nil {
			t.Fatal(err)
		}
		set(t, log, "record.proto", &indexedv1.Doc{Id: "proto", Owner: "me", Size: new(int64)})
		log.Set("record.bad", "{")
		rev, err := ix.NewBlobWriter(log).PutAt(ctx, ix.BlobKey{ID: "a"}, &indexedv1.Blob{Text: "hello"})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.WaitApplied(ctx, rev); err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, row := range collect(t, docs.ListByOwner(ctx, "me")) {
			ids = append(ids, row.Value.Id)
		}
		if n, err := docs.CountBySize(ctx, 0); !slices.Equal(ids, []string{"json", "proto"}) || err != nil || n != 1 {
			t.Errorf("%q, %d, %v", ids, n, err)
		}
		if row, ok, err := blobs.GetByText(ctx, "hello"); err != nil || !ok || row.Key.ID != "a" {
			t.Errorf("%v %v %v", row, ok, err)
		}
		report, err := f.VerifyIndexes(ctx)
		if err := errors.Join(err, report.Err()); err != nil || report.Rows != 3 {
			t.Errorf("%+v %v", report, err)
		}
		dynamic, err := fold.VerifyIndexesOf(ctx, s, (&indexedv1.Doc{}).ProtoReflect().Descriptor(), (&indexedv1.Blob{}).ProtoReflect().Descriptor())
		if err := errors.Join(err, dynamic.Err()); err != nil || dynamic.Entries != report.Entries || dynamic.Rows != 3 {
			t.Errorf("%+v %v", dynamic, err)
		}
	})
}
