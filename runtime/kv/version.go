// Package kv holds the values and the ports between a fold and the bucket that it follows: updates, entries,
// versions, cursors, scopes and the small interfaces that an adapter implements (runtime/natskv is the JetStream
// one, runtime/kv/kvtest a simulated one with the conformance suite for all).
package kv

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
)

// MaxVersionLen is the longest version, in bytes: a versionstamp of 10.
const MaxVersionLen = 10

// Version is one key's or one log position's opaque version: for JetStream the 8-byte big-endian stream sequence,
// elsewhere up to 10 bytes. The zero value is "unknown": it never moves a cursor. Versions are comparable with ==.
type Version struct {
	head uint64 // the first 8 bytes, big-endian, left-aligned
	tail uint16 // bytes 9 and 10
	size uint8
}

// Revision is the version of a JetStream stream sequence. Revision(0) is the unknown version.
func Revision(seq uint64) Version {
	if seq == 0 {
		return Version{}
	}
	return Version{head: seq, size: 8}
}

// ParseVersion reads version bytes as a store keeps them; an empty slice is the unknown version.
func ParseVersion(b []byte) (Version, error) {
	if len(b) > MaxVersionLen {
		return Version{}, fmt.Errorf("kv: version of %d bytes, at most %d", len(b), MaxVersionLen)
	}
	var buf [MaxVersionLen]byte
	copy(buf[:], b)
	return Version{
		head: binary.BigEndian.Uint64(buf[:8]),
		tail: binary.BigEndian.Uint16(buf[8:]),
		size: uint8(len(b)),
	}, nil
}

// IsUnknown reports whether v names no position at all.
func (v Version) IsUnknown() bool { return v.size == 0 }

// Len is the version's length in bytes.
func (v Version) Len() int { return int(v.size) }

// Uint64 is the version as a JetStream revision; ok is false for any other kind of version.
func (v Version) Uint64() (seq uint64, ok bool) { return v.head, v.size == 8 }

// Rank is Uint64, or 0 where the version is not a revision: the one place where that is decided.
func (v Version) Rank() uint64 {
	if v.size != 8 {
		return 0
	}
	return v.head
}

// AppendBytes appends the version's own bytes, without a length.
func (v Version) AppendBytes(dst []byte) []byte {
	var buf [MaxVersionLen]byte
	binary.BigEndian.PutUint64(buf[:8], v.head)
	binary.BigEndian.PutUint16(buf[8:], v.tail)
	return append(dst, buf[:v.size]...)
}

func (v Version) String() string {
	switch v.size {
	case 0:
		return "unknown"
	case 8:
		return strconv.FormatUint(v.head, 10)
	}
	return "0x" + hex.EncodeToString(v.AppendBytes(nil))
}
