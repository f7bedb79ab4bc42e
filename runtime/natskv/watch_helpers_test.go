package natskv_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
)

type watched struct {
	kv.Watch
}

func (r *rig) watch(t testing.TB, req kv.OpenRequest) *watched {
	t.Helper()
	w, err := r.bucket.Open(bounded(t), req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(bounded(t)); err != nil && r.Server.Server() != nil {
			t.Error(err)
		}
	})
	return &watched{w}
}

type updates []kv.Update

// until reads on until the frontier is at least rev.
func (w *watched) until(t testing.TB, rev uint64) updates {
	t.Helper()
	got, err := w.read(bounded(t), rev)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func (w *watched) read(ctx context.Context, rev uint64) (updates, error) {
	var got updates
	for {
		d, err := w.Next(ctx, kv.Delivery{}, 1000, 1<<20)
		if err != nil {
			return got, err
		}
		got = append(got, d.Updates...)
		if d.Frontier >= rev {
			return got, nil
		}
	}
}

// end reads on until the watch ends.
func (w *watched) end(t testing.TB) (updates, error) {
	t.Helper()
	ctx := bounded(t)
	got, err := w.read(ctx, ^uint64(0))
	if ctx.Err() != nil {
		t.Fatalf("the watch did not end; %d updates", len(got))
	}
	return got, err
}

func (u updates) text() string {
	var out []string
	for _, x := range u {
		out = append(out, fmt.Sprintf("%s=%s@%v %v", x.Key, x.Value, x.Version, x.Op))
	}
	return strings.Join(out, ", ")
}
