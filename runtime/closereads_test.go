package fold_test

import (
	"errors"
	"sync"
	"testing"

	indexedv1 "github.com/typedfold/fold/internal/foldtest/gen/indexed/v1"
	ix "github.com/typedfold/fold/internal/foldtest/gen/indexed/v1/indexedv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/store"
)

// TestCloseAmongReaders: readers that never pause don't keep a fold from closing its store, and are told.
func TestCloseAmongReaders(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		log := newLog()
		setHost(t, log, &indexedv1.Host{Region: "r", Name: "a", NodeId: "n1"})
		tb := mustStartIndexed(t, log, openStore(t, b, t.TempDir()), fold.Options{})
		tb.caughtUp(t, log)
		ctx := bounded(t)
		reads := []func() error{
			func() error { _, _, err := tb.hosts.Get(ctx, ix.HostKey{Region: "r", Name: "a"}); return err },
			func() error { _, err := tb.hosts.CountByNode(ctx, "n1"); return err },
			func() error { _, err := tb.f.VerifyIndexes(ctx); return err },
			func() error {
				for _, err := range tb.hosts.List(ctx, ix.HostAll()) {
					if err != nil {
						return err
					}
				}
				return nil
			},
			func() error {
				s, err := tb.f.Snapshot()
				if err != nil {
					return err
				}
				return s.Close()
			},
		}
		var wg, reading sync.WaitGroup
		for i := range 4 * len(reads) {
			reading.Add(1)
			wg.Go(func() {
				err := reads[i%len(reads)]()
				reading.Done()
				for err == nil {
					err = reads[i%len(reads)]()
				}
				if !errors.Is(err, store.ErrClosed) {
					t.Errorf("read %d: %v", i%len(reads), err)
				}
			})
		}
		reading.Wait()
		if err := tb.f.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
}
