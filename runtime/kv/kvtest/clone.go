package kvtest

import (
	"maps"
	"slices"

	"github.com/typedfold/fold/runtime/kv"
)

// Clone is an independent log that holds the same messages under the same settings and creation time, without open
// watches, faults and counted calls. It may belong to another synctest bubble.
func (l *Log) Clone() *Log {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &Log{
		opts: l.opts, changed: make(chan struct{}), limits: l.limits, created: l.created, stamp: l.stamp,
		first: l.first, live: l.live, soonest: l.soonest, lastInfo: l.lastInfo,
		msgs: make([]*message, len(l.msgs)), byKey: maps.Clone(l.byKey),
	}
	all := make([]message, len(l.msgs))
	for i, m := range l.msgs {
		all[i] = *m
		c.msgs[i] = &all[i]
	}
	for key, revs := range c.byKey {
		c.byKey[key] = slices.Clone(revs)
	}
	return c
}

// Bounds is what Info answers, past all faults, and not counted as a call.
func (l *Log) Bounds() kv.LogInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire()
	return l.info()
}
