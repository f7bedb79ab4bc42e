package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

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

const pebbleFileBatches = 30

func (p *pebbleFiles) run(ctx context.Context) {
	t := newTruth(p.seed, true)
	d := newPebbleDisk(p.cache)
	err := p.write(ctx, t, d)
	if err == nil {
		err = p.all(t, d)
	}
	p.tally.failed(p.name, err, p.replay("write", 0))
}

// write leaves a store that has tables, a manifest with some changes in it, and a log.
func (p *pebbleFiles) write(ctx context.Context, t *truth, d *pebbleDisk) error {
	s, err := d.open(storeDir, storetest.ModeSync, nil)
	if err != nil {
		return err
	}
	for n := uint64(1); n <= pebbleFileBatches && err == nil; n++ {
		b, c := t.batch(n)
		if err = s.Apply(ctx, b, c); err == nil && n == pebbleFileBatches-6 {
			err = s.Settle(ctx)
		}
	}
	return errors.Join(err, s.Close())
}

func (p *pebbleFiles) all(t *truth, d *pebbleDisk) error {
	names, err := d.List(storeDir)
	if err != nil {
		return err
	}
	step := 3001
	if p.deep {
		step = 31
	}
	type one struct {
		name, what string
		place      int
		data       []byte
	}
	missed := missedByPebble(names)
	left := newParallel(func(o one) { p.one(t, d, o.name, o.what, o.place, o.data, missed(o.name)) })
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
		for n := 0; n < len(whole); n += step {
			bad := append([]byte(nil), whole...)
			bad[n] ^= 1 << (n % 8)
			left.add(one{name, kind + ", cut", n, whole[:n]})
			left.add(one{name, kind + ", flip", n, bad})
		}
	}
	return nil
}

// missedByPebble tells the files of which Pebble does not miss what was lost, so that rows can be gone without a word: a
// manifest, whose end it takes to be where the first bad record is, and any log but the last. What is lost there is counted,
// and is no inconsistency of this store's making; docs/testing.md says so.
func missedByPebble(names []string) func(name string) bool {
	last := ""
	for _, name := range names {
		if path.Ext(name) == ".log" {
			last = max(last, name)
		}
	}
	return func(name string) bool {
		return strings.HasPrefix(name, "MANIFEST-") || path.Ext(name) == ".log" && name != last
	}
}

func (p *pebbleFiles) one(t *truth, d *pebbleDisk, name, what string, place int, data []byte, missed bool) {
	bad, ok := d.cut(0, nil).(*pebbleDisk) // all is synced
	err := errors.New("no disk of Pebble's")
	if ok {
		err = replaceFile(bad, path.Join(storeDir, name), data)
	}
	if err == nil {
		var refused bool
		if refused, err = p.look(t, bad); refused {
			p.tally.note(p.name + ", " + what + ", refused")
		}
	}
	if wrong := (*rowError)(nil); missed && errors.As(err, &wrong) {
		p.tally.note(p.name + ", " + what + ", not missed by Pebble")
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("%s, %s at %d: %w", name, what, place, err)
	}
	p.tally.clone(p.name+", "+what, err, p.replay(name, place))
}

func replaceFile(d *pebbleDisk, name string, data []byte) error {
	f, err := d.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// lookLimit bounds the look at one damaged store.
const lookLimit = time.Minute

// look opens a damaged store: it is refused, or reads of it fail, or it is the fold at some revision.
func (p *pebbleFiles) look(t *truth, d *pebbleDisk) (refused bool, err error) {
	type result struct {
		refused bool
		err     error
	}
	done := make(chan result, 1)
	go func() {
		s, err := d.open(storeDir, storetest.ModeSync, nil)
		if err != nil {
			done <- result{true, nil}
			return
		}
		var wrong *rowError
		err = t.scan(s)
		switch {
		case errors.As(err, &wrong):
			_ = s.Close()
			done <- result{false, err}
		case err != nil && !errors.Is(err, store.ErrCorrupt):
			_ = s.Close()
			done <- result{true, fmt.Errorf("a damaged block is not said to be one: %w", err)}
		default:
			_ = s.Close()
			done <- result{err != nil, nil}
		}
	}()
	limit := time.NewTimer(lookLimit)
	defer limit.Stop()
	select {
	case r := <-done:
		return r.refused, r.err
	case <-limit.C:
		return false, errors.New("it is stuck")
	}
}
