package repair

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/store"
)

// TestShortMachineIsNoFaultOfAnArtifact: a copy that does not open since the scratch disk is full, or files are used up, is
// tried again, and not refused for good.
func TestShortMachineIsNoFaultOfAnArtifact(t *testing.T) {
	f := newFleet(t, "logstore", kvtest.Limits{Evicts: true})
	f.write("n.a")
	follow(t, f.exporter, f.sim, 1)
	f.export(t, "a")
	src := *f.source.Source.(*LocalSource)
	for _, short := range []error{syscall.ENOSPC, syscall.EMFILE, syscall.EFBIG} {
		src.Open = func(string) (store.Store, error) { return nil, fmt.Errorf("open: %w", short) }
		if _, err := src.Candidates(context.Background()); !errors.Is(err, short) || errors.Is(err, ErrArtifactInvalid) {
			t.Errorf("candidates: %v", err)
		}
		if _, err := src.Fetch(context.Background(), Manifest{ID: "a"}); !errors.Is(err, short) || errors.Is(err, ErrArtifactInvalid) {
			t.Errorf("fetch: %v", err)
		}
	}
}
