package store

import (
	"encoding/binary"
	"fmt"

	"github.com/typedfold/fold/runtime/kv"
)

// Record is what a store keeps of a key in SpaceData and SpaceAccepted. Value aliases the bytes that were parsed.
type Record struct {
	Value       []byte
	ContentType string
	Version     kv.Version
	UnixNano    int64
	// Rejected: the fold's table refused this value; SpaceRejected says why.
	Rejected bool
}

// Encoded form: [version length, with flags in the high bits][version][time, if any: uvarint of Unix
// nanoseconds][content type, if any: uvarint length, bytes][value]. A record without flags is the seed's
// [length][version][value].
const (
	recordLenMask     = 0x0F
	recordRejected    = 0x10
	recordTimed       = 0x20
	recordContentType = 0x40
	recordReserved    = 0x80
)

// RecordSize is the length of the update's record.
func RecordSize(u *kv.Update) int {
	n := 1 + u.Version.Len() + len(u.Value)
	if u.UnixNano > 0 {
		n += uvarintLen(uint64(u.UnixNano))
	}
	if u.ContentType != "" {
		n += uvarintLen(uint64(len(u.ContentType))) + len(u.ContentType)
	}
	return n
}

// AppendRecord appends the update's record. It writes exactly RecordSize bytes.
func AppendRecord(dst []byte, u *kv.Update) []byte {
	head := byte(u.Version.Len())
	if u.Rejected {
		head |= recordRejected
	}
	if u.UnixNano > 0 {
		head |= recordTimed
	}
	if u.ContentType != "" {
		head |= recordContentType
	}
	dst = u.Version.AppendBytes(append(dst, head))
	if u.UnixNano > 0 {
		dst = binary.AppendUvarint(dst, uint64(u.UnixNano))
	}
	if u.ContentType != "" {
		dst = binary.AppendUvarint(dst, uint64(len(u.ContentType)))
		dst = append(dst, u.ContentType...)
	}
	return append(dst, u.Value...)
}

// ParseRecord reads a record. Its Value aliases b.
func ParseRecord(b []byte) (Record, error) {
	if len(b) == 0 {
		return Record{}, fmt.Errorf("%w: empty record", ErrCorrupt)
	}
	head := b[0]
	n := int(head & recordLenMask)
	if head&recordReserved != 0 || n > kv.MaxVersionLen || len(b) < 1+n {
		return Record{}, fmt.Errorf("%w: record head %#x in %d bytes", ErrCorrupt, head, len(b))
	}
	v, err := kv.ParseVersion(b[1 : 1+n])
	if err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	r := Record{Version: v, Rejected: head&recordRejected != 0}
	b = b[1+n:]
	if head&recordTimed != 0 {
		t, n := binary.Uvarint(b)
		if n <= 0 || t == 0 || t > 1<<63-1 {
			return Record{}, fmt.Errorf("%w: record time", ErrCorrupt)
		}
		r.UnixNano, b = int64(t), b[n:]
	}
	if head&recordContentType != 0 {
		size, n := binary.Uvarint(b)
		if n <= 0 || size == 0 || size > uint64(len(b)-n) {
			return Record{}, fmt.Errorf("%w: record content type", ErrCorrupt)
		}
		r.ContentType, b = string(b[n:n+int(size)]), b[n+int(size):]
	}
	r.Value = b
	return r, nil
}

func uvarintLen(x uint64) int {
	n := 1
	for x >= 0x80 {
		x >>= 7
		n++
	}
	return n
}
