package fold_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	judgev1 "github.com/typedfold/fold/internal/foldtest/gen/judge/v1"
	jd "github.com/typedfold/fold/internal/foldtest/gen/judge/v1/judgev1fold"
	fold "github.com/typedfold/fold/runtime"
)

// A table of decimal numbers lists by the text of its keys, and never says which rows lie between two of them.
func TestUnorderedTable(t *testing.T) {
	ctx, log := bounded(t), newLog()
	w := jd.NewPlainWriter(log)
	var last fold.Revision
	for _, n := range []uint64{9, 10, 100} {
		rev, err := w.Put(ctx, &judgev1.Plain{I64: proto.Int64(0), U64: n, Mode: judgev1.Answer_ANSWER_YES})
		if err != nil {
			t.Fatal(err)
		}
		last = rev
	}
	builder := fold.NewBuilder(log, openStore(t, backends[0], t.TempDir()), fold.Options{Logger: quiet})
	plain, err := jd.RegisterPlain(builder)
	if err != nil {
		t.Fatal(err)
	}
	f, err := builder.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := f.WaitApplied(ctx, last); err != nil {
		t.Fatal(err)
	}
	key := func(n uint64) jd.PlainKey { return jd.PlainKey{U64: n, Mode: judgev1.Answer_ANSWER_YES} }
	var listed []uint64
	for row, err := range plain.List(ctx, jd.PlainAll()) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, row.Value.GetU64())
	}
	if len(listed) != 3 || listed[0] != 10 || listed[1] != 100 || listed[2] != 9 {
		t.Errorf("listed %v", listed)
	}
	for n, want := range map[uint64]bool{9: true, 10: true, 11: false} {
		if _, ok, err := plain.Get(ctx, key(n)); err != nil || ok != want {
			t.Errorf("%d: %v, %v", n, ok, err)
		}
	}
	snap, err := f.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = snap.Close() }()
	if n, err := plain.At(snap).Count(ctx, jd.PlainAll()); err != nil || n != 3 {
		t.Errorf("%d rows, %v", n, err)
	}
}

// Whoever goes past the generated code is told.
func TestRangeOfUnorderedKeys(t *testing.T) {
	builder := fold.NewBuilder(newLog(), openStore(t, backends[0], t.TempDir()), fold.Options{Logger: quiet})
	plain, err := fold.Register(builder, jd.PlainDesc)
	if err != nil {
		t.Fatal(err)
	}
	_, _, ceil := plain.Ceil(bounded(t), jd.PlainAll(), jd.PlainKey{})
	_, _, floor := plain.Floor(bounded(t), jd.PlainAll(), jd.PlainKey{})
	ranged := error(nil)
	for _, err := range plain.Range(bounded(t), fold.Unbounded[jd.PlainKey](), fold.Unbounded[jd.PlainKey]()) {
		ranged = err
	}
	for _, err := range []error{ceil, floor, ranged} {
		if err == nil || !strings.Contains(err.Error(), "{mode} is encoded as ENUM_NAME") {
			t.Errorf("%v", err)
		}
	}
}
