package pebblestore

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
)

// The chain shows that no batch is missing below the last one. Each batch sets a link of its own number and removes the
// link of the batch before; the first one also sets link 0, the root, which stays. A store that holds every batch up to
// its last one has two links then, the root and the last. When batches in the middle are gone, whatever file of Pebble's
// lost them, the link of the last one before them was never removed, or the root was never set.
//
// Links are below all spaces, so that nobody but the store meets them.

const (
	chainSpace = 0x00
	linkSize   = 1 + 8
)

// firstSpaceKey is below every key of a space and above every link.
var firstSpaceKey = []byte{chainSpace + 1}

func putLink(dst []byte, n uint64) {
	dst[0] = chainSpace
	binary.BigEndian.PutUint64(dst[1:], n)
}

// setLink adds the link of the n-th batch to it.
func setLink(b *pebble.Batch, n uint64) error {
	op := b.SetDeferred(linkSize, 0)
	putLink(op.Key, n)
	if err := op.Finish(); err != nil {
		return err
	}
	if n == 1 { // the root
		op = b.SetDeferred(linkSize, 0)
		putLink(op.Key, 0)
		return op.Finish()
	}
	// A link is set once and removed once, so that both go with the first flush.
	op = b.SingleDeleteDeferred(linkSize)
	putLink(op.Key, n-1)
	return op.Finish()
}

// writeLink begins the table of the n-th batch with its link, in the order of keys.
func writeLink(t *sstable.Writer, n uint64) error {
	var before, link [linkSize]byte
	putLink(before[:], n-1)
	putLink(link[:], n)
	write := t.Delete
	if n == 1 { // the root
		write = func(key []byte) error { return t.Set(key, nil) }
	}
	if err := write(before[:]); err != nil {
		return err
	}
	return t.Set(link[:], nil)
}

// readChain is the number of the last batch; 0 for a store without links, which is empty or was written before there
// were any. A chain that is broken is a *DamageError.
func (s *Store) readChain() (last uint64, err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{UpperBound: firstSpaceKey})
	if err != nil {
		return 0, readError("links", err)
	}
	var links []uint64
	for ok := it.First(); ok && len(links) <= maxLinksRead; ok = it.Next() {
		if k := it.Key(); len(k) == linkSize {
			links = append(links, binary.BigEndian.Uint64(k[1:]))
		}
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return 0, readError("links", err)
	}
	reason := brokenChain(links)
	if reason != "" {
		return 0, &DamageError{Path: s.path, Offset: -1, Reason: reason}
	}
	if len(links) > 0 {
		last = links[len(links)-1]
	}
	return last, nil
}

// maxLinksRead bounds what is read of a broken chain.
const maxLinksRead = 100

// brokenChain tells what is wrong with a store that has these links, in order; "" for nothing.
func brokenChain(links []uint64) string {
	switch n := len(links); {
	case n == 0 || n == 2 && links[0] == 0:
		return ""
	case links[0] != 0:
		return fmt.Sprintf("the first batches are missing; batch %d is there", links[n-1])
	case n == 1:
		return "the chain of batches has a root and no end"
	default:
		return fmt.Sprintf("batches are missing from batch %d on; batch %d is there", links[1]+1, links[n-1])
	}
}
