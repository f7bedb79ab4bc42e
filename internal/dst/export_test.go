package dst

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
)

// exports are the exports of a schedule's lives, one a life, asked for at its first commit.
type exports struct {
	wg      sync.WaitGroup
	started chan struct{}
	fold    func() *fold.Fold

	dir  string
	done []exported
}

type exported struct {
	dir string
	m   artifact.Manifest
}

// ask begins an export beside what goes on. The world is locked.
func (x *exports) ask(w *world) {
	started, f := x.started, x.fold
	x.wg.Go(func() {
		<-started
		if f() == nil {
			return
		}
		err := x.export(w, f())
		w.mu.Lock()
		defer w.mu.Unlock()
		w.breaks(err)
	})
}

// export makes one artifact. A fold that ends meanwhile may refuse it.
func (x *exports) export(w *world, f *fold.Fold) error {
	if x.dir == "" {
		dir, err := os.MkdirTemp(w.dir, "exports-")
		if err != nil {
			return err
		}
		x.dir = dir
	}
	to := filepath.Join(x.dir, fmt.Sprint(w.lives))
	m, err := f.Export(context.Background(), to)
	if errors.Is(err, store.ErrClosed) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	x.done = append(x.done, exported{to, m})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tally.exports++
	return nil
}

// wait waits for the export of a life that ends.
func (x *exports) wait() { x.wg.Wait() }

// checkExports imports each artifact: it opens at its cursor with its scope, and with what the log holds after it is the truth.
func (w *world) checkExports() error {
	x := &w.exports
	if x.dir == "" {
		return nil
	}
	for _, e := range x.done {
		if err := w.checkExport(e); err != nil {
			return errors.Join(fmt.Errorf("the artifact of cursor %v: %w", e.m.Cursor, err), os.RemoveAll(x.dir))
		}
	}
	return os.RemoveAll(x.dir)
}

func (w *world) checkExport(e exported) (err error) {
	to := e.dir + "-copy"
	o := artifact.Options{Kinds: []store.Kind{logstore.Kind()}, Bucket: "test", Scope: &w.scope, MinFreeBytes: -1}
	if _, err := artifact.Import(context.Background(), e.dir, to, o); err != nil {
		return err
	}
	s, err := logstore.Open(to, logstore.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	switch {
	case s.Cursor() != e.m.Cursor:
		return fmt.Errorf("the copy is at %v", s.Cursor())
	case e.m.Scope.String() != w.scope.String():
		return fmt.Errorf("the scope is %v", e.m.Scope)
	case e.m.Cursor.IsNone() || w.anyRevision() || w.story.markersGo || w.bent:
		return nil
	}
	return w.resumable(s, e.m.Cursor)
}
