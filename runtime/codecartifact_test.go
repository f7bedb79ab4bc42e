package fold_test

import (
	"path/filepath"
	"testing"

	codecv1 "github.com/typedfold/fold/internal/foldtest/gen/codec/v1"
	cd "github.com/typedfold/fold/internal/foldtest/gen/codec/v1/codecv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/store"
)

// TestContentTypeInArtifacts: an artifact's rows are read by the headers that they came with, those under a rejection too.
func TestContentTypeInArtifacts(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		log, dir := newLog(), t.TempDir()
		s := openStore(t, b, dir)
		f := startCodecOn(t, log, s, cd.AnyRawDesc, fold.Options{})
		putTyped(t, log, "anyraw.a", `{"text":"t"}`, typeJSON)
		putTyped(t, log, "anyraw.b", "\x12\x01t", typeProto)
		f.upToDate(t)
		putTyped(t, log, "anyraw.b", "\xff", "text/plain")
		f.wantCode(t, "anyraw.b", fold.ValueDecode)
		out, copied := filepath.Join(dir, "artifact"), filepath.Join(dir, "copy")
		if _, err := f.f.Export(bounded(t), out); err != nil {
			t.Fatal(err)
		}
		if _, err := artifact.Import(bounded(t), out, copied, artifact.Options{Kinds: []store.Kind{s.Kind()}}); err != nil {
			t.Fatal(err)
		}
		again, err := openExport(b, copied)
		if err != nil {
			t.Fatal(err)
		}
		g := startCodecOn(t, log, again, cd.AnyRawDesc, fold.Options{})
		g.want(t, cd.AnyRawKey{ID: "a"}, &codecv1.AnyRaw{Id: "a", Text: "t"})
		if v, ok, stale := g.row(t, cd.AnyRawKey{ID: "b"}); !ok || stale == nil || v.Text != "t" {
			t.Errorf("the row under a rejection: %v %v %v", v, ok, stale)
		}
	})
}
