package artifact

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// stagePrefix begins the names of folders in which something is made. Such a folder has a lock's file, whose lock its
// process holds, and the folder that is made.
const (
	stagePrefix = ".fold-artifact-"
	stageLock   = "lock"
	stageNew    = "new"
	stageDead   = ".dead" // ends the name of one that is being removed
)

// steps hears of each step that changes the disk, before it; its error is that step's. Nil hears nothing.
type steps func(name string) error

func (s steps) at(name string) error {
	if s == nil {
		return nil
	}
	return s(name)
}

// inTurn are the same steps, heard of one after the other.
func (s steps) inTurn() steps {
	if s == nil {
		return nil
	}
	var mu sync.Mutex
	return func(name string) error {
		mu.Lock()
		defer mu.Unlock()
		return s(name)
	}
}

// stage is a hidden folder beside a destination, so that what is in it gets there by one rename.
type stage struct {
	dest string
	dir  string
	lock *os.File
	step steps
	// published: dest is there.
	published bool
}

// newStage makes a stage beside dest, which must be absent or an empty folder, in a folder that is there.
func newStage(dest string, step steps) (*stage, error) {
	dest, err := filepath.Abs(dest)
	if err != nil {
		return nil, err
	}
	if err := checkDest(dest); err != nil {
		return nil, err
	}
	parent := filepath.Dir(dest)
	// What can't be removed is somebody else's, and whoever asks by CleanStages is told of it.
	_ = CleanStages(parent)
	const tries = 100
	for range tries {
		s, err := tryStage(parent)
		if err != nil {
			return nil, err
		}
		if s != nil {
			s.dest, s.step = dest, step.inTurn()
			return s, nil
		}
	}
	return nil, fmt.Errorf("%d new folders in %s were removed at once", tries, parent)
}

func checkDest(dest string) error {
	i, err := os.Lstat(dest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !i.IsDir() {
		return fmt.Errorf("%s is there, and is no folder", dest)
	}
	d, err := os.Open(dest)
	if err != nil {
		return err
	}
	defer d.Close()
	names, err := d.Readdirnames(1)
	switch {
	case len(names) > 0:
		return fmt.Errorf("%s is not empty: it holds %q", dest, names[0])
	case errors.Is(err, io.EOF):
		return nil
	}
	return err
}

// tryStage makes a folder and takes its lock. It is nil when a cleaner came in between, and took both for a dead one's.
func tryStage(parent string) (*stage, error) {
	dir, err := os.MkdirTemp(parent, stagePrefix+"*")
	if err != nil {
		return nil, err
	}
	lock, err := takeLock(dir, true)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &stage{dir: dir, lock: lock}, nil
}

// takeLock opens a stage's lock file and takes the lock. It is fs.ErrNotExist when the file was removed meanwhile, or is a
// link, and nil without wait when somebody has it. Others may write to the folder that stages are in, as to the system's
// temporary one, so no link out of it is followed.
func takeLock(stage string, wait bool) (*os.File, error) {
	root, err := os.OpenRoot(filepath.Dir(stage))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	name := filepath.Join(filepath.Base(stage), stageLock)
	f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	got, err := flock(f, wait)
	if err == nil && got {
		var mine, there fs.FileInfo
		if mine, err = f.Stat(); err == nil {
			there, err = root.Lstat(name)
		}
		if err == nil && !os.SameFile(mine, there) {
			err = fs.ErrNotExist
		}
	}
	if err != nil || !got {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// CleanStages removes the hidden folders in parent that exports and imports of dead processes left there. Those that
// somebody is at work in stay, in this process and in others. Exports and imports do it for the folder of their
// destination.
func CleanStages(parent string) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	var all error
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), stagePrefix) {
			continue
		}
		if err := cleanStage(filepath.Join(parent, e.Name())); err != nil {
			all = errors.Join(all, fmt.Errorf("clean up: %w", err))
		}
	}
	return all
}

// cleanStage takes a dead stage's name away before it removes what is in it: whoever made it just now finds that it is
// gone, and never has a part of it.
func cleanStage(dir string) error {
	if strings.HasSuffix(dir, stageDead) {
		return os.RemoveAll(dir)
	}
	lock, err := takeLock(dir, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another one cleans too
	}
	if err != nil || lock == nil {
		return err
	}
	if err := os.Rename(dir, dir+stageDead); err != nil {
		return errors.Join(err, lock.Close())
	}
	return errors.Join(os.RemoveAll(dir+stageDead), lock.Close())
}

// new is the path of the folder that is made.
func (s *stage) new() string { return filepath.Join(s.dir, stageNew) }

// publish renames a folder of the stage, in which everything is synced, to the destination.
func (s *stage) publish(from string) error {
	if err := s.step.at("rename"); err != nil {
		return err
	}
	_, err := os.Lstat(s.dest)
	empty := err == nil
	if err := renameFolder(from, s.dest); err != nil {
		return err
	}
	if err := s.syncDir(filepath.Dir(s.dest)); err != nil {
		// It could be gone after a loss of power, so it is now.
		err = errors.Join(err, os.Rename(s.dest, from))
		if empty {
			err = errors.Join(err, os.Mkdir(s.dest, 0o700))
		}
		return err
	}
	s.published = true
	return nil
}

// remove removes the stage and what is left in it. It may be called again. After publish it does not fail: what could not
// be removed is an empty folder, and the next one to clean up tries again.
func (s *stage) remove() error {
	if s.lock == nil {
		return nil
	}
	err := errors.Join(s.step.at("remove"), os.RemoveAll(s.dir), s.lock.Close())
	s.lock = nil
	if s.published {
		return nil
	}
	return err
}

// syncTree makes all folders at and below dir durable, the deepest first.
func (s *stage) syncTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := s.syncTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return s.syncDir(dir)
}

func (s *stage) syncDir(dir string) error {
	if err := s.step.at("sync folder"); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (s *stage) syncFile(f *os.File) error {
	if err := s.step.at("sync file"); err != nil {
		return err
	}
	return f.Sync()
}

// writeManifest writes the manifest into dir, durably but for the folder.
func (s *stage) writeManifest(dir string, m *Manifest) error {
	if err := s.step.at("manifest"); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, ManifestName), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(m.raw)
	if err == nil {
		err = s.syncFile(f)
	}
	return errors.Join(err, f.Close())
}
