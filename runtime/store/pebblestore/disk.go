package pebblestore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/typedfold/fold/runtime/store"
)

// DiskFullError is an Apply that was refused because too little space is free. Nothing was written.
type DiskFullError struct {
	Path string
	// Free is what is free, Need what must be, in bytes.
	Free, Need uint64
}

func (e *DiskFullError) Error() string {
	return fmt.Sprintf("disk of %s has %d bytes free, %d are needed", e.Path, e.Free, e.Need)
}

func (e *DiskFullError) Is(target error) bool { return target == store.ErrDiskFull }

// Hint says what a person can do.
func (e *DiskFullError) Hint() string {
	return "free disk space; a fold tries again for a while and then stops, and reads serve what was folded before"
}

const (
	ballastName = "ballast"
	// diskLookEvery and diskLookBytes bound how stale the known free space is.
	diskLookEvery = time.Second
	diskLookBytes = 16 << 20
)

// disk watches the space under one directory.
type disk struct {
	fs      vfs.FS
	dir     string
	minFree uint64 // 0 does not look
	ballast uint64 // 0 has none

	mu        sync.Mutex
	hasSpare  bool
	looked    time.Time
	sinceLook uint64
	full      bool
}

func newDisk(fs vfs.FS, dir string, minFree, ballast int64) (*disk, error) {
	d := &disk{fs: fs, dir: dir, minFree: uint64(max(minFree, 0)), ballast: uint64(max(ballast, 0))}
	if _, err := fs.GetDiskUsage(dir); err != nil {
		d.minFree = 0 // a file system that can't say
	}
	if d.ballast == 0 {
		if err := fs.Remove(d.ballastPath()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("ballast: %w", err)
		}
		return d, nil
	}
	if i, err := fs.Stat(d.ballastPath()); err == nil && uint64(i.Size()) == d.ballast {
		d.hasSpare = true
	}
	return d, d.restoreBallast()
}

func (d *disk) ballastPath() string { return d.fs.PathJoin(d.dir, ballastName) }

// check refuses size more bytes when they would leave less than the minimum. It asks the system at most once a second
// or every 16 MiB, and every time once the disk is full.
func (d *disk) check(size uint64) error {
	if d.minFree == 0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.sinceLook += size
	if !d.full && d.sinceLook < diskLookBytes && now.Sub(d.looked) < diskLookEvery {
		return nil
	}
	u, err := d.fs.GetDiskUsage(d.dir)
	if err != nil {
		return fmt.Errorf("free space: %w", err)
	}
	// A batch is written to the log and again to a table.
	need := d.minFree + 2*size
	if d.full = u.AvailBytes < need; d.full {
		return &DiskFullError{Path: d.dir, Free: u.AvailBytes, Need: need}
	}
	d.looked, d.sinceLook = now, size
	if !d.hasSpare && u.AvailBytes > need+2*d.ballast {
		_ = d.restoreBallast() // the next look tries again; the batch itself has room
	}
	return nil
}

// releaseBallast is called by the file system when a write finds the disk full, which is then tried once more.
func (d *disk) releaseBallast() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = true
	if d.hasSpare && d.fs.Remove(d.ballastPath()) == nil {
		d.hasSpare = false
	}
}

// restoreBallast writes the file when there is room for it; a disk without that room is no error here. The caller
// holds mu, or is alone.
func (d *disk) restoreBallast() error {
	if d.hasSpare || d.ballast == 0 {
		return nil
	}
	if u, err := d.fs.GetDiskUsage(d.dir); err != nil || u.AvailBytes < d.minFree+2*d.ballast {
		return nil
	}
	f, err := d.fs.Create(d.ballastPath(), vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("ballast: %w", err)
	}
	chunk := make([]byte, 256<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(chunk) // a file system that compresses must not make nothing of it
	for n := uint64(0); n < d.ballast && err == nil; n += uint64(len(chunk)) {
		chunk = chunk[:min(uint64(len(chunk)), d.ballast-n)]
		_, err = f.Write(chunk)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(fmt.Errorf("ballast: %w", err), d.fs.Remove(d.ballastPath()))
	}
	d.hasSpare = true
	return nil
}
