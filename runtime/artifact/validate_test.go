package artifact

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

// TestManifestsOfOtherFileSystems: what is two files here and one elsewhere, what no terminal shows as it is, and sizes
// whose stream has a length beyond all numbers.
func TestManifestsOfOtherFileSystems(t *testing.T) {
	file := func(path string, size int64) string {
		return fmt.Sprintf(`{"path": %q, "size": %d, "blake3": %q}`, path, size, Hash{})
	}
	for _, c := range []struct {
		reason string
		files  []string
	}{
		{"", []string{file("data/a", 1), file("data/b", maxBytes-1)}},
		{"in other letters", []string{file("data/A", 1), file("data/a", 1)}},
		{"in other letters", []string{file("data/Z/x", 1), file("data/b", 1), file("data/z/X", 1)}},
		{"there twice", []string{file("data/a", 1), file("data/a", 1)}},
		{"not allowed", []string{file("data/a\u202eb", 1)}},
		{"not allowed", []string{file("data/a\u200bb", 1)}},
		{"beyond", []string{file("data/a", math.MaxInt64)}},
		{"beyond", []string{file("data/a", maxBytes), file("data/b", 1)}},
	} {
		raw := `{"schema_version": 1, "backend": "x", "backend_version": "1", "cursor_hex": "", "created_at_unix": 0, "files": [` + strings.Join(c.files, ", ") + `]}`
		m, err := Parse([]byte(raw))
		if c.reason == "" {
			if err != nil || m.PackedSize() <= m.Size() {
				t.Errorf("%s: %d bytes packed, %v", c.files, m.PackedSize(), err)
			}
			continue
		}
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s: %v", c.files, err)
		}
	}
}
