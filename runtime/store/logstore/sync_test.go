package logstore

import (
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// afterSync is a file system on which something happens when a file has been synced, and its caller does not know yet.
type afterSync struct {
	*memFS
	then func()
}

type afterSyncFile struct {
	File
	fs *afterSync
}

func (f *afterSync) OpenFile(name string, flag int) (File, error) {
	file, err := f.memFS.OpenFile(name, flag)
	if err != nil {
		return nil, err
	}
	return afterSyncFile{file, f}, nil
}

func (f afterSyncFile) Sync() error {
	err := f.File.Sync()
	if then := f.fs.then; then != nil {
		f.fs.then = nil
		then()
	}
	return err
}

// TestSyncSpeaksForWhatWasThere: a batch that is applied while the file is synced is not durable by that.
func TestSyncSpeaksForWhatWasThere(t *testing.T) {
	fs := &afterSync{memFS: newMemFS()}
	s, err := Open(testPath, Options{Durability: None, FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	apply := func(n uint64) {
		if err := s.Apply(t.Context(), &store.Batch{Updates: []kv.Update{put("k", "v", n)}}, kv.CursorAt(n)); err != nil {
			t.Error(err)
		}
	}
	apply(1)
	fs.then = func() { apply(2) }
	for want := uint64(1); want <= 2; want++ {
		if err := s.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.Durable() != kv.CursorAt(want) || s.Cursor() != kv.CursorAt(2) {
			t.Fatalf("durable is %v of %v, want %d", s.Durable(), s.Cursor(), want)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
