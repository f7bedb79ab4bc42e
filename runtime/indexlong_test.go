package fold_test

import (
	"strings"
	"testing"

	indexedv1 "github.com/typedfold/fold/internal/foldtest/gen/indexed/v1"
	ix "github.com/typedfold/fold/internal/foldtest/gen/indexed/v1/indexedv1fold"
	fold "github.com/typedfold/fold/runtime"
)

// TestLongIndexedValues: a value may be as long as a message takes. Its row is found by it, told from others that begin
// alike, and neither stops the fold nor stays behind.
func TestLongIndexedValues(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		log, dir := newLog(), t.TempDir()
		long := strings.Repeat("é\x00", 1<<15)
		others := []string{"", long[:len(long)-1], long[:4095], long[:399], "a"}
		setTagged := func(id uint32, kind string, tags ...string) {
			set(t, log, ix.TaggedKey{ID: id}.String(), &indexedv1.Tagged{Id: id, Kind: kind, Tags: tags})
		}
		setTagged(1, long, append(others, long)...)
		setTagged(2, "a", others...)
		setTagged(3, long[:len(long)-1], long)
		tb := mustStartIndexed(t, log, openStore(t, b, dir), fold.Options{})
		tb.caughtUp(t, log)
		tb.mustCheck(t)
		setTagged(3, long, long)
		setTagged(1, "a", others...)
		tb.caughtUp(t, log)
		tb.mustCheck(t)
		if n, err := tb.tagged.CountByTag(bounded(t), long, long); n != 1 || err != nil {
			t.Errorf("%d rows with the long tag: %v", n, err)
		}
		if err := tb.f.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
