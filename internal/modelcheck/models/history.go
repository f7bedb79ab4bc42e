package models

import (
	"fmt"
	"strings"
)

const (
	histRevs = 6
	histKeys = 2
)

// histMsg is one message of a log: a key's value, or its delete marker. The zero value is none.
type histMsg uint8

const histMarker histMsg = 4

func histPut(key uint8) histMsg    { return 1 + histMsg(key) }
func histDelete(key uint8) histMsg { return histPut(key) | histMarker }

func (m histMsg) key() uint8     { return uint8(m&3) - 1 }
func (m histMsg) isMarker() bool { return m&histMarker != 0 }

// histRows are a fold's rows: the revision of each key's value; 0 is none.
type histRows [histKeys]uint8

// apply takes in one message.
func (r *histRows) apply(m histMsg, rev uint8) {
	if r[m.key()] = rev; m.isMarker() {
		r[m.key()] = 0
	}
}

// history is a bucket's log, with one message a key, and all that was ever written to it.
type history struct {
	all  [histRevs]histMsg
	last uint8
	gone uint8 // by revision, from bit 0: superseded, purged or evicted
}

func (h *history) at(rev uint8) histMsg   { return h.all[rev-1] }
func (h *history) holds(rev uint8) bool   { return rev >= 1 && rev <= h.last && h.gone>>(rev-1)&1 == 0 }
func (h *history) lose(rev uint8)         { h.gone |= 1 << (rev - 1) }
func (h *history) isValue(rev uint8) bool { return !h.at(rev).isMarker() }

// write adds a message, which takes the place of its key's last one.
func (h *history) write(m histMsg) {
	if before := h.latest(m.key()); before != 0 {
		h.lose(before)
	}
	h.all[h.last] = m
	h.last++
}

// latest is the revision of what was last written to a key, be it gone or not; 0 is none.
func (h *history) latest(key uint8) uint8 {
	for rev := h.last; rev > 0; rev-- {
		if h.at(rev).key() == key {
			return rev
		}
	}
	return 0
}

// next is the first message after a revision that the log still holds; 0 is none.
func (h *history) next(after uint8) uint8 {
	for rev := after + 1; rev <= h.last; rev++ {
		if h.holds(rev) {
			return rev
		}
	}
	return 0
}

// first is the log's first retained revision, as the server tells it.
func (h *history) first() uint8 {
	if rev := h.next(0); rev != 0 || h.last == 0 {
		return rev
	}
	return h.last + 1
}

// begins reports whether what the log holds begins right after a revision or before it: nothing that it has lost from its
// beginning is later. No kernel is asked, so that a kernel that is wrong does not excuse what comes of it.
func (h *history) begins(after uint8) bool {
	for rev := uint8(1); rev <= min(after+1, h.last); rev++ {
		if h.holds(rev) {
			return true
		}
	}
	return after >= h.last
}

// keys is how many messages the log holds.
func (h *history) keys() (n uint8) {
	for rev := h.next(0); rev != 0; rev = h.next(rev) {
		n++
	}
	return n
}

// truth is every write minus every delete, up to a revision.
func (h *history) truth(to uint8) (rows histRows) {
	for rev := uint8(1); rev <= to; rev++ {
		rows.apply(h.at(rev), rev)
	}
	return rows
}

// listing is what the log lists with a value.
func (h *history) listing() (rows histRows) { return h.replay(histRows{}, 0) }

// replay is what rows become by all that the log holds after a revision.
func (h *history) replay(rows histRows, after uint8) histRows {
	for rev := h.next(after); rev != 0; rev = h.next(rev) {
		rows.apply(h.at(rev), rev)
	}
	return rows
}

func (h *history) encode(out []byte) []byte {
	for _, m := range h.all {
		out = append(out, byte(m))
	}
	return append(out, h.last, h.gone)
}

func (h history) String() string {
	var b strings.Builder
	for rev := uint8(1); rev <= h.last; rev++ {
		verb := "put"
		if h.at(rev).isMarker() {
			verb = "del"
		}
		form := " %s %c"
		if !h.holds(rev) {
			form = " (%s %c)"
		}
		fmt.Fprintf(&b, form, verb, 'k'+rune(h.at(rev).key()))
	}
	return "log" + b.String()
}
