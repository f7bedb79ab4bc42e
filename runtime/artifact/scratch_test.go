package artifact

import (
	"os"
	"path/filepath"
	"testing"
)

func TestScratch(t *testing.T) {
	parent := t.TempDir()
	dead := filepath.Join(parent, stagePrefix+"dead", "store")
	must(t, os.MkdirAll(dead, 0o700))
	a, err := NewScratch(parent)
	must(t, err)
	b, err := NewScratch(parent)
	must(t, err)
	for _, s := range []*Scratch{a, b} {
		must(t, os.WriteFile(filepath.Join(s.Dir(), "file"), nil, 0o600))
	}
	left, err := os.ReadDir(parent)
	must(t, err)
	if len(left) != 2 || a.Dir() == b.Dir() {
		t.Errorf("there are %v", left)
	}
	for _, s := range []*Scratch{a, b, b} {
		must(t, s.Remove())
	}
	if left, err = os.ReadDir(parent); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if _, err := NewScratch(filepath.Join(parent, "absent")); err == nil {
		t.Error("made one in a folder that is not there")
	}
}
