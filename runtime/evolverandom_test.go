package fold_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/store"
)

// evolved is what a store must serve of one key, worked out with nothing but the versions' pure judgements.
type evolved struct {
	newest   kv.Update
	accepted *kv.Update // the last accepted one; newest itself, unless that is refused
	unsure   bool       // a start that was cut short may have taken accepted away
}

type evolvedModel map[string]*evolved

// apply folds updates under a version; nil is a run without the table.
func (m evolvedModel) apply(s *itemSchema, updates []kv.Update) {
	for _, u := range updates {
		if u.Op != kv.OpPut {
			delete(m, u.Key)
			continue
		}
		k := m[u.Key]
		if k == nil {
			k = &evolved{}
			m[u.Key] = k
		}
		k.newest = u
		if s == nil || s.accepts(u) {
			k.accepted, k.unsure = &u, false
		}
	}
}

// open judges everything again by a version. cut says that the start failed somewhere on the way.
func (m evolvedModel) open(s *itemSchema, cut bool) {
	for _, k := range m {
		switch {
		case s.accepts(k.newest) && cut:
			k.unsure = true
		case s.accepts(k.newest):
			newest := k.newest
			k.accepted, k.unsure = &newest, false
		case k.accepted == nil || k.accepted.Version == k.newest.Version:
			// The newest was accepted, or nothing was: there is no older value. A cut start leaves it to the next one.
			if !cut {
				k.accepted, k.unsure = nil, false
			}
		case !s.accepts(*k.accepted):
			if k.unsure = true; !cut {
				k.accepted, k.unsure = nil, false
			}
		}
	}
}

func (s *itemSchema) accepts(u kv.Update) bool {
	_, rej := s.parse(u)
	return rej == nil && (!s.table.Validate || !strings.Contains(string(u.Value), "bad"))
}

// check compares what a life serves with the model.
func (m evolvedModel) check(l *life) {
	l.t.Helper()
	rows := l.rows()
	for key, k := range m {
		id := strings.TrimPrefix(key, "item.")
		row, ok := rows[id]
		delete(rows, id)
		fresh := l.of.accepts(k.newest)
		switch {
		case k.accepted == nil || !fresh && k.accepted.Version == k.newest.Version:
			if ok {
				l.t.Errorf("%v: key %s has row %s, want none", l.of, key, row)
			}
		case !ok && k.unsure && !fresh:
		case !ok:
			l.t.Errorf("%v: key %s has no row, want revision %v", l.of, key, k.accepted.Version)
		case !strings.Contains(row, fmt.Sprintf("@%d", k.accepted.Version.Rank())) || strings.Contains(row, "stale") == fresh:
			l.t.Errorf("%v: key %s has row %s, want revision %v, stale %v", l.of, key, row, k.accepted.Version, !fresh)
		}
	}
	for id, row := range rows {
		l.t.Errorf("%v: row %s is %s, want none", l.of, id, row)
	}
}

// TestEvolveRandomHistories takes one store through random versions of its table, with writes, runs without the table
// and starts that are cut short in between. After each start the judgements are those of a fold that begins then, and
// the rows those of a model.
func TestEvolveRandomHistories(t *testing.T) {
	v := versions(t)
	var pool []*itemSchema
	for _, name := range []string{"plain", "json", "both", "fill", "small", "valid", "index", "other", "validindex", "unique"} {
		pool = append(pool, v[name])
	}
	eachBackend(t, func(t *testing.T, b backend) {
		seeds := uint64(30)
		if b.name == "pebble" {
			seeds = 8
		}
		for seed := range seeds {
			r := rand.New(rand.NewPCG(seed, 7))
			log, dir := newHistoryLog(1+r.IntN(3)), t.TempDir()
			log.Set("anchor", "")
			m := evolvedModel{}
			seen := 1
			var trace []string
			for range 8 {
				s := pool[r.IntN(len(pool))]
				if r.IntN(6) == 0 {
					s = nil
				}
				trace = append(trace, fmt.Sprint(s))
				if s != nil && r.IntN(3) == 0 { // a start that is cut short first, perhaps of another version
					other := pool[r.IntN(len(pool))]
					at := 1 + r.IntN(5)
					trace = append(trace, fmt.Sprintf("%v cut at %d", other, at))
					l, err := tryLife(t, b, dir, log, other, lifeOptions{rows: 1 + r.IntN(4), apply: func(n int, _ *store.Batch, _ kv.Cursor) error {
						if n == at {
							return errInjected
						}
						return nil
					}})
					if m.open(other, err != nil); err == nil {
						l.end()
					}
				}
				l := begin(t, b, dir, log, s, lifeOptions{rows: 1 + r.IntN(6)})
				if s != nil {
					m.open(s, false)
					m.check(l)
				}
				for range 1 + r.IntN(12) {
					writeItem(t, log, r)
					l.caughtUp() // each message by itself, also those that the log keeps no history of
					all := log.Retained()
					last := all[len(all)-1]
					if last.Version.Rank() > uint64(seen) {
						m.apply(s, []kv.Update{last})
						seen = int(last.Version.Rank())
					}
				}
				if s != nil {
					m.check(l)
					l.sameAsFresh(b)
				}
				l.end()
				if t.Failed() {
					t.Fatalf("seed %d, after %v", seed, trace)
				}
			}
		}
	})
}

func writeItem(t *testing.T, log *kvtest.Log, r *rand.Rand) {
	id := fmt.Sprint("k", r.IntN(8))
	key, n := "item."+id, uint32(r.IntN(3))
	text := []string{"good", "bad", "a text that is long"}[r.IntN(3)]
	switch r.IntN(6) {
	case 0:
		log.Remove(key)
	case 1:
		log.Set(key, "\xff")
	case 2:
		if _, err := log.Put(bounded(t), key, []byte(itemJSON(id, n, text)), kv.PutOptions{ContentType: typeJSON}); err != nil {
			t.Error(err)
		}
	case 3:
		log.Set(key, itemProto("x", n, text, 0))
	default:
		log.Set(key, itemProto(id, n, text, 0))
	}
}

// TestEvolveManyRows judges 100,000 rows again: no batch is larger than the bound, and the progress goes one way.
func TestEvolveManyRows(t *testing.T) {
	const rows = 100_000
	v := versions(t)
	eachBackend(t, func(t *testing.T, b backend) {
		log, dir := newLog(), t.TempDir()
		begin(t, b, dir, log, v["plain"], lifeOptions{}).end()
		s := openStore(t, b, dir)
		var batch store.Batch
		for i := range rows {
			id := fmt.Sprintf("k%06d", i)
			batch.Updates = append(batch.Updates, kv.Update{Key: "item." + id, Value: []byte(itemProto(id, uint32(i), "a text that is too long", 0)), Version: kv.Revision(uint64(i + 1)), UnixNano: 1, Op: kv.OpPut})
			if len(batch.Updates) == 20_000 {
				if err := s.Apply(context.Background(), &batch, s.Cursor()); err != nil {
					t.Fatal(err)
				}
				batch.Updates = batch.Updates[:0]
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		most, applies := 0, 0
		var told []fold.RebuildProgress
		for _, version := range []string{"small", "plain"} {
			l := begin(t, b, dir, log, v[version], lifeOptions{
				events: fold.Events{Rebuild: func(p fold.RebuildProgress) { told = append(told, p) }},
				apply: func(_ int, b *store.Batch, _ kv.Cursor) error {
					applies++
					most = max(most, len(b.Ops)+len(b.Updates))
					return nil
				},
			})
			want := uint64(0)
			if version == "small" {
				want = rows
			}
			if got := l.f.Status().RejectedKeys; got != want {
				t.Errorf("%s: %d rejected keys, want %d", version, got, want)
			}
			l.end()
			for i, p := range told {
				if p.Total != rows || p.Done > rows || i > 0 && p.Done <= told[i-1].Done || i == len(told)-1 && p.Done != rows {
					t.Errorf("%s: progress %d is %+v after %+v", version, i, p, told[max(i-1, 0)])
				}
			}
			if len(told) < 6 || applies < 6 || most > 16_384+8 {
				t.Errorf("%s: %d reports, %d applies, the largest of %d writes", version, len(told), applies, most)
			}
			told, applies = nil, 0
		}
	})
}
