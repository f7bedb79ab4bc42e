package repair

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
	"github.com/typedfold/fold/runtime/store/pebblestore"
)

// bounded is a context that ends long after any call of a test has returned.
func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// backends are the stores that a fold may be in.
var backends = map[string]func(dir string) (store.Store, error){
	"logstore": func(dir string) (store.Store, error) {
		return logstore.Open(filepath.Join(dir, "fold.log"), logstore.Options{Durability: logstore.None})
	},
	"pebble": func(dir string) (store.Store, error) {
		return pebblestore.Open(filepath.Join(dir, "pebble"), pebblestore.Options{Durability: pebblestore.None})
	},
}

// openStore opens an empty store of a backend; the test's end closes it.
func openStore(t testing.TB, backend string) store.Store {
	t.Helper()
	s, err := backends[backend](t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// fill makes an empty store what a complete fold of the log holds at a revision, with the cursor there.
func fill(t testing.TB, s store.Store, log *kvtest.Log, scope kv.Scope, at uint64) {
	t.Helper()
	var b store.Batch
	for _, e := range log.Truth(scope, at) {
		b.Updates = append(b.Updates, e.Update)
	}
	slices.SortFunc(b.Updates, func(x, y kv.Update) int { return cmp.Compare(x.Version.Rank(), y.Version.Rank()) })
	apply(t, s, kv.CursorAt(at), b.Updates...)
}

// apply commits updates under a cursor.
func apply(t testing.TB, s store.Store, c kv.Cursor, updates ...kv.Update) {
	t.Helper()
	if err := s.Apply(bounded(t), &store.Batch{Updates: updates}, c); err != nil {
		t.Fatal(err)
	}
}

// contents are all rows of a store: their key, with revision and value.
func contents(t testing.TB, g store.Getter) map[string]string {
	t.Helper()
	it, err := g.Iter(store.IterOptions{Lower: []byte{byte(store.SpaceData)}, Upper: []byte{byte(store.SpaceData) + 1}})
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for it.Next() {
		v, err := it.Value()
		if err != nil {
			t.Fatal(err)
		}
		r, err := store.ParseRecord(v)
		if err != nil {
			t.Fatal(err)
		}
		rows[store.NATSKey(it.Key())] = fmt.Sprintf("%v=%s", r.Version, r.Value)
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	return rows
}

// truth is what contents is of a complete fold at a revision.
func truth(log *kvtest.Log, scope kv.Scope, at uint64) map[string]string {
	rows := map[string]string{}
	for k, e := range log.Truth(scope, at) {
		rows[k] = fmt.Sprintf("%v=%s", e.Version, e.Value)
	}
	return rows
}

func wantRows(t testing.TB, got, want map[string]string) {
	t.Helper()
	if maps.Equal(got, want) {
		return
	}
	for k, v := range got {
		if w, ok := want[k]; !ok || v != w {
			t.Errorf("the fold holds %s %s, want %q", k, v, w)
		}
	}
	for k, w := range want {
		if _, ok := got[k]; !ok {
			t.Errorf("the fold lacks %s %s", k, w)
		}
	}
}

func prefixes(t testing.TB, p ...string) kv.Scope {
	t.Helper()
	s, err := kv.Prefixes(p...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// testFolder takes changes into a store as a fold does: under the cursor as it is, and none whose row is not the one
// that was expected.
type testFolder struct {
	store store.Store
	// before, when not nil, runs at the begin of each call, counted from 1; an error is what the call returns.
	before func(call int, changes []Change) error

	calls   int
	taken   []Change // what was handed in, by calls that took it
	skipped int      // changes whose row was another one
}

func (f *testFolder) Fold(ctx context.Context, changes []Change) error {
	f.calls++
	if f.before != nil {
		if err := f.before(f.calls, changes); err != nil {
			return err
		}
	}
	var b store.Batch
	for _, c := range changes {
		at, err := rowVersion(f.store, c.Key)
		if err != nil {
			return err
		}
		if (!c.Expect.IsUnknown() || c.ExpectUnknown) && at != c.Expect {
			f.skipped++
			continue
		}
		b.Updates = append(b.Updates, c.Update)
	}
	f.taken = append(f.taken, changes...)
	return f.store.Apply(ctx, &b, f.store.Cursor())
}

// rowVersion is the version of a key's row; unknown when there is none.
func rowVersion(g store.Getter, key string) (kv.Version, error) {
	var v store.Value
	ok, err := g.Get(store.AppendKey(nil, store.SpaceData, key), &v)
	if err != nil || !ok {
		return kv.Version{}, err
	}
	defer v.Release()
	r, err := store.ParseRecord(v.Bytes)
	return r.Version, err
}

// bentLog is a log whose answers a test bends. Calls are counted from 1.
type bentLog struct {
	Log
	info  func(call int, i kv.LogInfo) (kv.LogInfo, error)
	list  func(call int, keys iter.Seq2[kv.KeyVersion, error]) iter.Seq2[kv.KeyVersion, error]
	entry func(key string) error

	infos, lists int
}

func (l *bentLog) Info(ctx context.Context) (kv.LogInfo, error) {
	i, err := l.Log.Info(ctx)
	if l.infos++; err != nil || l.info == nil {
		return i, err
	}
	return l.info(l.infos, i)
}

func (l *bentLog) LastVersions(ctx context.Context, scope kv.Scope) iter.Seq2[kv.KeyVersion, error] {
	keys := l.Log.LastVersions(ctx, scope)
	if l.lists++; l.list == nil {
		return keys
	}
	return l.list(l.lists, keys)
}

func (l *bentLog) Entry(ctx context.Context, key string) (kv.Entry, error) {
	if l.entry != nil {
		if err := l.entry(key); err != nil {
			return kv.Entry{}, err
		}
	}
	return l.Log.Entry(ctx, key)
}

// without leaves keys out of a listing, and tells of an error when they are over.
func without(keys iter.Seq2[kv.KeyVersion, error], drop func(kv.KeyVersion) bool, last error) iter.Seq2[kv.KeyVersion, error] {
	return func(yield func(kv.KeyVersion, error) bool) {
		for k, err := range keys {
			if (err != nil || !drop(k)) && !yield(k, err) {
				return
			}
		}
		if last != nil {
			yield(kv.KeyVersion{}, last)
		}
	}
}

// follow applies to a store what the log still holds after the store's cursor, up to a revision, as a fold that resumed
// does.
func follow(t testing.TB, s store.Store, log *kvtest.Log, to uint64) {
	t.Helper()
	var updates []kv.Update
	for _, u := range log.Retained() {
		if rev := u.Version.Rank(); rev > s.Cursor().Revision() && rev <= to {
			updates = append(updates, u)
		}
	}
	c := s.Cursor()
	c.Version = kv.Revision(max(to, c.Revision()))
	apply(t, s, c, updates...)
}

// head is the log's last revision.
func head(t testing.TB, log *kvtest.Log) uint64 {
	t.Helper()
	i, err := log.Info(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	return i.Last
}

// decision is a report's last answer of a kernel; "" when it was not asked.
func decision(r *Report, kernel string) (answer string) {
	for _, d := range r.Decisions {
		if d.Kernel == kernel {
			answer = d.Answer
		}
	}
	return answer
}

// opens is the part of a Log that lets every watch resume.
type opens struct{}

func (opens) Open(context.Context, kv.OpenRequest) (kv.Watch, error) { return closedWatch{}, nil }

type closedWatch struct{ kv.Watch }

func (closedWatch) Close(context.Context) error { return nil }
