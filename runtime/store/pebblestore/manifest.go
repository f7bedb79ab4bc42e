package pebblestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Pebble reads its manifest up to the first record that is bad, and takes that for the end. It is the end only when no
// record begins behind it: each record is synced before the next one is written, so that a crash damages the last alone.
// What is read here, as Pebble's package record writes it: blocks of 32 KiB, in them chunks of a checksum, a length, a
// kind and the payload, and of zeros where no chunk's header fits into a block any more.
const (
	blockBytes  = 32 << 10
	chunkHeader = 4 + 2 + 1
)

// Kinds of chunks. A record is one of chunkFull, or begins with one of chunkFirst.
const (
	chunkFull = iota + 1
	chunkFirst
	chunkMiddle
	chunkLast
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// chunkAt is the kind and the size of the chunk that b begins with; false when it is none.
func chunkAt(b []byte) (kind byte, size int, ok bool) {
	if len(b) < chunkHeader || b[6] < chunkFull || b[6] > chunkLast {
		return 0, 0, false
	}
	size = chunkHeader + int(binary.LittleEndian.Uint16(b[4:]))
	if size > len(b) {
		return 0, 0, false
	}
	sum := crc32.Checksum(b[6:size], castagnoli)
	return b[6], size, binary.LittleEndian.Uint32(b) == (sum>>15|sum<<17)+0xa282ead8
}

// checkManifest refuses a store whose manifest has a bad record and a good one behind it. A directory without a store,
// or with one that Pebble will refuse, is left to Pebble.
func checkManifest(fsys vfs.FS, dir string) error {
	d, err := pebble.Peek(dir, fsys)
	if err != nil || !d.Exists {
		return nil // Open says the same
	}
	f, err := fsys.Open(d.ManifestFilename)
	if err != nil {
		return err
	}
	bad, good, err := scanManifest(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("%s: %w", d.ManifestFilename, err)
	}
	if good >= 0 {
		return &DamageError{Path: d.ManifestFilename, Offset: bad, Reason: fmt.Sprintf("a record is damaged; the next good one is at %d", good)}
	}
	return nil
}

// scanManifest finds the first bad chunk, and the first chunk behind it that begins a record; -1 where there is none.
func scanManifest(r io.Reader) (bad, good int64, err error) {
	bad = -1
	block := make([]byte, blockBytes)
	for start := int64(0); ; start += blockBytes {
		n, err := io.ReadFull(r, block)
		if n == 0 && errors.Is(err, io.EOF) {
			return bad, -1, nil
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return bad, -1, err
		}
		for at := 0; n-at >= chunkHeader; {
			kind, size, ok := chunkAt(block[at:n])
			switch {
			case ok && bad >= 0 && kind <= chunkFirst:
				return bad, start + int64(at), nil
			case ok:
				at += size
			default: // the length of a bad chunk says nothing
				if bad < 0 {
					bad = start + int64(at)
				}
				at++
			}
		}
	}
}
