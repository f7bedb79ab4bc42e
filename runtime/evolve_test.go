package fold_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/schema"
	"github.com/typedfold/fold/runtime/store"
)

// noBad is a validator that refuses one text.
type noBad struct{}

func (noBad) Validate(m proto.Message) error {
	if m.(*item).get("text").String() == "bad" {
		return errors.New("the text is bad")
	}
	return nil
}

// life is one run of a fold over the table's store.
type life struct {
	t     testing.TB
	f     *fold.Fold
	store store.Store
	table *fold.Table[itemKey, *item]
	of    *itemSchema
	log   *kvtest.Log
}

// lifeOptions shape a life. The zero value is an ordinary one.
type lifeOptions struct {
	events fold.Events
	repair fold.RepairOptions
	rows   int                                            // that a refold looks at in one batch; 0 is the default
	apply  func(n int, b *store.Batch, c kv.Cursor) error // before each apply within Start
	under  *store.Store                                   // gets the store below
}

// tryLife opens the store in dir with one version of the table, or with nil without the table.
func tryLife(t testing.TB, b backend, dir string, log *kvtest.Log, s *itemSchema, o lifeOptions) (*life, error) {
	t.Helper()
	st := store.Store(openStore(t, b, dir))
	if o.under != nil {
		*o.under = st
	}
	if o.apply != nil {
		n := 0
		st = &faultStore{Store: st, apply: func(_ int, batch *store.Batch, c kv.Cursor) error {
			if slices.ContainsFunc(batch.Ops, func(op store.Op) bool { return string(op.Key) == string(store.MetaKey(store.MetaLog)) }) {
				return nil // what the fold itself commits, of updates
			}
			n++
			return o.apply(n, batch, c)
		}}
	}
	builder := fold.NewBuilder(log, st, fold.Options{Logger: quiet, Events: o.events, Repair: o.repair})
	if o.rows > 0 {
		builder.SetRefoldRows(o.rows)
	}
	l := &life{t: t, store: st, of: s, log: log}
	var err error
	if s != nil {
		l.table, err = s.register(builder, fold.WithValidator(noBad{}))
	}
	if err == nil {
		l.f, err = builder.Start(bounded(t))
	}
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return l, nil
}

func begin(t testing.TB, b backend, dir string, log *kvtest.Log, s *itemSchema, o lifeOptions) *life {
	t.Helper()
	l, err := tryLife(t, b, dir, log, s, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *life) caughtUp() {
	l.t.Helper()
	info, err := l.log.Info(bounded(l.t))
	if err == nil {
		err = l.f.WaitApplied(bounded(l.t), fold.Seq(info.Last))
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *life) end() {
	l.t.Helper()
	if err := l.f.Close(); err != nil {
		l.t.Fatal(err)
	}
}

// rows are the table's rows as text, by id.
func (l *life) rows() map[string]string {
	l.t.Helper()
	rows := map[string]string{}
	for _, r := range collect(l.t, l.table.List(bounded(l.t), fold.PrefixOf(itemKey{}, 1))) {
		text := fmt.Sprintf("%s %s@%d", r.Value.get("id"), r.Value.get("text"), r.Rev.Seq())
		if r.Stale != nil {
			text += " stale " + r.Stale.Code.String()
		}
		rows[r.Key.id] = text
	}
	if n, err := l.table.Count(bounded(l.t), fold.PrefixOf(itemKey{}, 1)); err != nil || n != uint64(len(rows)) {
		l.t.Errorf("%v counts %d rows (%v), and lists %d", l.of, n, err, len(rows))
	}
	return rows
}

func sortedRows(rows map[string]string) string {
	return strings.Join(slices.Sorted(maps.Values(rows)), ", ")
}

// dump is what a store holds in some spaces, by store key.
func dump(t testing.TB, s store.Getter, spaces ...store.Space) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, space := range spaces {
		prefix := []byte{byte(space)}
		it, err := s.Iter(store.IterOptions{Lower: prefix, Upper: store.PrefixEnd(prefix)})
		if err != nil {
			t.Fatal(err)
		}
		for it.Next() {
			v, err := it.Value()
			if err != nil {
				t.Fatal(err)
			}
			out[string(it.Key())] = string(v)
		}
		if err := errors.Join(it.Err(), it.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func diffMaps(have, want map[string]string) string {
	var b strings.Builder
	all := maps.Clone(have)
	maps.Copy(all, want)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if have[k] != want[k] {
			fmt.Fprintf(&b, "%q: have %q, want %q\n", k, have[k], want[k])
		}
	}
	return b.String()
}

// sameAsFresh compares a life's judgements with those of a fold that begins now, which has no older values to serve.
func (l *life) sameAsFresh(b backend) {
	l.t.Helper()
	fresh := begin(l.t, b, l.t.TempDir(), l.log, l.of, lifeOptions{})
	fresh.caughtUp()
	judged := []store.Space{store.SpaceData, store.SpaceRejected}
	if d := diffMaps(dump(l.t, l.store, judged...), dump(l.t, fresh.store, judged...)); d != "" {
		l.t.Errorf("%v: other judgements than those of a fresh fold:\n%s", l.of, d)
	}
	rejected := dump(l.t, l.store, store.SpaceRejected)
	for key := range dump(l.t, l.store, store.SpaceAccepted) {
		if _, ok := rejected[string(store.SpaceRejected)+key[1:]]; !ok {
			l.t.Errorf("%v: key %q has an older value on record, and is not rejected", l.of, key[1:])
		}
	}
	if have, want := l.f.Status().RejectedKeys, fresh.f.Status().RejectedKeys; have != want {
		l.t.Errorf("%v: %d rejected keys, a fresh fold has %d", l.of, have, want)
	}
	rows := l.rows()
	maps.DeleteFunc(rows, func(_, row string) bool { return strings.Contains(row, "stale") })
	if d := diffMaps(rows, fresh.rows()); d != "" {
		l.t.Errorf("%v: other rows than those of a fresh fold:\n%s", l.of, d)
	}
	if report, err := l.f.VerifyIndexes(bounded(l.t)); err != nil || report.Err() != nil {
		l.t.Errorf("%v: indexes: %v, %v", l.of, err, report.Err())
	}
	fresh.end()
}

func (l *life) record() string {
	l.t.Helper()
	b, err := store.Meta(l.store, store.MetaSchema+"item.v1.Item")
	if err != nil {
		l.t.Fatal(err)
	}
	return string(b)
}

// versions are the table's schemas.
func versions(t testing.TB) map[string]*itemSchema {
	v := map[string]*itemSchema{}
	for name, option := range map[string]string{
		"plain": "", "json": "value: CODEC_PROTOJSON", "both": "also_read: CODEC_PROTOJSON", "fill": "bind: BIND_FILL", "small": "max_value_bytes: 14",
		"valid": "validate: true", "drop": "on_reject: ON_REJECT_DROP_ROW", "halt": "on_reject: ON_REJECT_HALT", "mirror": "on_age_out: ON_AGE_OUT_DROP",
		"smallmirror": "on_age_out: ON_AGE_OUT_DROP max_value_bytes: 14",
		"index":       `index: {name: "by_n" fields: "n"}`, "unique": `index: {name: "by_n" fields: "n" unique: true}`, "other": `index: {name: "by_text" fields: "text"}`,
		"retired": `retired_index: "by_n"`, "validindex": `validate: true index: {name: "by_n" fields: "n"}`,
	} {
		v[name] = itemOf(t, name, fmt.Sprintf(itemTable, option))
	}
	for name, enum := range map[string]string{"kinds": "KIND_ON = 1;", "more": "KIND_ON = 1; KIND_AUTO = 2;", "renumbered": "KIND_ON = 2;", "renamed": "KIND_LIVE = 1;"} {
		v[name] = itemOf(t, name, fmt.Sprintf(kindTable, "")+"enum Kind { KIND_OFF = 0; "+enum+" }\n")
	}
	v["pattern"] = itemOf(t, "pattern", strings.Replace(fmt.Sprintf(itemTable, ""), "item.{id}", "item.{text}", 1))
	v["encoding"] = itemOf(t, "encoding", strings.Replace(fmt.Sprintf(itemTable, ""), "string id = 1", "string id = 1 [(fold.v1.field).enc = ENCODING_VERBATIM]", 1))
	return v
}

// TestEvolveEachClass opens one store with a pair of schemas for each kind of change.
func TestEvolveEachClass(t *testing.T) {
	v := versions(t)
	for _, c := range []struct {
		before, after string
		class         schema.Class
		rows          string // after, sorted by id
	}{
		{"plain", "plain", schema.Safe, "a good@1, big it is too long@3, e bad@5"},
		{"plain", "retired", schema.Safe, "a good@1, big it is too long@3, e bad@5"},
		{"mirror", "plain", schema.Safe, "a good@1, big it is too long@3, e bad@5"},
		{"index", "unique", schema.Safe, "a good@1, big it is too long@3, e bad@5"},
		{"plain", "index", schema.Reindex, "a good@1, big it is too long@3, e bad@5"},
		{"index", "plain", schema.Reindex, "a good@1, big it is too long@3, e bad@5"},
		{"index", "other", schema.Reindex, "a good@1, big it is too long@3, e bad@5"},
		{"plain", "json", schema.Refold, "j json@2"},
		{"json", "plain", schema.Refold, "a good@1, big it is too long@3, e bad@5"},
		{"plain", "both", schema.Refold, "a good@1, big it is too long@3, e bad@5, j json@2"},
		{"both", "plain", schema.Refold, "a good@1, big it is too long@3, e bad@5"},
		{"plain", "fill", schema.Refold, "a good@1, big it is too long@3, e bad@5, o of another@4"},
		{"fill", "plain", schema.Refold, "a good@1, big it is too long@3, e bad@5"},
		{"plain", "small", schema.Refold, "a good@1, e bad@5"},
		{"small", "plain", schema.Refold, "a good@1, big it is too long@3, e bad@5"},
		{"plain", "valid", schema.Refold, "a good@1, big it is too long@3"},
		{"valid", "plain", schema.Refold, "a good@1, big it is too long@3, e bad@5"},
		{"plain", "drop", schema.Refold, "a good@1, big it is too long@3, e bad@5"},
		{"plain", "mirror", schema.Refold, "a good@1, big it is too long@3, e bad@5"},
		{"plain", "validindex", schema.Refold, "a good@1, big it is too long@3"},
		{"index", "validindex", schema.Refold, "a good@1, big it is too long@3"},
	} {
		eachBackend(t, func(t *testing.T, b backend) {
			log, dir := newLog(), t.TempDir()
			log.Set("item.a", itemProto("a", 1, "good", 0))
			if _, err := log.Put(bounded(t), "item.j", []byte(itemJSON("j", 2, "json")), kv.PutOptions{ContentType: typeJSON}); err != nil {
				t.Fatal(err)
			}
			log.Set("item.big", itemProto("big", 1, "it is too long", 0))
			log.Set("item.o", itemProto("x", 1, "of another", 0))
			log.Set("item.e", itemProto("e", 2, "bad", 0))
			before, after := v[c.before], v[c.after]
			if got := schema.Classify(before.table.Record(), after.table.Record()); got.Class != c.class {
				t.Fatalf("%s to %s is %v", c.before, c.after, got)
			}
			l := begin(t, b, dir, log, before, lifeOptions{})
			l.caughtUp()
			l.rows() // which has the count kept
			l.end()
			var told []fold.RebuildProgress
			l = begin(t, b, dir, log, after, lifeOptions{events: fold.Events{Rebuild: func(p fold.RebuildProgress) {
				if p.Index == "" {
					told = append(told, p)
				}
			}}})
			if got := sortedRows(l.rows()); got != c.rows {
				t.Errorf("%s to %s: rows %s, want %s", c.before, c.after, got, c.rows)
			}
			if l.record() != after.table.Record() {
				t.Errorf("%s to %s: record\n%s", c.before, c.after, l.record())
			}
			if refolded := len(told) > 0; refolded != (c.class == schema.Refold) || refolded && told[len(told)-1] != (fold.RebuildProgress{Table: "Item", Done: 5, Total: 5}) {
				t.Errorf("%s to %s: told %v", c.before, c.after, told)
			}
			l.caughtUp()
			l.sameAsFresh(b)
			l.end()
			told = nil
			begin(t, b, dir, log, after, lifeOptions{events: fold.Events{Rebuild: func(p fold.RebuildProgress) { told = append(told, p) }}}).end()
			if len(told) > 0 {
				t.Errorf("%s to %s: the next start told %v", c.before, c.after, told)
			}
		})
	}
}

// TestEvolveEnumNames: keys that could not be read may be readable with a new name, and a name that goes is refused.
func TestEvolveEnumNames(t *testing.T) {
	v := versions(t)
	eachBackend(t, func(t *testing.T, b backend) {
		log, dir := newLog(), t.TempDir()
		log.Set("item.a.KIND_ON", itemProto("a", 1, "x", 1))
		log.Set("item.b.KIND_AUTO", itemProto("b", 1, "y", 2))
		l := begin(t, b, dir, log, v["kinds"], lifeOptions{})
		l.caughtUp()
		if rows := l.rows(); len(rows) != 1 || l.f.Status().RejectedKeys != 1 {
			t.Errorf("rows %v", rows)
		}
		l.end()
		l = begin(t, b, dir, log, v["more"], lifeOptions{})
		if rows := l.rows(); len(rows) != 2 || rows["b"] != "b y@2" {
			t.Errorf("rows %v", rows)
		}
		l.caughtUp()
		l.sameAsFresh(b)
		l.end()
		for name, line := range map[string]string{"kinds": "- name KIND_AUTO of kind: 2", "renumbered": "+ name KIND_ON of kind: 2", "renamed": "- name KIND_ON of kind: 1"} {
			refusedAt(t, b, dir, log, v[name], line)
		}
	})
}

// refusedAt expects a breaking change to be refused, with some lines in the error, and the store to stay as it is.
func refusedAt(t *testing.T, b backend, dir string, log *kvtest.Log, s *itemSchema, lines ...string) *fold.SchemaError {
	t.Helper()
	_, err := tryLife(t, b, dir, log, s, lifeOptions{apply: func(int, *store.Batch, kv.Cursor) error {
		t.Errorf("%v: a refused start wrote", s)
		return nil
	}})
	var changed *fold.SchemaError
	if !errors.As(err, &changed) || !errors.Is(err, fold.ErrSchemaChanged) || changed.Verdict.Class != schema.Breaking || fold.Hint(err) == "" {
		t.Fatalf("%v: %v", s, err)
	}
	for _, line := range append(lines, "  BREAKING: ") {
		if !strings.Contains(err.Error(), "\n"+line) {
			t.Errorf("%v\nlacks %q", err, line)
		}
	}
	return changed
}

func TestEvolveRefusesBreakingChanges(t *testing.T) {
	v := versions(t)
	eachBackend(t, func(t *testing.T, b backend) {
		log, dir := newLog(), t.TempDir()
		log.Set("item.a", itemProto("a", 1, "good", 0))
		l := begin(t, b, dir, log, v["retired"], lifeOptions{})
		l.caughtUp()
		l.end()
		refusedAt(t, b, dir, log, v["pattern"], "- key: item.{id}", "+ key: item.{text}")
		refusedAt(t, b, dir, log, v["encoding"], "- var id: string ESC", "+ var id: string VERBATIM")
		refusedAt(t, b, dir, log, v["kinds"], "+ var kind: enum item.v1.Kind ENUM_NAME")
		refusedAt(t, b, dir, log, v["index"], "+ index by_n: ", "- retired_index: by_n")
		// A line of a newer version.
		s := openStore(t, b, dir)
		newer := v["retired"].table.Record() + "shards: 4\n"
		op := store.Op{Key: store.MetaKey(store.MetaSchema + "item.v1.Item"), Value: []byte(newer)}
		if err := errors.Join(s.Apply(bounded(t), &store.Batch{Ops: []store.Op{op}}, s.Cursor()), s.Close()); err != nil {
			t.Fatal(err)
		}
		if e := refusedAt(t, b, dir, log, v["retired"], "- shards: 4"); !strings.Contains(e.Hint(), "newer") || e.Stored != newer {
			t.Errorf("hint %q of %q", e.Hint(), e.Stored)
		}
	})
}

// TestEvolveKeepOld: the last accepted value is served as long as the schema of the day accepts it.
func TestEvolveKeepOld(t *testing.T) {
	v := versions(t)
	eachBackend(t, func(t *testing.T, b backend) {
		for _, c := range []struct{ after, row string }{
			{"both", "a old@1 stale VALUE_DECODE"}, {"fill", "a old@1 stale VALUE_DECODE"}, {"small", "a old@1 stale VALUE_DECODE"},
			{"json", ""}, {"drop", ""},
		} {
			log, dir := newLog(), t.TempDir()
			log.Set("item.a", itemProto("a", 1, "old", 0))
			l := begin(t, b, dir, log, v["plain"], lifeOptions{})
			l.caughtUp()
			log.Set("item.a", "\xff\xff")
			l.caughtUp()
			l.end()
			l = begin(t, b, dir, log, v[c.after], lifeOptions{})
			if got := l.rows()["a"]; got != c.row {
				t.Errorf("%s: row %q, want %q", c.after, got, c.row)
			}
			l.caughtUp()
			l.sameAsFresh(b)
			// What is served ends with the next accepted value, as ever.
			log.Set("item.a", itemProto("a", 1, "new", 0))
			if c.after == "json" {
				log.Set("item.a", itemJSON("a", 1, "new"))
			}
			l.caughtUp()
			if got := l.rows()["a"]; !strings.HasPrefix(got, "a new@") || l.f.Status().RejectedKeys != 0 {
				t.Errorf("%s: row %q, %d rejected keys", c.after, got, l.f.Status().RejectedKeys)
			}
			if left := dump(t, l.store, store.SpaceAccepted, store.SpaceRejected); len(left) != 0 {
				t.Errorf("%s: left behind %q", c.after, left)
			}
			l.end()
		}
	})
}

// TestEvolveToHalt: a table that halts on rejected values does not start on one, and the earlier schema goes on.
func TestEvolveToHalt(t *testing.T) {
	v := versions(t)
	eachBackend(t, func(t *testing.T, b backend) {
		log, dir := newLog(), t.TempDir()
		log.Set("item.a", itemProto("a", 1, "old", 0))
		log.Set("item.b", "\xff\xff")
		l := begin(t, b, dir, log, v["plain"], lifeOptions{})
		l.caughtUp()
		l.end()
		_, err := tryLife(t, b, dir, log, v["halt"], lifeOptions{rows: 1})
		var halt *fold.HaltError
		if !errors.As(err, &halt) || !halt.Stored || halt.Rejection.Key != "item.b" || halt.Rejection.Code != fold.ValueDecode || !strings.Contains(halt.Hint(), "earlier schema") {
			t.Fatalf("%v", err)
		}
		l = begin(t, b, dir, log, v["plain"], lifeOptions{})
		log.Set("item.b", itemProto("b", 1, "new", 0))
		l.caughtUp()
		l.sameAsFresh(b)
		l.end()
		l = begin(t, b, dir, log, v["halt"], lifeOptions{})
		if rows := l.rows(); rows["a"] != "a old@1" || rows["b"] != "b new@3" {
			t.Errorf("rows %v", rows)
		}
		l.end()
	})
}

// TestEvolveRegistersLater: rows that were stored without their table are judged when it comes, and again whenever the
// bucket was folded without it.
func TestEvolveRegistersLater(t *testing.T) {
	v := versions(t)
	eachBackend(t, func(t *testing.T, b backend) {
		log, dir := newLog(), t.TempDir()
		log.Set("item.a", itemProto("a", 1, "good", 0))
		log.Set("item.b", "\xff\xff")
		l := begin(t, b, dir, log, nil, lifeOptions{})
		l.caughtUp()
		if l.record() != "" || l.f.Status().RejectedKeys != 0 {
			t.Errorf("record %q", l.record())
		}
		l.end()
		l = begin(t, b, dir, log, v["index"], lifeOptions{})
		if rows := l.rows(); len(rows) != 1 || rows["a"] != "a good@1" || l.f.Status().RejectedKeys != 1 {
			t.Errorf("rows %v", rows)
		}
		l.caughtUp()
		l.sameAsFresh(b)
		l.end()

		for range 2 {
			l = begin(t, b, dir, log, nil, lifeOptions{})
			log.Set("item.c", "\xfe")
			log.Set("item.b", itemProto("b", 1, "good", 0))
			log.Set("item.a", itemProto("x", 1, "of another", 0))
			l.caughtUp()
			if want := schema.Again(v["index"].table.Record(), schema.AgainUnregistered); l.record() != want {
				t.Errorf("record\n%s", l.record())
			}
			l.end()
		}
		l = begin(t, b, dir, log, v["index"], lifeOptions{})
		if rows := l.rows(); len(rows) != 1 || !strings.HasPrefix(rows["b"], "b good") || l.f.Status().RejectedKeys != 2 {
			t.Errorf("rows %v", rows)
		}
		l.caughtUp()
		l.sameAsFresh(b)
		l.end()
		refusedAt(t, b, dir, log, v["pattern"], "- key: item.{id}", "+ key: item.{text}")
	})
}

// TestEvolveAgedOut: a table that drops what retention removes can't be sure of rows that it did not drop at the time.
func TestEvolveAgedOut(t *testing.T) {
	v := versions(t)
	eachBackend(t, func(t *testing.T, b backend) {
		for _, c := range []struct {
			before *itemSchema
			evicts bool
			owes   kv.Owes
		}{{v["plain"], false, 0}, {v["plain"], true, kv.OwesListing}, {nil, true, kv.OwesListing}, {v["mirror"], true, 0}, {v["smallmirror"], true, 0}} {
			log, dir := newLog(), t.TempDir()
			log.Set("anchor", "")
			log.Set("item.a", itemProto("a", 1, "good", 0))
			log.Set("item.b", itemProto("b", 1, "good", 0))
			l := begin(t, b, dir, log, c.before, lifeOptions{})
			l.caughtUp()
			if c.evicts {
				log.AgeOut("item.a", true)
			}
			log.Set("anchor", "")
			l.caughtUp()
			l.end()
			l = begin(t, b, dir, log, v["mirror"], lifeOptions{})
			owed, err := store.OwedOf(l.store)
			if err != nil || owed.Why&kv.OwesListing != c.owes {
				t.Errorf("%v, evicts %v: owes %v (%v), want %v", c.before, c.evicts, owed, err, c.owes)
			}
			l.end()
		}
	})
}

var errInjected = errors.New("injected")

// TestEvolveCutAtEveryApply cuts a refold at each of its applies, before and after the store has it, and starts again
// with the new schema, the old one and a third.
func TestEvolveCutAtEveryApply(t *testing.T) {
	v := versions(t)
	old, next, third := v["index"], v["validindex"], v["both"]
	fill := func(log *kvtest.Log) {
		for i := range 12 {
			id := fmt.Sprint("k", i)
			text := []string{"good", "bad"}[i%2]
			log.Set("item."+id, itemProto(id, uint32(i%3), text, 0))
			if i%4 >= 2 { // its newest value is rejected by all
				log.Set("item."+id, "\xff")
			}
		}
	}
	eachBackend(t, func(t *testing.T, b backend) {
		applies := 0
		for cut := 0; cut == 0 || cut <= applies; cut++ {
			for _, committed := range []bool{false, true} {
				for _, then := range []*itemSchema{next, old, third} {
					log, dir := newHistoryLog(2), t.TempDir()
					l := begin(t, b, dir, log, old, lifeOptions{})
					if err := l.f.WaitHydrated(bounded(t)); err != nil { // while the log is empty: what comes later is given in full
						t.Fatal(err)
					}
					fill(log)
					l.caughtUp()
					l.rows()
					l.end()
					var under store.Store
					count := 0
					l, err := tryLife(t, b, dir, log, next, lifeOptions{rows: 2, apply: func(n int, batch *store.Batch, c kv.Cursor) error {
						if count = n; n != cut {
							return nil
						}
						if committed {
							if err := under.Apply(context.Background(), batch, c); err != nil {
								t.Error(err)
							}
						}
						return errInjected
					}, under: &under})
					switch {
					case cut == 0 && err == nil:
						if applies == 0 {
							applies = count // of the refold and the index that is built after it
						}
						l.end()
					case !errors.Is(err, errInjected):
						t.Fatalf("cut at %d: %v", cut, err)
					}
					l = begin(t, b, dir, log, then, lifeOptions{rows: 3})
					for id, row := range l.rows() {
						if strings.Contains(row, "stale") && then == next && strings.Contains(row, "bad") {
							t.Errorf("cut at %d: row %s is %s", cut, id, row)
						}
					}
					l.caughtUp()
					l.sameAsFresh(b)
					if l.record() != then.table.Record() {
						t.Errorf("cut at %d: record\n%s", cut, l.record())
					}
					l.end()
				}
			}
		}
		if applies < 5 {
			t.Errorf("a refold of 12 rows, 2 at a time, has %d applies", applies)
		}
	})
}
