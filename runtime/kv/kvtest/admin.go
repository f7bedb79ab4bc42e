package kvtest

import (
	"fmt"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// Set writes a value past all faults and checks, and returns its revision.
func (l *Log) Set(key, value string) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire()
	return l.write(key, []byte(value), header{})
}

// Remove writes a delete marker past all faults and checks, and returns its revision.
func (l *Log) Remove(key string) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire()
	return l.write(key, nil, header{op: protocol.KVOperationDel})
}

// WriteMarker writes a marker as the server does, and returns its revision.
func (l *Log) WriteMarker(key string, reason protocol.MarkerReason) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire()
	return l.write(key, nil, header{marker: reason, rollup: true, ttl: l.limits.MarkerTTL})
}

// EvictTo removes every message below rev, as a limit with "discard old", an age, or a purge up to a sequence does.
// Nobody is told.
func (l *Log) EvictTo(rev uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.first < min(rev, l.last()+1) && l.live > 0 {
		l.drop(l.msgs[l.first-1], removed)
	}
	l.wake()
}

// AgeOut removes the key's messages as their age would; with marker it leaves the server's MaxAge marker, and returns
// the marker's revision.
func (l *Log) AgeOut(key string, marker bool) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropKey(key)
	if !marker {
		l.wake()
		return 0
	}
	return l.write(key, nil, header{marker: protocol.MarkerMaxAge, rollup: true, ttl: l.limits.MarkerTTL})
}

func (l *Log) dropKey(key string) {
	for len(l.byKey[key]) > 0 {
		l.drop(l.lastOf(key), removed)
	}
}

// PurgeMarkers removes every tombstone that is its key's last message, with the key's history, from inside the log
// (PurgeDeletes, or a marker TTL), and returns how many keys that were.
func (l *Log) PurgeMarkers() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, rev := range l.currentRevisions(kv.AllKeys()) {
		if m := l.msgs[rev-1]; m.update.Op != kv.OpPut {
			l.dropKey(m.update.Key)
			n++
		}
	}
	l.wake()
	return n
}

// RemoveMessage removes one message, without a marker. It reports whether it was there.
func (l *Log) RemoveMessage(rev uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if rev == 0 || rev > l.last() || l.msgs[rev-1].fate != alive {
		return false
	}
	l.drop(l.msgs[rev-1], removed)
	l.wake()
	return true
}

// Recreate deletes the bucket and makes another of the same name and settings: revisions begin again, the creation
// time is another, and every watch is lost.
func (l *Log) Recreate() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reset()
	l.loseWatches("the bucket was deleted")
}

// Rewind makes the log what it was when rev was its last revision, as a restored backup or lost writes do: messages
// that were superseded since are back, evicted ones are not. The creation time stays, and every watch is lost.
func (l *Log) Rewind(rev uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.msgs = l.msgs[:min(rev, l.last())]
	l.byKey, l.live, l.first = map[string][]uint64{}, 0, min(1, l.last())
	for _, m := range l.msgs {
		l.replay(m)
	}
	for l.first > 0 && l.first <= l.last() && l.msgs[l.first-1].fate != alive {
		l.first++
	}
	l.nextExpiry()
	l.loseWatches("the log was restored")
}

// replay puts a message of the past back, and supersedes what it had superseded then.
func (l *Log) replay(m *message) {
	if m.fate == removed {
		return
	}
	m.fate = alive
	l.live++
	key := m.update.Key
	revs := append(l.byKey[key], m.rev)
	keep := l.opts.History
	if m.update.Op == kv.OpPurge || m.update.Op == kv.OpAgedOut {
		keep = 1
	}
	for ; len(revs) > keep; revs = revs[1:] {
		l.msgs[revs[0]-1].fate = superseded
		l.live--
	}
	l.byKey[key] = revs
}

// SetLimits edits the retention settings, as an operator does on a bucket in use.
func (l *Log) SetLimits(s Limits) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire()
	old := l.limits
	l.limits = s
	if old.MaxAge != s.MaxAge {
		for _, m := range l.msgs {
			if m.fate == alive && !m.ttl {
				l.setExpiry(m, 0)
			}
		}
	}
	for s.MaxMessages > 0 && l.live > s.MaxMessages {
		l.drop(l.msgs[l.first-1], removed)
	}
	l.wake()
}

// Tick ages out what is due now and wakes whoever waits for it.
func (l *Log) Tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire()
	l.wake()
}

// LoseWatches ends every open watch, as a lost leader or consumer does. The log stays.
func (l *Log) LoseWatches() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loseWatches("the consumer is gone")
}

func (l *Log) loseWatches(why string) {
	for len(l.watches) > 0 {
		l.watches[0].endLocked(fmt.Errorf("bucket %q: %w: %s", l.opts.Bucket, kv.ErrWatchLost, why))
	}
	l.wake()
}

// OpenWatches is how many watches are open: tests use it to show that none leaks.
func (l *Log) OpenWatches() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.watches)
}
