package kv

import (
	"encoding/binary"
	"fmt"
	"time"
)

// Cursor is a resume position in a watch: everything at or below Version has been applied. It also carries the
// fold's memo, which is kept for good once set. The zero value means "no cursor". Cursors are comparable with ==.
type Cursor struct {
	Version Version
	// SeenEvicting: while this fold watched, retention could evict current values and had evicted something, so a
	// listing of the bucket is never the truth for it again.
	SeenEvicting bool
	// WrittenAt is the server's time of the cursor's message, in Unix milliseconds; kept only with the memo, 0 is none.
	WrittenAt uint64
}

// CursorAt is the cursor of a JetStream stream sequence, without a memo; CursorAt(0) is no cursor.
func CursorAt(seq uint64) Cursor { return Cursor{Version: Revision(seq)} }

// IsNone reports whether c is no resume position. A cursor can be none and still carry the memo.
func (c Cursor) IsNone() bool { return c.Version.IsUnknown() }

// Revision is the cursor as a stream sequence; 0 when there is none.
func (c Cursor) Revision() uint64 { return c.Version.Rank() }

// Written is WrittenAt as a time; the zero time when it is not known.
func (c Cursor) Written() time.Time {
	if c.WrittenAt == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(c.WrittenAt))
}

func (c Cursor) String() string {
	s := c.Version.String()
	if c.IsNone() {
		s = "none"
	}
	if c.SeenEvicting {
		s += "+evicting"
	}
	return s
}

const (
	cursorMemoLen  = 12
	cursorTimedLen = 20

	cursorFlagEvicting = 1 << 0
	cursorFlagWritten  = 1 << 1
)

// AppendBytes appends the cursor's encoding, which is the seed's byte for byte: the bare version without a memo;
// with it 12 bytes (the version zero-padded to 10, its length, the flags), and 8 more, little-endian Unix
// milliseconds, when the message's time is known.
func (c Cursor) AppendBytes(dst []byte) []byte {
	if !c.SeenEvicting {
		return c.Version.AppendBytes(dst)
	}
	var padded [MaxVersionLen]byte
	c.Version.AppendBytes(padded[:0])
	dst = append(dst, padded[:]...)
	flags := byte(cursorFlagEvicting)
	if c.WrittenAt != 0 {
		flags |= cursorFlagWritten
	}
	dst = append(dst, c.Version.size, flags)
	if c.WrittenAt != 0 {
		dst = binary.LittleEndian.AppendUint64(dst, c.WrittenAt)
	}
	return dst
}

// ParseCursor reads what AppendBytes writes, and refuses everything else.
func ParseCursor(b []byte) (Cursor, error) {
	if len(b) <= MaxVersionLen {
		v, err := ParseVersion(b)
		return Cursor{Version: v}, err
	}
	if len(b) != cursorMemoLen && len(b) != cursorTimedLen {
		return Cursor{}, fmt.Errorf("kv: cursor of %d bytes; a cursor has at most %d, or %d, or %d", len(b), MaxVersionLen, cursorMemoLen, cursorTimedLen)
	}
	size, flags := b[10], b[11]
	if size > MaxVersionLen {
		return Cursor{}, fmt.Errorf("kv: cursor version length %d, at most %d", size, MaxVersionLen)
	}
	if flags&^(cursorFlagEvicting|cursorFlagWritten) != 0 || flags&cursorFlagEvicting == 0 {
		return Cursor{}, fmt.Errorf("kv: cursor flags %#x are not known", flags)
	}
	for _, p := range b[size:MaxVersionLen] {
		if p != 0 {
			return Cursor{}, fmt.Errorf("kv: cursor padding is not zero")
		}
	}
	v, err := ParseVersion(b[:size])
	if err != nil {
		return Cursor{}, err
	}
	c := Cursor{Version: v, SeenEvicting: true}
	timed := flags&cursorFlagWritten != 0
	if timed != (len(b) == cursorTimedLen) {
		return Cursor{}, fmt.Errorf("kv: cursor of %d bytes with flags %#x", len(b), flags)
	}
	if timed {
		if c.WrittenAt = binary.LittleEndian.Uint64(b[cursorMemoLen:]); c.WrittenAt == 0 {
			return Cursor{}, fmt.Errorf("kv: cursor time is flagged and zero")
		}
	}
	return c, nil
}
