package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/repair"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
	"github.com/typedfold/fold/runtime/store/pebblestore"
)

const (
	storeAuto   = "auto"
	storePebble = "pebble"
	storeLog    = "log"
)

// storeKind looks at what is at a path.
func storeKind(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	switch {
	case info.Mode().IsRegular():
		return storeLog, nil
	case !info.IsDir(): // a pipe would be waited for
		return "", fmt.Errorf("%s: %w: it is neither a file nor a folder, but %v", path, store.ErrFormat, info.Mode().Type())
	}
	files, err := os.ReadDir(path)
	if err != nil {
		return "", err
	}
	for _, f := range files {
		switch {
		case f.Name() == logstore.ExportName:
			return storeLog, nil
		case strings.HasPrefix(f.Name(), "MANIFEST-"):
			return storePebble, nil
		}
	}
	return "", fmt.Errorf("%s: %w: it is neither a log file, nor a folder with %s or with a Pebble database", path, store.ErrFormat, logstore.ExportName)
}

// checkedKind is the kind of the store at a path, which must be the one that was asked for.
func checkedKind(path, kind string) (string, error) {
	found, err := storeKind(path)
	if err == nil && kind != storeAuto && kind != found {
		return "", usageError("leave out --store", "%s is no store of kind %s, but one of kind %s", path, kind, found)
	}
	return found, err
}

// openStore opens a store, or that in an artifact, to read it only.
func openStore(path, kind string) (_ store.Store, err error) {
	if _, err := os.Stat(filepath.Join(path, artifact.ManifestName)); err == nil {
		path = filepath.Join(path, artifact.DataName)
	}
	if kind, err = checkedKind(path, kind); err != nil {
		return nil, err
	}
	if kind == storeLog {
		s, err := logstore.Open(path, logstore.Options{ReadOnly: true})
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	s, err := pebblestore.Open(path, pebblestore.Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// artifacts are folders that are an artifact each, by their path.
type artifacts struct {
	dirs    []string
	scratch string
}

var _ repair.Source = (*artifacts)(nil)

// at is a source in which Fetch finds the folder by its base name.
func (a *artifacts) at(dir string) (*artifact.LocalSource, string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, "", err
	}
	take := artifact.Options{Kinds: []store.Kind{pebblestore.Kind(), logstore.Kind()}}
	return &artifact.LocalSource{Dir: filepath.Dir(abs), Artifact: take, Scratch: a.scratch}, filepath.Base(abs), nil
}

// Candidates describes the artifacts, the newest cursor first.
func (a *artifacts) Candidates(context.Context) ([]repair.Manifest, error) {
	var all []repair.Manifest
	for _, dir := range a.dirs {
		source, name, err := a.at(dir)
		if err != nil {
			return nil, err
		}
		m, err := source.Describe(name)
		if err != nil {
			return nil, err
		}
		m.ID = dir
		all = append(all, m)
	}
	slices.SortStableFunc(all, func(a, b repair.Manifest) int { return cmp.Compare(b.Cursor.Revision(), a.Cursor.Revision()) })
	return all, nil
}

// Fetch opens a copy of the folder of that path.
func (a *artifacts) Fetch(ctx context.Context, m repair.Manifest) (repair.Artifact, error) {
	source, name, err := a.at(m.ID)
	if err != nil {
		return nil, err
	}
	return source.Fetch(ctx, repair.Manifest{ID: name})
}
