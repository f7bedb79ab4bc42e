package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/artifact/objects/mem"
)

// brittle is a driver whose streams of payloads break off after some bytes each.
type brittle struct {
	*objects.Guarded
	after        int64
	opened, sent int64
	meanwhile    func()
}

func (b *brittle) Get(ctx context.Context, key string) (io.ReadCloser, objects.Info, error) {
	return b.GetFrom(ctx, key, 0)
}

func (b *brittle) GetFrom(ctx context.Context, key string, offset int64) (io.ReadCloser, objects.Info, error) {
	if !strings.HasSuffix(key, payloadSuffix) {
		return b.Guarded.GetFrom(ctx, key, offset)
	}
	if b.opened++; b.opened > 1 && b.meanwhile != nil {
		b.meanwhile()
	}
	r, info, err := b.Guarded.GetFrom(ctx, key, offset)
	if err != nil {
		return r, info, err
	}
	n := min(b.after, info.Size-offset)
	b.sent += n
	broken := io.Reader(failing{fmt.Errorf("%w: reset", objects.ErrUnavailable)})
	if offset+n == info.Size {
		broken = strings.NewReader("")
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(io.LimitReader(r, n), broken), r}, info, nil
}

// TestDownloadGoesOn: a payload over a line that breaks again and again arrives within one call, each byte once.
func TestDownloadGoesOn(t *testing.T) {
	e := export(t, spec{log: logA, rev: 5, fill: 3000})
	for _, after := range []int64{1, 511, 512, 513, 1000, e.m.PackedSize() - 1} {
		synctest.Test(t, func(t *testing.T) {
			s, err := mem.Open(objects.Options{})
			must(t, err)
			line := &brittle{Guarded: s, after: after}
			g, err := objects.Guard(line, "brittle", objects.Options{Attempts: 2})
			must(t, err)
			wantPublished(t, transportOn(t, s), e, liveAt(logA, 1, 5))
			var heard Progress
			tr, err := New(Options{Store: g, Prefix: "fleet/", Key: "routes", Progress: func(p Progress) {
				if p.Done <= heard.Done {
					t.Errorf("told of %d bytes after %d", p.Done, heard.Done)
				}
				heard = p
			}})
			must(t, err)
			must(t, tr.Download(t.Context(), e.m, t.TempDir()+"/artifact", taken))
			if total := e.m.PackedSize(); line.sent != total || line.opened != (total+after-1)/after || heard.Done != total {
				t.Errorf("breaks after %d of %d bytes: %d sent in %d streams, told of %d", after, total, line.sent, line.opened, heard.Done)
			}
		})
	}
}

// TestDownloadMeetsAPrune: what is pruned while the line is down is gone, and not a store's failure.
func TestDownloadMeetsAPrune(t *testing.T) {
	e := export(t, spec{log: logA, rev: 5})
	synctest.Test(t, func(t *testing.T) {
		s, err := mem.Open(objects.Options{})
		must(t, err)
		all := transportOn(t, s)
		wantPublished(t, all, e, liveAt(logA, 1, 5))
		line := &brittle{Guarded: s, after: 700, meanwhile: func() {
			must(t, errors.Join(s.Delete(t.Context(), all.pointerKey()), s.Delete(t.Context(), all.manifestKey(Name(e.m))), s.Delete(t.Context(), all.payloadKey(Name(e.m)))))
		}}
		g, err := objects.Guard(line, "brittle", objects.Options{})
		must(t, err)
		if err := transportOn(t, g).Download(t.Context(), e.m, t.TempDir()+"/artifact", taken); !errors.Is(err, ErrGone) || line.opened < 2 {
			t.Errorf("%v after %d streams", err, line.opened)
		}
	})
}
