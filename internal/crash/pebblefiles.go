package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/storetest"
)

// pebbleFiles damages the files of a Pebble store, without an artifact's hashes over them.
type pebbleFiles struct {
	damage
	cache *pebble.Cache
}

const (
	// pebbleFileBatches go to tables before the flushes are held, and then there are manyLogs more logs.
	pebbleFileBatches = 24
	manyLogs          = 3
	// batchesAtMost bounds how many batches that takes.
	batchesAtMost = 300
)

func (p *pebbleFiles) run(ctx context.Context) {
	t := newTruth(p.seed, true)
	d, last, err := p.write(ctx, t)
	if err == nil {
		err = p.all(t, d, last)
	}
	p.tally.failed(p.name, err, p.line)
}

// write is a disk with a store that has tables, a manifest with some changes in it, and several logs, and the number of
// its last batch. Everything is synced.
func (p *pebbleFiles) write(ctx context.Context, t *truth) (left *pebbleDisk, last uint64, err error) {
	d := newPebbleDisk(p.cache)
	held, release := &atomic.Bool{}, make(chan struct{})
	s, err := d.open(storeDir, storetest.ModeSync, func(_, name string) error {
		if held.Load() && path.Ext(name) == ".sst" {
			<-release // so that no flush ends, and its log stays
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	defer close(release)
	before := ""
	for n := uint64(1); n <= batchesAtMost; n++ {
		b, c := t.batch(n)
		b.Bulk = b.Bulk && n < pebbleFileBatches // a table that is ingested would wait for the flushes
		if err := s.Apply(ctx, b, c); err != nil {
			return nil, 0, err
		}
		if n == pebbleFileBatches {
			if err := s.Settle(ctx); err != nil {
				return nil, 0, err
			}
			held.Store(true)
			logs, err := d.logs()
			if err != nil {
				return nil, 0, err
			}
			before = slices.Max(logs)
		}
		if n <= pebbleFileBatches || n%5 != 0 {
			continue
		}
		if left, err := p.leave(d, before); err != nil || left != nil {
			return left, n, err
		}
	}
	return nil, 0, fmt.Errorf("%d batches do not fill %d logs", batchesAtMost, manyLogs)
}

// logs are the names of the store's logs. Pebble keeps some that it has no use for, to write over them.
func (d *pebbleDisk) logs() (all []string, err error) {
	names, err := d.List(storeDir)
	for _, name := range names {
		if path.Ext(name) == ".log" {
			all = append(all, name)
		}
	}
	return all, err
}

// leave is the disk as it is, all of it synced, once there are enough logs after one; nil before.
func (p *pebbleFiles) leave(d *pebbleDisk, after string) (*pebbleDisk, error) {
	dir, err := d.OpenDir(storeDir)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return nil, err
	}
	left, ok := d.cut(0, nil).(*pebbleDisk)
	if !ok {
		return nil, errors.New("no disk of Pebble's")
	}
	logs, err := left.logs()
	logs = slices.DeleteFunc(logs, func(name string) bool { return name <= after })
	if err != nil || len(logs) < manyLogs {
		return nil, err
	}
	return left, nil
}

func (p *pebbleFiles) all(t *truth, d *pebbleDisk, last uint64) error {
	names, err := d.List(storeDir)
	if err != nil {
		return err
	}
	left := newParallel(func(o one) { p.one(t, d, o, last) })
	defer left.wait()
	for _, name := range names {
		whole, err := d.UnsafeGetFileDataBuffer(path.Join(storeDir, name))
		if err != nil {
			return err
		}
		if name == "ballast" {
			continue // nobody reads it
		}
		kind := strings.Trim(strings.TrimLeft(name, "0123456789"), ".-0123456789")
		for _, n := range p.places(kind, whole) {
			bad := append([]byte(nil), whole...)
			bad[n] ^= 1 << (n % 8)
			for what, data := range map[string][]byte{"cut": whole[:n], "flip": bad} {
				if o := (one{name, kind + ", " + what, placeOf(name, what, n), data}); !p.skips(o.place) {
					left.add(o)
				}
			}
		}
	}
	return nil
}

// one is a file with damage at one place.
type one struct {
	name, what, place string
	data              []byte
}

// places are where a file is damaged: every so many bytes, and where a record of a log or a manifest begins.
func (p *pebbleFiles) places(kind string, whole []byte) (all []int) {
	step := 3001
	if p.deep {
		step = 31
	}
	for n := 0; n < len(whole); n += step {
		all = append(all, n)
	}
	if kind == "log" || kind == "MANIFEST" {
		begins := recordBegins(whole)
		for i, n := range begins {
			if p.deep || kind == "MANIFEST" || i%8 == 0 {
				all = append(all, n)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// recordBegins are the places where a chunk of a log or a manifest of Pebble begins.
func recordBegins(whole []byte) (all []int) {
	const block, least = 32 << 10, 7
	header := func(kind byte) int { return [...]int{7, 11, 19}[(kind-1)/4] }
	for at := 0; at+least <= len(whole); {
		kind := whole[at+6]
		if left := block - at%block; kind == 0 && left < header(12) {
			at += left
			continue
		}
		if kind == 0 || kind > 12 {
			break
		}
		all = append(all, at)
		at += header(kind) + int(whole[at+4]) + int(whole[at+5])<<8
	}
	return all
}

func (p *pebbleFiles) one(t *truth, d *pebbleDisk, o one, last uint64) {
	bad, ok := d.cut(0, nil).(*pebbleDisk) // all is synced
	err := errors.New("no disk of Pebble's")
	if ok {
		err = replaceFile(bad, path.Join(storeDir, o.name), o.data)
	}
	name := p.name + ", " + o.what
	if err == nil {
		err = within(lookLimit, func() error {
			what, err := p.look(t, bad)
			switch {
			case what.refused:
				p.tally.note(name + ", refused")
			case err == nil && what.at < last:
				p.tally.note(name + ", an older fold")
			case err == nil:
				p.tally.note(name + ", whole")
			}
			return err
		})
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", o.place, err)
	}
	p.tally.clone(name, err, p.replay(o.place))
}

func replaceFile(d *pebbleDisk, name string, data []byte) error {
	f, err := d.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// seen is what a damaged store is: refused, at its opening or by a read, or the fold at a revision.
type seen struct {
	refused bool
	at      uint64
}

// look opens a damaged store. What is neither refused for damage nor a fold is an error.
func (p *pebbleFiles) look(t *truth, d *pebbleDisk) (what seen, err error) {
	s, err := d.open(storeDir, storetest.ModeSync, nil)
	if errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrFormat) {
		return seen{refused: true}, nil
	}
	if err != nil {
		return seen{refused: true}, fmt.Errorf("refused by no reason of a damaged file: %w", err)
	}
	what.at = s.Cursor().Revision()
	var wrong *rowError
	err = t.scan(s)
	switch {
	case errors.As(err, &wrong):
	case errors.Is(err, store.ErrCorrupt):
		what.refused, err = true, nil
	case err != nil:
		what.refused, err = true, fmt.Errorf("a damaged block is not said to be one: %w", err)
	}
	_ = s.Close()
	return what, err
}
