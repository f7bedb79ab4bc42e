package fold_test

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
)

// model is what a fold must hold after some messages, worked out with nothing but the tables' pure parsers.
type model map[string]*modelKey

type modelKey struct {
	newest   kv.Update
	accepted *kv.Update      // the last one that was accepted, where it still stands
	refused  *fold.Rejection // of newest
}

func isSession(key string) bool {
	return strings.HasPrefix(key, "session.") && strings.Count(key, ".") == 2
}

func replay(updates []kv.Update) model {
	m := model{}
	for _, u := range updates {
		switch {
		case u.Op == kv.OpAgedOut && !isSession(u.Key):
		case u.Op != kv.OpPut:
			delete(m, u.Key)
		default:
			k := m[u.Key]
			if k == nil {
				k = &modelKey{}
				m[u.Key] = k
			}
			k.put(u)
		}
	}
	return m
}

func (k *modelKey) put(u kv.Update) {
	k.newest = u
	rej := judge(u)
	switch k.refused = rej; {
	case rej == nil:
		k.accepted = &u
	case rej.Table == "Dropped":
		k.accepted = nil
	}
}

// judge is the rejection by the table that the key has the shape of; nil also for a key of no table.
func judge(u kv.Update) *fold.Rejection {
	for _, parse := range []func(kv.Update) *fold.Rejection{
		verdict(ft.ParseRoute), verdict(ft.ParseRouteMeta), verdict(ft.ParseSession), verdict(ft.ParseDropped),
		verdict(ft.ParseDoc), verdict(ft.ParseSettings), verdict(ft.ParseHalted),
	} {
		if rej := parse(u); rej == nil || rej.Code != fold.KeyNoPattern {
			return rej
		}
	}
	return nil
}

func verdict[K fold.Key, V proto.Message](parse func(fold.RawEntry) (fold.Event[K, V], *fold.Rejection)) func(kv.Update) *fold.Rejection {
	return func(u kv.Update) *fold.Rejection {
		_, rej := parse(u)
		return rej
	}
}

// raw is the newest revision of each key.
func (m model) raw() map[string]uint64 {
	out := map[string]uint64{}
	for key, k := range m {
		out[key] = k.newest.Version.Rank()
	}
	return out
}

// rejected is how many keys of the table, "" for all, have a rejected newest message.
func (m model) rejected(table string) (n uint64) {
	for _, k := range m {
		if k.refused != nil && (table == "" || k.refused.Table == table) {
			n++
		}
	}
	return n
}

// expected are the rows of one table.
func expected[K fold.Key, V proto.Message](m model, parse func(fold.RawEntry) (fold.Event[K, V], *fold.Rejection)) map[K]fold.Row[K, V] {
	rows := map[K]fold.Row[K, V]{}
	for _, k := range m {
		if k.accepted == nil {
			continue
		}
		if e, rej := parse(*k.accepted); rej == nil {
			rows[e.Key] = fold.Row[K, V]{Key: e.Key, Value: e.New, Rev: e.Rev, Time: e.Time, Stale: k.refused}
		}
	}
	return rows
}

func sameRejection(a, b *fold.Rejection) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Code == b.Code && a.Table == b.Table && a.Key == b.Key && a.Field == b.Field && a.Revision == b.Revision
}

func sameRow[K fold.Key, V proto.Message](a, b fold.Row[K, V]) bool {
	return a.Key == b.Key && proto.Equal(a.Value, b.Value) && a.Rev == b.Rev && a.Time.Equal(b.Time) && sameRejection(a.Stale, b.Stale)
}

// checkTable compares every way to read a table with the rows that it must have.
func checkTable[K fold.Key, V proto.Message](ctx context.Context, m model, name string, t *fold.Table[K, V], all fold.Prefix[K], want map[K]fold.Row[K, V], resident bool) error {
	fail := func(format string, args ...any) error { return fmt.Errorf("table "+name+": "+format, args...) }
	listed := 0
	for row, err := range t.List(ctx, all) {
		if err != nil {
			return err
		}
		if listed++; !sameRow(row, want[row.Key]) {
			return fail("lists %+v, want %+v", row, want[row.Key])
		}
	}
	if listed != len(want) {
		return fail("lists %d rows, want %v", listed, want)
	}
	if n, err := t.Count(ctx, all); err != nil || n != uint64(len(want)) {
		return fail("counts %d (%v), want %d", n, err, len(want))
	}
	for k, row := range want {
		if got, ok, err := t.GetRow(ctx, k); err != nil || !ok || !sameRow(got, row) {
			return fail("gets %+v %v %v, want %+v", got, ok, err, row)
		}
		if !resident {
			continue
		}
		if got, ok := t.Peek(k); !ok || !proto.Equal(got, row.Value) {
			return fail("peeks %v %v, want %v", got, ok, row.Value)
		}
	}
	rejected := uint64(0)
	for rej, err := range t.Rejected(ctx) {
		if err != nil {
			return err
		}
		if rejected++; m[rej.Key] == nil || !sameRejection(m[rej.Key].refused, rej) {
			return fail("rejected %v, want %+v", rej, m[rej.Key])
		}
	}
	if rejected != m.rejected(name) {
		return fail("%d rejections, want %d", rejected, m.rejected(name))
	}
	for key := range m {
		if !resident {
			break
		}
		if k, ok := keyOf[K](key); ok {
			if _, there := t.Peek(k); there != has(want, k) {
				return fail("peek of %v is %v", k, there)
			}
		}
	}
	return nil
}

func has[K comparable, V any](m map[K]V, k K) bool {
	_, ok := m[k]
	return ok
}

// keyOf reads a NATS key as a key of the type, where it is one.
func keyOf[K fold.Key](key string) (k K, ok bool) {
	var err error
	switch p := any(&k).(type) {
	case *ft.RouteKey:
		*p, err = ft.ParseRouteKey(key)
	case *ft.SessionKey:
		*p, err = ft.ParseSessionKey(key)
	case *ft.DroppedKey:
		*p, err = ft.ParseDroppedKey(key)
	default:
		return k, false
	}
	return k, err == nil
}
