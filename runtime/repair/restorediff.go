package repair

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
	"github.com/typedfold/fold/runtime/store"
)

// difference is what a restore would change, as files of keys in key order.
type difference struct {
	scope kv.Scope
	r     *Report
	at    *progress
	// taken are the keys whose entry the artifact has, vanished those that it lacks: in ordered form, without the space
	// byte, each with the version of the fold's row, on which the decision rests.
	taken, vanished *spill
	spills          []*spill // all to close
}

func newDifference(scope kv.Scope, scratch string, r *Report, at *progress) *difference {
	d := &difference{scope: scope, r: r, at: at, taken: newSpill(scratch), vanished: newSpill(scratch)}
	d.spills = append(d.spills, d.taken, d.vanished)
	return d
}

func (d *difference) close() (err error) {
	for _, s := range d.spills {
		err = errors.Join(err, s.close())
	}
	return err
}

// state is this side's of a key; at says that it stands on it.
func (s *side) state(at bool) protocol.KeyState {
	if !at {
		return protocol.KeyState{}
	}
	return protocol.KeyState{Present: true, Revision: s.record.Version.Rank()}
}

// compare walks both folds once, in key order.
func (d *difference) compare(ctx context.Context, local, remote store.Snapshot) error {
	d.at.enter(stageComparing)
	for _, in := range ranges(d.scope) {
		if err := d.compareRange(ctx, local, remote, in); err != nil {
			return err
		}
	}
	return nil
}

func (d *difference) compareRange(ctx context.Context, local, remote store.Snapshot, in keyRange) (err error) {
	l, err := openSide(local, in)
	if err != nil {
		return fmt.Errorf("read the fold: %w", err)
	}
	defer func() { err = errors.Join(err, l.it.Close()) }()
	a, err := openSide(remote, in)
	if err != nil {
		return ofArtifact(err)
	}
	defer func() { err = errors.Join(err, a.it.Close()) }()
	for n := 0; l.has || a.has; n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		d.at.keys.Add(1)
		order := keyOrder(l, a)
		if err := d.row(l, a, order, remote); err != nil {
			return err
		}
		if order <= 0 {
			d.r.Rows++
			if err := l.next(); err != nil {
				return fmt.Errorf("read the fold: %w", err)
			}
		}
		if order >= 0 {
			if err := a.next(); err != nil {
				return ofArtifact(err)
			}
		}
	}
	return nil
}

// keyOrder tells which side's key is next: below 0 the first's, above 0 the second's, 0 is both.
func keyOrder(a, b *side) int {
	switch {
	case !b.has:
		return -1
	case !a.has:
		return 1
	}
	return bytes.Compare(a.it.Key(), b.it.Key())
}

// row decides the key that is next, as if the bucket did not list it.
func (d *difference) row(l, a *side, order int, artifact store.Getter) error {
	local, remote := l.state(order <= 0), a.state(order >= 0)
	same := order == 0 && identical(&l.record, &a.record)
	switch protocol.RestoreKey(local, remote, same, false) {
	case protocol.RestoreTake:
		if a.record.Rejected { // its accepted record is folded too, so its damage has to be known before
			if _, _, err := acceptedOf(artifact, a.it.Key()); err != nil {
				return ofArtifact(err)
			}
		}
		expect := kv.Version{}
		if local.Present {
			expect = l.record.Version
		}
		return d.taken.add(a.it.Key()[1:], expect, 0)
	case protocol.RestoreDelete:
		return d.vanished.add(l.it.Key()[1:], l.record.Version, 0)
	}
	return nil
}

// identical tells whether two records are of the same message. Whether a table refused it is each node's own.
func identical(a, b *store.Record) bool {
	return a.Version == b.Version && a.UnixNano == b.UnixNano && a.ContentType == b.ContentType && bytes.Equal(a.Value, b.Value)
}
