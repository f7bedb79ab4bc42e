package artifact

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/zeebo/blake3"
)

// failingAt takes n bytes.
type failingAt struct {
	n   int
	got bytes.Buffer
}

func (w *failingAt) Write(b []byte) (int, error) {
	if w.got.Len()+len(b) > w.n {
		return 0, errBroken
	}
	return w.got.Write(b)
}

// TestPour copies and hashes sizes around those of its pieces, from readers that give little at once. The bubble sees that
// its goroutine has ended, whatever failed.
func TestPour(t *testing.T) {
	all := make([]byte, 7*poured+3)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(all)
	for _, size := range []int{0, 1, poured - 1, poured, poured + 1, pouring * poured, len(all)} {
		synctest.Test(t, func(t *testing.T) {
			from := all[:size]
			var to bytes.Buffer
			h, err := pour(t.Context(), &to, iotest.HalfReader(bytes.NewReader(all)), int64(size))
			if err != nil || h != blake3.Sum256(from) || !bytes.Equal(to.Bytes(), from) {
				t.Errorf("%d bytes: %v, %d bytes, hash %v", size, err, to.Len(), h)
			}
			if size == 0 {
				return
			}
			if _, err := pour(t.Context(), io.Discard, bytes.NewReader(from[:size-1]), int64(size)); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("one byte less than %d: %v", size, err)
			}
			broken := io.MultiReader(bytes.NewReader(from[:size/2]), iotest.ErrReader(errBroken))
			if _, err := pour(t.Context(), io.Discard, broken, int64(size)); !errors.Is(err, errBroken) {
				t.Errorf("a reader that fails after half of %d: %v", size, err)
			}
			if _, err := pour(t.Context(), &failingAt{n: size - 1}, bytes.NewReader(from), int64(size)); !errors.Is(err, errBroken) {
				t.Errorf("a writer that fails before %d: %v", size, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := pour(ctx, io.Discard, bytes.NewReader(from), int64(size)); !errors.Is(err, context.Canceled) {
				t.Errorf("a context that has ended: %v", err)
			}
		})
	}
}
