package fold_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/proto"

	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv/kvtest"
)

// watcher reads one Watch on a goroutine of its own.
type watcher struct {
	mu     sync.Mutex
	seen   []string
	err    error
	ended  bool
	cancel context.CancelFunc
}

// watch begins a Watch. Within a synctest bubble, synctest.Wait then waits until it has read what there is.
func watch[K fold.Key, V proto.Message](table *fold.Table[K, V], prefixes []fold.Prefix[K], show func(*fold.Event[K, V]) string, opts ...fold.WatchOption) *watcher {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watcher{cancel: cancel}
	go func() {
		for e, err := range table.Watch(ctx, prefixes, opts...) {
			w.mu.Lock()
			if err != nil {
				w.err = err
			} else {
				w.seen = append(w.seen, show(&e))
			}
			w.mu.Unlock()
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ended = true
	}()
	return w
}

func (w *watcher) take() string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	s := strings.Join(w.seen, ", ")
	w.seen = nil
	return s
}

func (w *watcher) end(t *testing.T) error {
	t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		t.Error("the watch goes on")
	}
	return w.err
}

func showRoute(e *ft.RouteEvent) string {
	s := fmt.Sprintf("%d %v %s/%s", e.Rev.Seq(), e.Op, e.Key.Tenant, e.Key.Domain)
	if e.New != nil {
		s += "=" + e.New.NodeId
	}
	switch old, had, err := e.Old(); {
	case errors.Is(err, fold.ErrNoOld):
	case err != nil:
		s += "<" + err.Error()
	case had:
		s += "<" + old.NodeId
	default:
		s += "<-"
	}
	if e.Hydrating {
		s += " hydrating"
	}
	return s
}

// feedTest runs f in a bubble with a hydrated fold.
func feedTest(t *testing.T, o startOptions, f func(t *testing.T, log *kvtest.Log, tb *tables)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := newHistoryLog(16)
		tb := start(t, log, openStore(t, backends[0], dir), o)
		tb.hydrated(t)
		f(t, log, tb)
		tb.close(t)
	})
}
