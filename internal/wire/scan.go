package wire

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

const highBits = 0x8080808080808080

// uvarint reads the varint at b[i:] and returns it with the index after it, or
// a negative index when it is truncated or does not fit 64 bits.
func uvarint(b []byte, i int) (uint64, int) {
	if i < len(b) && b[i] < 0x80 {
		return uint64(b[i]), i + 1
	}
	if i+1 < len(b) && b[i+1] < 0x80 {
		return uint64(b[i]&0x7f) | uint64(b[i+1])<<7, i + 2
	}
	v, n := protowire.ConsumeVarint(b[i:])
	if n < 0 {
		return 0, n
	}
	return v, i + n
}

// skipVarint returns the index after the varint at b[i:], or a negative one.
func skipVarint(b []byte, i int) int {
	if len(b)-i >= 8 {
		if ends := ^binary.LittleEndian.Uint64(b[i:]) & highBits; ends != 0 {
			return i + bits.TrailingZeros64(ends)>>3 + 1
		}
	}
	_, n := protowire.ConsumeVarint(b[i:])
	if n < 0 {
		return n
	}
	return i + n
}

// span returns where the length-prefixed value at b[i:] starts and ends. The
// start is negative when the value does not fit b.
func span(b []byte, i int) (start, end int) {
	size, start := uvarint(b, i)
	if start < 0 || size > uint64(len(b)-start) {
		return -1, 0
	}
	return start, start + int(size)
}

func validVarints(b []byte) bool {
	for i := 0; i < len(b); {
		if b[i] < 0x80 {
			i++
			continue
		}
		if i = skipVarint(b, i); i < 0 {
			return false
		}
	}
	return true
}

// validUTF8 is utf8.Valid with a short way for ASCII. The last word read
// overlaps the one before it, so that no byte is looked at alone.
func validUTF8(b []byte) bool {
	n := len(b)
	var seen uint64
	switch {
	case n >= 8:
		i := 0
		for ; i+32 <= n; i += 32 {
			s := b[i : i+32 : i+32]
			seen |= binary.LittleEndian.Uint64(s) | binary.LittleEndian.Uint64(s[8:]) |
				binary.LittleEndian.Uint64(s[16:]) | binary.LittleEndian.Uint64(s[24:])
		}
		for ; i+8 <= n; i += 8 {
			seen |= binary.LittleEndian.Uint64(b[i : i+8])
		}
		seen |= binary.LittleEndian.Uint64(b[n-8:])
	case n >= 4:
		seen = uint64(binary.LittleEndian.Uint32(b) | binary.LittleEndian.Uint32(b[n-4:]))
	default:
		for _, c := range b {
			seen |= uint64(c)
		}
	}
	return seen&highBits == 0 || utf8.Valid(b)
}
