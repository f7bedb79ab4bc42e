package artifact

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestADeadStageLosesItsNameFirst: what is removed piece by piece has another name by then, so nobody who makes a stage finds
// its folder there with a part of it gone. The kernel tells the last name of a folder that is held open.
func TestADeadStageLosesItsNameFirst(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, stagePrefix+"of-a-dead-process")
	must(t, os.MkdirAll(filepath.Join(dir, stageNew), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, stageNew, "rows"), nil, 0o600))
	held, err := os.Open(dir)
	must(t, err)
	defer held.Close()
	must(t, CleanStages(parent))
	left, err := os.ReadDir(parent)
	must(t, err)
	if len(left) != 0 {
		t.Errorf("left are %v", left)
	}
	last, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", held.Fd()))
	must(t, err)
	if !strings.HasSuffix(strings.TrimSuffix(last, " (deleted)"), stageDead) {
		t.Errorf("it was removed as %s", last)
	}
}
