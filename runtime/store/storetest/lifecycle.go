package storetest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

func testDurable(t *testing.T, h Harness) {
	for _, mode := range h.modes() {
		o, s := openAt(t, h, tempDir(t), mode), Script{Seed: 3, Bulk: true}
		step := func(n uint64) kv.Cursor {
			t.Helper()
			b, c := s.Batch(n)
			before := o.Durable()
			o.apply(b, c)
			d := o.Durable()
			if d.Revision() < before.Revision() || d.Revision() > c.Revision() {
				t.Fatalf("%s: durable went from %v to %v at cursor %v", mode, before, d, c)
			}
			if mode == ModeSync && d != c {
				t.Fatalf("sync: durable is %v after apply at %v", d, c)
			}
			return c
		}
		for n := uint64(1); n <= 20; n++ {
			step(n)
		}
		c := step(21)
		if mode == ModeInterval {
			eventually(t, "durable reaches the cursor by itself", func() bool { return o.Durable() == c })
		}
		c = step(22)
		if err := o.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if o.Durable() != c || o.Cursor() != c {
			t.Fatalf("%s: after Sync durable is %v and cursor %v, want %v", mode, o.Durable(), o.Cursor(), c)
		}
		if err := o.Sync(t.Context()); err != nil { // nothing to do
			t.Fatal(err)
		}
	}
}

func testSettle(t *testing.T, h Harness) {
	o, s := openNew(t, h), Script{Seed: 4, Bulk: true}
	if err := o.Settle(t.Context()); err != nil {
		t.Fatalf("settle of an empty store: %v", err)
	}
	for n := uint64(1); n <= 90; n++ {
		o.apply(s.Batch(n))
		if n%30 != 0 {
			continue
		}
		if err := o.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if o.Cursor().Revision() != n {
			t.Fatalf("settle moved the cursor from %d to %v", n, o.Cursor())
		}
		if err := s.CheckRecovered(o); err != nil {
			t.Fatal(err)
		}
	}
	o.reopen()
	if err := s.CheckRecovered(o); err != nil {
		t.Fatal(err)
	}
}

func testExport(t *testing.T, h Harness) {
	for _, mode := range h.modes() {
		o, s := openAt(t, h, tempDir(t), mode), Script{Seed: 5, Bulk: true}
		for n := uint64(1); n <= 70; n++ {
			o.apply(s.Batch(n))
		}
		missing, empty := tempDir(t), t.TempDir()
		for _, dir := range []string{missing, empty} {
			if err := o.Export(t.Context(), dir); err != nil {
				t.Fatalf("%s: %v", mode, err)
			}
		}
		for n := uint64(71); n <= 80; n++ { // the copy is none of the original's business, and the other way round
			o.apply(s.Batch(n))
		}
		for _, dir := range []string{missing, empty} {
			e := openAt(t, h, dir, mode)
			if e.Cursor().Revision() != 70 {
				t.Fatalf("%s: the export opens at %v, want 70", mode, e.Cursor())
			}
			if err := s.CheckRecovered(e); err != nil {
				t.Fatalf("%s: export: %v", mode, err)
			}
			for n := uint64(71); n <= 75; n++ {
				e.apply(s.Batch(n))
			}
			if err := e.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
			e.reopen()
			if err := s.CheckRecovered(e); err != nil {
				t.Fatalf("%s: export, resumed: %v", mode, err)
			}
		}
		o.reopen()
		if o.Cursor().Revision() != 80 {
			t.Fatalf("%s: the original is at %v, want 80", mode, o.Cursor())
		}
		if err := s.CheckRecovered(o); err != nil {
			t.Fatalf("%s: original: %v", mode, err)
		}
	}
}

func testExportEmpty(t *testing.T, h Harness) {
	o, dir := openNew(t, h), tempDir(t)
	if err := o.Export(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	openAt(t, h, dir, h.anyMode()).wantModel(NewModel())
}

func testExportNonEmpty(t *testing.T, h Harness) {
	o, dir := fiveKeys(t, h), t.TempDir()
	path := filepath.Join(dir, "precious")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := o.Export(t.Context(), dir); err == nil {
		t.Error("export into a directory with a file: no error")
	}
	if err := o.Export(t.Context(), path); err == nil {
		t.Error("export onto a file: no error")
	}
	ents, err := os.ReadDir(dir)
	if err != nil || len(ents) != 1 {
		t.Errorf("the directory holds %v now, %v", ents, err)
	}
}

func testLocked(t *testing.T, h Harness) {
	o := fiveKeys(t, h)
	if s, err := h.Open(o.dir, o.m); !errors.Is(err, store.ErrLocked) {
		t.Errorf("second open in this process: %v, want ErrLocked", err)
		if err == nil {
			_ = s.Close()
		}
	}
	if got := childOpens(t, childTask{Op: childOpen, Dir: o.dir, Mode: o.m}); got != childSawLocked {
		t.Errorf("open in a second process: %q, want %q", got, childSawLocked)
	}
	o.apply(&store.Batch{}, kv.CursorAt(7)) // the refused opens did no harm
	o.reopen()
	if o.Cursor() != kv.CursorAt(7) {
		t.Errorf("cursor is %v", o.Cursor())
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	if got := childOpens(t, childTask{Op: childOpen, Dir: o.dir, Mode: o.m}); got != childSawOpen {
		t.Errorf("open in a second process after close: %q, want %q", got, childSawOpen)
	}
}

func testClosed(t *testing.T, h Harness) {
	o := fiveKeys(t, h)
	c := o.Cursor()
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	get := func() error { var v store.Value; _, err := o.Get([]byte("i10"), &v); return err }
	iter := func() error { _, err := o.Iter(store.IterOptions{}); return err }
	snapshot := func() error { _, err := o.Snapshot(); return err }
	ctx := context.WithoutCancel(t.Context())
	for what, err := range map[string]error{
		"get":        get(),
		"iter":       iter(),
		"snapshot":   snapshot(),
		"apply":      o.Apply(ctx, &store.Batch{}, kv.CursorAt(9)),
		"bulk apply": o.Apply(ctx, &store.Batch{Bulk: true}, kv.CursorAt(9)),
		"sync":       o.Sync(ctx),
		"settle":     o.Settle(ctx),
		"export":     o.Export(ctx, tempDir(t)),
	} {
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("%s after close: %v, want ErrClosed", what, err)
		}
	}
	if o.Cursor() != c || o.Durable() != c {
		t.Errorf("after close cursor is %v and durable %v, want %v", o.Cursor(), o.Durable(), c)
	}
	if err := o.Close(); err != nil && !errors.Is(err, store.ErrClosed) {
		t.Errorf("second close: %v", err)
	}
	_ = o.Info()
	_ = o.Stats()
}

func testInfo(t *testing.T, h Harness) {
	o, s := openNew(t, h), Script{Seed: 6}
	for n := uint64(1); n <= 200; n++ {
		o.apply(s.Batch(n))
	}
	if err := o.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if i := o.Info(); i.Backend == "" || i.Format == "" || i.Path != o.dir {
		t.Errorf("info is %+v, the directory is %q", i, o.dir)
	}
	if st := o.Stats(); st.DiskBytes == 0 || st.MemoryBytes == 0 {
		t.Errorf("stats are %+v", st)
	}
}
