package dir_test

import (
	"context"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/artifact/objects/dir"
	"github.com/typedfold/fold/runtime/artifact/objects/objectstest"
)

func TestConformance(t *testing.T) {
	objectstest.RunConformance(t, objectstest.Harness{
		Place:     func(t *testing.T) string { return t.TempDir() },
		Open:      func(_ context.Context, place string) (objects.Store, error) { return dir.Open(place, dir.Options{}) },
		Processes: true,
		Leftovers: leftovers,
	})
}

// leftovers counts temporary files.
func leftovers(_ context.Context, place string) (n int, err error) {
	err = fs.WalkDir(os.DirFS(place), ".", func(_ string, e fs.DirEntry, err error) error {
		if strings.HasPrefix(e.Name(), objects.Reserved+"tmp-") {
			n++
		}
		return err
	})
	return n, err
}
