package artifact

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFileIsReplacedWhileOpened: a file that takes another's place between the look at it and its opening was never
// looked at. It is tried until that moment is met; whatever is opened without an error is the one that was looked at.
func TestFileIsReplacedWhileOpened(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"one", "two"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
	}
	must(t, os.Link(filepath.Join(dir, "one"), filepath.Join(dir, "file")))
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	ctx, stopped, over := bounded(t), make(chan error), make(chan struct{})
	go func() {
		var err error
		for i := 1; err == nil; i++ { // a rename over a link to itself does nothing
			select {
			case <-over:
				stopped <- nil
				return
			default:
			}
			err = errors.Join(os.Link(filepath.Join(dir, []string{"one", "two"}[i%2]), filepath.Join(dir, "next")),
				os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "file")))
		}
		<-over
		stopped <- err
	}()
	met := false
	for !met && ctx.Err() == nil {
		f, _, err := openRegular(root, "file")
		if err == nil {
			_, err = io.ReadAll(f)
			must(t, errors.Join(err, f.Close()))
			continue
		}
		if met = errors.Is(err, ErrInvalid) && strings.Contains(err.Error(), "replaced"); !met {
			t.Error(err)
			break
		}
	}
	close(over)
	must(t, <-stopped)
	if !met {
		t.Error("a file that was replaced while it was opened is taken")
	}
}
