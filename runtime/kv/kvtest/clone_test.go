package kvtest

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
)

func TestClone(t *testing.T) {
	l := NewLog(Options{History: 2})
	for _, k := range []string{"a", "b", "a", "c", "a"} {
		l.Set(k, k)
	}
	l.Remove("b")
	openAt(t, l, kv.Cursor{})
	l.Inject(Fault{At: PointInfo, Fail: true})
	c := l.Clone()
	was, err := c.Info(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Info(context.Background()); err == nil {
		t.Error("the fault went to the clone")
	}
	if c.OpenWatches() != 0 || c.Calls(PointInfo) != 1 || len(c.Retained()) != len(l.Retained()) || !maps.EqualFunc(c.Truth(kv.AllKeys(), 99), l.Truth(kv.AllKeys(), 99), sameEntry) {
		t.Errorf("the clone has %v, the log %v", c.Retained(), l.Retained())
	}
	l.EvictTo(5)
	l.Set("a", "later")
	l.Rewind(2)
	now := c.Bounds()
	now.ServerTime = was.ServerTime
	if now != was || c.Calls(PointInfo) != 1 {
		t.Errorf("the clone changed with the log: %+v, %+v", was, now)
	}
	c.Set("d", "1")
	c.PurgeMarkers()
	if c.Rewind(5); len(c.Retained()) != 3 || len(l.Retained()) != 1 {
		t.Errorf("after a rewind the clone has %v, the log %v", c.Retained(), l.Retained())
	}
}

func sameEntry(a, b kv.Entry) bool {
	return a.Key == b.Key && a.Version == b.Version && slices.Equal(a.Value, b.Value)
}
