package fold_test

import (
	"testing"

	indexedv1 "github.com/typedfold/fold/internal/foldtest/gen/indexed/v1"
	ix "github.com/typedfold/fold/internal/foldtest/gen/indexed/v1/indexedv1fold"
	fold "github.com/typedfold/fold/runtime"
)

// TestPanicInAReadersLoop: a panic in the loop over rows, which a server for HTTP recovers, leaves nothing of the store
// open.
func TestPanicInAReadersLoop(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		log := newLog()
		setHost(t, log, &indexedv1.Host{Region: "r", Name: "a", NodeId: "n1"})
		tb := mustStartIndexed(t, log, openStore(t, b, t.TempDir()), fold.Options{})
		tb.caughtUp(t, log)
		ctx := bounded(t)
		for name, read := range map[string]func(){
			"index": func() {
				for range tb.hosts.ListByNode(ctx, "n1") {
					panic("stop")
				}
			},
			"scan": func() {
				for range tb.hosts.List(ctx, ix.HostAll()) {
					panic("stop")
				}
			},
		} {
			func() {
				defer func() {
					if recover() != "stop" {
						t.Errorf("%s: no panic", name)
					}
				}()
				read()
			}()
		}
		if err := tb.f.Close(); err != nil {
			t.Error(err)
		}
	})
}
