package logstore

import (
	"errors"
	"slices"
	"testing"
)

// dirFS has directories, and notes what is made and synced.
type dirFS struct {
	FS
	dirs []string
	did  []string
	fail string
}

func (f *dirFS) IsDir(name string) (bool, error) { return slices.Contains(f.dirs, name), nil }

func (f *dirFS) MkdirAll(dir string) error {
	f.dirs = append(f.dirs, dir)
	return f.do("make " + dir)
}

func (f *dirFS) SyncDir(dir string) error { return f.do("sync " + dir) }

func (f *dirFS) do(what string) error {
	f.did = append(f.did, what)
	if what == f.fail {
		return errInjected
	}
	return nil
}

// TestNewDirectoriesAreSynced: each where its name is, so that a loss of power takes none with the log in it.
func TestNewDirectoriesAreSynced(t *testing.T) {
	f := &dirFS{dirs: []string{"/", "/a"}}
	want := []string{"make /a/b", "sync /a", "make /a/b/c", "sync /a/b"}
	if err := makeDir(f, "/a/b/c"); err != nil || !slices.Equal(f.did, want) {
		t.Errorf("did %q, %v", f.did, err)
	}
	f.did = nil
	if err := makeDir(f, "/a/b/c"); err != nil || f.did != nil {
		t.Errorf("a directory that is there: did %q, %v", f.did, err)
	}
	for _, fail := range want {
		f := &dirFS{dirs: []string{"/", "/a"}, fail: fail}
		if err := makeDir(f, "/a/b/c"); !errors.Is(err, errInjected) || f.did[len(f.did)-1] != fail {
			t.Errorf("%s fails: did %q, %v", fail, f.did, err)
		}
	}
}
