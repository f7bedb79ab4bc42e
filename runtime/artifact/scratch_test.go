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
	absent := filepath.Join(parent, "not", "there")
	c, err := NewScratch(absent)
	must(t, err)
	if filepath.Dir(c.Dir()) != absent {
		t.Errorf("it is %s", c.Dir())
	}
	must(t, c.Remove())
	must(t, os.WriteFile(filepath.Join(parent, "file"), nil, 0o600))
	if _, err := NewScratch(filepath.Join(parent, "file")); err == nil {
		t.Error("made one in a file")
	}
}
