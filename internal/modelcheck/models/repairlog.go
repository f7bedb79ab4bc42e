package models

import (
	"fmt"
	"strings"

	"github.com/typedfold/fold/runtime/protocol"
)

const (
	mostRevs = 5
	mostKeys = 2
)

// message is one revision of the log; the zero value is one that was not written.
type message uint8

func messageOf(key uint8, del bool) message {
	m := message(1) | message(key)<<1
	if del {
		m |= 4
	}
	return m
}

func (m message) key() uint8    { return uint8(m>>1) & 1 }
func (m message) deletes() bool { return m&4 != 0 }

// rows are a fold's rows: by key, the revision of its value; 0 is none.
type rows [mostKeys]uint8

// repairLog is a bucket with a history of one message a key, and what is published of it. It remembers what it no longer
// holds, so it knows the truth: every write minus every delete.
type repairLog struct {
	written [mostRevs + 1]message // by revision
	// there has a bit for each revision that the log still holds.
	there revs
	last  uint8
	// evicts: retention may take current values now. evicted: it has taken a message.
	evicts, evicted bool
}

func (l *repairLog) write(key uint8, del bool) {
	if was := l.latest(key, l.last); was != 0 {
		l.there &^= 1 << was
	}
	l.last++
	l.written[l.last], l.there = messageOf(key, del), l.there|1<<l.last
}

// latest is the key's last revision up to a revision; 0 is none.
func (l *repairLog) latest(key, to uint8) uint8 {
	for r := to; r > 0; r-- {
		if l.written[r].key() == key {
			return r
		}
	}
	return 0
}

// truth is what a fold of all up to a revision holds.
func (l *repairLog) truth(to uint8) (t rows) {
	for k := range t {
		if r := l.latest(uint8(k), to); r != 0 && !l.written[r].deletes() {
			t[k] = r
		}
	}
	return t
}

// after is the next revision after one that the log holds; 0 is none.
func (l *repairLog) after(rev uint8) uint8 {
	for r := rev + 1; r <= l.last; r++ {
		if l.there>>r&1 == 1 {
			return r
		}
	}
	return 0
}

// first is the log's first retained revision, as the server tells it.
func (l *repairLog) first() uint8 {
	if r := l.after(0); r != 0 || l.last == 0 {
		return r
	}
	return l.last + 1
}

// begins reports whether what the log holds begins right after a revision or before it: nothing that it has lost from its
// beginning is later. No kernel is asked, so that a kernel that is wrong does not excuse what comes of it.
func (l *repairLog) begins(after uint8) bool {
	for r := uint8(1); r <= min(after+1, l.last); r++ {
		if l.there>>r&1 == 1 {
			return true
		}
	}
	return after >= l.last
}

// evict takes out the oldest message.
func (l *repairLog) evict() {
	l.evicted = l.evicted || l.evicts
	l.there &^= 1 << l.after(0)
}

// fold is what rows become by all messages after a revision.
func (l *repairLog) fold(r rows, after uint8) rows {
	for rev := l.after(after); rev != 0; rev = l.after(rev) {
		m := l.written[rev]
		if r[m.key()] = rev; m.deletes() {
			r[m.key()] = 0
		}
	}
	return r
}

func (l *repairLog) appendState(out []byte) []byte {
	for r := uint8(1); r <= l.last; r++ {
		out = append(out, byte(l.written[r]))
	}
	return append(out, byte(l.there), l.last, flags(l.evicts, l.evicted))
}

func (l *repairLog) String() string {
	var b strings.Builder
	for r := uint8(1); r <= l.last; r++ {
		c := changeOf(l.written[r].key(), r, l.written[r].deletes())
		if l.there>>r&1 == 1 {
			fmt.Fprintf(&b, "%v ", c)
			continue
		}
		fmt.Fprintf(&b, "(%v) ", c)
	}
	if !l.evicts {
		b.WriteString("keeps")
	}
	return "[" + b.String() + "]"
}

// logInfo is one reading of the log's settings.
type logInfo struct {
	first, last, keys uint8
	evicts            bool
}

func (l *repairLog) info() (i logInfo) {
	i = logInfo{first: l.first(), last: l.last, evicts: l.evicts}
	for r := l.after(0); r != 0; r = l.after(r) {
		i.keys++
	}
	return i
}

// listing is the bucket's keys with their last messages: by key, the revision; those in values are a value's.
type listing struct {
	rank   rows
	values uint8
}

func (l *repairLog) list() (all listing) {
	for r := l.after(0); r != 0; r = l.after(r) {
		m := l.written[r]
		if all.rank[m.key()] = r; !m.deletes() {
			all.values |= 1 << m.key()
		}
	}
	return all
}

func (l *listing) has(key int) bool { return l.values>>key&1 == 1 }

// seen is the listing as its kernel takes it.
func (l *listing) seen(before, after logInfo) protocol.Listing {
	s := protocol.Listing{HeadBefore: uint64(before.last), HeadAfter: uint64(after.last), KeysBefore: uint64(before.keys), KeysAfter: uint64(after.keys)}
	for _, r := range l.rank {
		if r != 0 {
			s.Listed++
		}
		s.Highest = max(s.Highest, uint64(r))
	}
	return s
}

// deletedSince reports whether somebody deleted the key after a revision.
func (l *repairLog) deletedSince(key, rev uint8) bool {
	for r := rev + 1; r <= l.last; r++ {
		if l.written[r].key() == key && l.written[r].deletes() {
			return true
		}
	}
	return false
}

// exporter is how the exporter of an artifact came to what it holds. It never missed anything.
type exporter uint8

const (
	exporterWhole exporter = iota
	// exporterLists is amid a re-list: it lacks the keys whose last message is after its cursor.
	exporterLists
	// exporterListsAgain had a fold before that, so it may have an old value of such a key.
	exporterListsAgain
)

// repairArtifact is what was published last.
type repairArtifact struct {
	cursor uint8 // 0: there is none
	rows   rows
	memo   bool
}

func (l *repairLog) export(cursor uint8, by exporter) repairArtifact {
	a := repairArtifact{cursor: cursor, rows: l.truth(cursor), memo: l.evicted}
	live := l.truth(l.last)
	for k := range a.rows {
		if by == exporterWhole || l.latest(uint8(k), l.last) <= cursor {
			continue
		}
		if a.rows[k] = 0; by == exporterListsAgain && live[k] != 0 {
			a.rows[k] = l.oldest(uint8(k), cursor)
		}
	}
	return a
}

// oldest is the key's first value up to a revision; 0 is none.
func (l *repairLog) oldest(key, to uint8) uint8 {
	for r := uint8(1); r <= to; r++ {
		if l.written[r].key() == key && !l.written[r].deletes() {
			return r
		}
	}
	return 0
}
