package kvtest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
)

func openAt(t *testing.T, l *Log, after kv.Cursor) kv.Watch {
	t.Helper()
	w, err := l.Open(context.Background(), kv.OpenRequest{After: after})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// drain reads what a watch has to tell now: "key@revision=op ... |frontier", or the error. The log never needs to wait.
func drain(t *testing.T, w kv.Watch) string {
	t.Helper()
	var d kv.Delivery
	var err error
	for {
		ctx, cancel := context.WithCancel(context.Background())
		idle := w.(*watch)
		idle.log.mu.Lock()
		more := idle.ready()
		idle.log.mu.Unlock()
		if !more {
			cancel()
			return render(d)
		}
		d, err = w.Next(ctx, d, 100, 1<<20)
		cancel()
		if err != nil {
			return strings.TrimSpace(render(d) + " " + err.Error())
		}
	}
}

// ready reports whether Next would return at once.
func (w *watch) ready() bool {
	l := w.log
	return w.lost != nil || w.overrun != nil || len(w.buf)+len(w.list) > 0 || w.next <= l.last() ||
		w.covered > 0 && (!w.began || w.told != w.covered)
}

func render(d kv.Delivery) string {
	var b strings.Builder
	for _, u := range d.Updates {
		fmt.Fprintf(&b, "%s@%v=%v ", u.Key, u.Version, u.Op)
	}
	fmt.Fprintf(&b, "|%d", d.Frontier)
	return b.String()
}
