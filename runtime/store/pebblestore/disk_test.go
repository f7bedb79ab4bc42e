package pebblestore

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/typedfold/fold/runtime/store"
)

// saysFree is a file system that says how much is free.
type saysFree struct {
	vfs.FS
	free uint64
}

func (f *saysFree) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: f.free}, nil
}

// TestDiskHasRoomForLogAndTable: a batch is written twice, beside what has to stay free.
func TestDiskHasRoomForLogAndTable(t *testing.T) {
	const least, size = 1000, 300
	for free, fits := range map[uint64]bool{least + 2*size: true, least + 2*size - 1: false, least + size: false} {
		d, err := newDisk(&saysFree{vfs.NewMem(), free}, "", least, 0)
		if err != nil {
			t.Fatal(err)
		}
		var full *DiskFullError
		err = d.check(size)
		if fits != (err == nil) || !fits && (!errors.As(err, &full) || !errors.Is(err, store.ErrDiskFull) || full.Need != least+2*size || full.Free != free) {
			t.Errorf("with %d free: %v", free, err)
		}
	}
}
