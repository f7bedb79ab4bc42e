package dst

import (
	"fmt"
	"testing"
)

// lieCounts are the schedules in which the log told a lie of one kind, and those of them that ended without the truth: with an
// audit owed, or stopped.
type lieCounts struct{ told, owed, stopped int }

// lieBounds are how many percent of the schedules with a lie may end so. A fold that always gave up would be right about
// everything, and of no use; those with 0 must all end at the truth, or by the other way.
var lieBounds = map[string]struct{ owed, stopped int }{
	"stale": {0, 8}, "new-info": {2, 6}, "new-list": {0, 5}, "new-open": {12, 24}, "unknown": {8, 0}, "clamp": {14, 4}, gap: {55, 22},
}

// lie counts a schedule in which the log lied.
func (n *counts) lie(kind string, t *tally) {
	l := n.lies[kind]
	if l == nil {
		l = &lieCounts{}
		n.lies[kind] = l
	}
	l.told++
	l.owed, l.stopped = l.owed+min(t.owed, 1), l.stopped+min(t.stopped, 1)
}

// check tells whether too many ended without the truth, or none had the lie.
func (l *lieCounts) check(kind string) error {
	bound, ok := lieBounds[kind]
	if !ok || l.told == 0 || 100*l.owed > bound.owed*l.told || 100*l.stopped > bound.stopped*l.told {
		return fmt.Errorf("of %d schedules with the lie %q %d ended with an audit owed and %d stopped; at most %d and %d of a hundred may",
			l.told, kind, l.owed, l.stopped, bound.owed, bound.stopped)
	}
	return nil
}

// lies adds up the lies of all stories.
func (c *counter) lies() map[string]*lieCounts {
	all := map[string]*lieCounts{}
	for kind := range lieBounds {
		all[kind] = &lieCounts{}
	}
	for _, n := range c.n {
		for kind, l := range n.lies {
			if all[kind] == nil {
				all[kind] = &lieCounts{}
			}
			all[kind].told, all[kind].owed, all[kind].stopped = all[kind].told+l.told, all[kind].owed+l.owed, all[kind].stopped+l.stopped
		}
	}
	return all
}

// TestTooManyWithoutTheTruth: a fold that always owes, or always stops, is refused, as is a lie that nobody tells.
func TestTooManyWithoutTheTruth(t *testing.T) {
	for what, c := range map[string]struct {
		kind string
		n    lieCounts
		ok   bool
	}{
		"as it is":          {"clamp", lieCounts{1000, 88, 15}, true},
		"always owed":       {"clamp", lieCounts{1000, 1000, 0}, false},
		"always stopped":    {"clamp", lieCounts{1000, 0, 1000}, false},
		"one that may not":  {"unknown", lieCounts{1000, 0, 1}, false},
		"one never told":    {"clamp", lieCounts{}, false},
		"one without bound": {"another", lieCounts{1000, 0, 0}, false},
	} {
		if err := c.n.check(c.kind); (err == nil) != c.ok {
			t.Errorf("%s: %v", what, err)
		}
	}
}
