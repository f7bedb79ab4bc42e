package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// ExportOptions shape an export. The zero value is good.
type ExportOptions struct {
	// Created is the time to write into the manifest; the zero time is now.
	Created time.Time

	steps steps
}

// Export writes the store as an artifact to dir, which must be absent or an empty folder, in a folder that is there, on
// the store's file system (elsewhere Pebble's files are copied and not linked). Until it is whole it is under a hidden
// name. No Apply may run meanwhile; where that is too long, use Begin.
func Export(ctx context.Context, s store.Store, dir string, o ExportOptions) (Manifest, error) {
	p, err := Begin(dir, o)
	if err != nil {
		return Manifest{}, err
	}
	err = p.Checkpoint(ctx, s)
	var m Manifest
	if err == nil {
		m, err = p.Finish(ctx)
	}
	return m, errors.Join(err, p.Abort())
}

// Pending is an export in parts. It is used by one goroutine.
type Pending struct {
	stage   *stage
	created time.Time
	kind    store.Kind
	cursor  kv.Cursor
}

// Begin makes room beside dir for an export. The caller ends it by Abort.
func Begin(dir string, o ExportOptions) (*Pending, error) {
	s, err := newStage(dir, o.steps)
	if err != nil {
		return nil, fmt.Errorf("export to %s: %w", dir, told(err))
	}
	p := &Pending{stage: s, created: o.Created}
	if err := os.Mkdir(s.new(), 0o700); err != nil {
		return nil, errors.Join(p.failed(err), s.remove())
	}
	return p, nil
}

// Checkpoint has the store write its files. It is the only part during which no Apply may run, and the store is not used
// after it.
func (p *Pending) Checkpoint(ctx context.Context, s store.Store) error {
	err := p.stage.step.at("checkpoint")
	if err == nil {
		p.kind, p.cursor = s.Kind(), s.Cursor()
		err = s.Export(ctx, filepath.Join(p.stage.new(), DataName))
	}
	return p.failed(err)
}

// Finish opens what Checkpoint wrote and compares its cursor with the store's, hashes the files, and gives the artifact
// its name. On an error nothing is there under that name.
func (p *Pending) Finish(ctx context.Context) (Manifest, error) {
	m, err := p.finish(ctx)
	if err != nil {
		return Manifest{}, p.failed(err)
	}
	return m, nil
}

// Abort removes what is not published. It may be called at any time, and again.
func (p *Pending) Abort() error { return p.failed(p.stage.remove()) }

func (p *Pending) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("export to %s: %w", p.stage.dest, told(err))
}

func (p *Pending) finish(ctx context.Context) (Manifest, error) {
	s := p.stage
	if err := s.step.at("verify"); err != nil {
		return Manifest{}, err
	}
	m, err := look(p.kind, filepath.Join(s.new(), DataName))
	if err != nil {
		return m, err
	}
	if m.Cursor != p.cursor {
		return m, invalid(s.dest, "the copy opens at cursor %v, the store is at %v", m.Cursor, p.cursor)
	}
	if m.Created = p.created; m.Created.IsZero() {
		m.Created = time.Now()
	}
	if m.Files, err = s.hashAll(ctx); err != nil {
		return m, err
	}
	says := m
	if m, err = says.sealed(); err != nil {
		return m, err
	}
	if d := differs(&m, &says); d != "" { // a text that JSON can't hold
		return m, invalid(s.dest, "%s", d)
	}
	if err := s.writeManifest(s.new(), &m); err != nil {
		return m, err
	}
	if err := s.syncTree(s.new()); err != nil {
		return m, err
	}
	return m, s.publish(s.new())
}

// look opens an export's files and reads what they say of themselves.
func look(k store.Kind, dir string) (Manifest, error) {
	s, err := k.Open(dir)
	if err != nil {
		return Manifest{}, err
	}
	m, err := facts(s)
	return m, errors.Join(err, s.Close())
}

// hashers is how many files of an export are hashed and synced at once: two, so that one hashes while another syncs.
const hashers = 2

// hashAll hashes and syncs all files of an export. It comes after the last open of the store in there.
func (s *stage) hashAll(ctx context.Context) ([]File, error) {
	root, err := os.OpenRoot(s.new())
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var files []File
	err = fs.WalkDir(root.FS(), DataName, func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files = append(files, File{Path: name})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	var next atomic.Int64
	for range hashers {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(files)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				var err error
				if files[i], err = s.hashFile(ctx, root, files[i].Path); err != nil {
					stop(err)
				}
			}
		})
	}
	wg.Wait()
	return files, context.Cause(ctx)
}

func (s *stage) hashFile(ctx context.Context, root *os.Root, name string) (File, error) {
	if err := s.step.at("hash"); err != nil {
		return File{}, err
	}
	file, info, err := openRegular(root, name)
	if err != nil {
		return File{}, err
	}
	defer file.Close()
	f := File{Path: name, Size: info.Size()}
	if f.Hash, err = pour(ctx, io.Discard, file, f.Size); err == nil {
		err = s.syncFile(file)
	}
	if err != nil {
		return f, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}
