package golden

import (
	"context"
	"io/fs"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestVet runs go vet on the generated packages, which no pattern finds, being test data.
func TestVet(t *testing.T) {
	dirs := map[string]bool{}
	err := filepath.WalkDir("../testdata", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".fold.go") {
			dirs["./"+filepath.ToSlash(filepath.Dir(path))] = true
		}
		return err
	})
	if err != nil || len(dirs) < 10 {
		t.Fatalf("%d packages, %v", len(dirs), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", append([]string{"vet"}, slices.Sorted(maps.Keys(dirs))...)...).CombinedOutput()
	if err != nil {
		t.Errorf("go vet: %v\n%s", err, out)
	}
}
