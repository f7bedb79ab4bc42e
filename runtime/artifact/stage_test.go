package artifact

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCleaningFollowsNoLinks: in a folder that others write to, a stage may be made to lead elsewhere. Nothing is made or
// removed there.
func TestCleaningFollowsNoLinks(t *testing.T) {
	parent, elsewhere := t.TempDir(), t.TempDir()
	kept := filepath.Join(elsewhere, "kept")
	must(t, os.WriteFile(kept, nil, 0o600))
	for name, to := range map[string]string{"made": filepath.Join(elsewhere, "made"), "there": kept} {
		dir := filepath.Join(parent, stagePrefix+name)
		must(t, os.Mkdir(dir, 0o700))
		must(t, os.Symlink(to, filepath.Join(dir, stageLock)))
	}
	must(t, os.Symlink(elsewhere, filepath.Join(parent, stagePrefix+"folder")))
	must(t, os.Symlink(elsewhere, filepath.Join(parent, stagePrefix+"dead"+stageDead)))
	if err := CleanStages(parent); err == nil {
		t.Error("nothing is said of links that lead out of the folder")
	}
	if _, err := takeLock(filepath.Join(parent, stagePrefix+"folder"), false); err == nil { // it was a folder when it was listed
		t.Error("locked through a link")
	}
	s, err := NewScratch(parent)
	must(t, err)
	must(t, s.Remove())
	left, err := os.ReadDir(elsewhere)
	must(t, err)
	if len(left) != 1 || left[0].Name() != "kept" {
		t.Errorf("elsewhere are %v now", left)
	}
}
