package fold

import (
	"bytes"
	"slices"
)

// entrySet is a sorted set of index entries, in one buffer.
type entrySet struct {
	buf   []byte
	spans []entrySpan
}

type entrySpan struct{ from, to int }

func (s *entrySet) reset() { s.buf, s.spans = s.buf[:0], s.spans[:0] }

// begin is where an entry is appended to; end keeps it. One that is not ended is forgotten.
func (s *entrySet) begin() []byte { return s.buf }

func (s *entrySet) end(b []byte) {
	s.spans = append(s.spans, entrySpan{len(s.buf), len(b)})
	s.buf = b
}

func (s *entrySet) len() int { return len(s.spans) }

func (s *entrySet) at(i int) []byte { return s.buf[s.spans[i].from:s.spans[i].to] }

// sort puts the entries in order, each once.
func (s *entrySet) sort() {
	if len(s.spans) < 2 {
		return
	}
	slices.SortFunc(s.spans, func(a, b entrySpan) int { return bytes.Compare(s.buf[a.from:a.to], s.buf[b.from:b.to]) })
	s.spans = slices.CompactFunc(s.spans, func(a, b entrySpan) bool { return bytes.Equal(s.buf[a.from:a.to], s.buf[b.from:b.to]) })
}

// has reports whether the set has the entry.
func (s *entrySet) has(entry []byte) bool {
	_, ok := slices.BinarySearchFunc(s.spans, entry, func(a entrySpan, e []byte) int { return bytes.Compare(s.buf[a.from:a.to], e) })
	return ok
}

// diffEntries calls gone with each entry that only before has, and came with each that only after has.
func diffEntries(before, after *entrySet, gone, came func([]byte)) {
	i, j := 0, 0
	for i < before.len() || j < after.len() {
		c := 0
		switch {
		case i == before.len():
			c = 1
		case j == after.len():
			c = -1
		default:
			c = bytes.Compare(before.at(i), after.at(j))
		}
		if c < 0 {
			gone(before.at(i))
		}
		if c > 0 {
			came(after.at(j))
		}
		if c <= 0 {
			i++
		}
		if c >= 0 {
			j++
		}
	}
}
