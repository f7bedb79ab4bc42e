package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/zeebo/blake3"
)

// poured is how much is read at once, and pouring how many such pieces there are while one after the other is hashed.
const (
	poured  = 256 << 10
	pouring = 4
)

// pour copies size bytes from r to w and hashes them, until ctx ends. Less is io.ErrUnexpectedEOF. It hashes on a
// goroutine of its own, which has ended when it returns.
func pour(ctx context.Context, w io.Writer, r io.Reader, size int64) (Hash, error) {
	h := startHashing(size)
	err := h.copy(ctx, w, r, size)
	return h.end(), err
}

// hashing hashes pieces on its own goroutine.
type hashing struct {
	full, free chan []byte
	sum        chan Hash
}

// startHashing makes no more room than size bytes need.
func startHashing(size int64) *hashing {
	h := &hashing{full: make(chan []byte, pouring), free: make(chan []byte, pouring), sum: make(chan Hash, 1)}
	for i := int64(0); i < pouring && i*poured < size; i++ {
		h.free <- make([]byte, min(poured, size))
	}
	go func() {
		hasher := blake3.New()
		for b := range h.full {
			_, _ = hasher.Write(b) // never fails
			h.free <- b
		}
		var sum Hash
		hasher.Sum(sum[:0])
		h.sum <- sum
	}()
	return h
}

func (h *hashing) copy(ctx context.Context, w io.Writer, r io.Reader, size int64) error {
	for size > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		b := <-h.free
		b = b[:min(int64(cap(b)), size)]
		if _, err := io.ReadFull(r, b); errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		} else if err != nil {
			return err
		}
		size -= int64(len(b))
		h.full <- b
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

func (h *hashing) end() Hash {
	close(h.full)
	return <-h.sum
}

// atEnd fails unless r has no more bytes.
func atEnd(r io.Reader) error {
	var one [1]byte
	switch _, err := io.ReadFull(r, one[:]); {
	case err == nil:
		return errLonger
	case errors.Is(err, io.EOF):
		return nil
	default:
		return err
	}
}

var errLonger = errors.New("there is more than that")

// openRegular opens a regular file below root, and never waits for the other end of a pipe.
func openRegular(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	there, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, invalidFor(err, name, "it is missing")
	}
	if err != nil {
		return nil, nil, err
	}
	if !there.Mode().IsRegular() {
		return nil, nil, invalid(name, "it is no regular file, but %v", there.Mode().Type())
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	opened, err := f.Stat()
	if err == nil && (!opened.Mode().IsRegular() || !os.SameFile(there, opened)) {
		err = invalid(name, "it was replaced while it was opened")
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, opened, nil
}

// pourFile copies one file of an artifact below root to w: exactly its size, and what its hash says.
func pourFile(ctx context.Context, w io.Writer, root *os.Root, f File) error {
	file, info, err := openRegular(root, f.Path)
	if err != nil {
		return err
	}
	defer file.Close()
	if info.Size() != f.Size {
		return invalid(f.Path, "it has %d bytes, its manifest says %d", info.Size(), f.Size)
	}
	h, err := pour(ctx, w, file, f.Size)
	if err == nil {
		err = atEnd(file)
	}
	return judged(f, h, err)
}

// judged is the verdict on a file that was poured with hash h.
func judged(f File, h Hash, err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, errLonger):
		return invalidFor(err, f.Path, "it has not the %d bytes that its manifest says", f.Size)
	case err != nil:
		return fmt.Errorf("%s: %w", f.Path, err)
	case h != f.Hash:
		return invalid(f.Path, "its hash is %v, its manifest says %v", h, f.Hash)
	}
	return nil
}

// readManifest reads the manifest of the artifact in root.
func readManifest(root *os.Root) (Manifest, error) {
	f, info, err := openRegular(root, ManifestName)
	if err != nil {
		return Manifest{}, err
	}
	defer f.Close()
	if info.Size() > MaxManifest {
		return Manifest{}, invalidFor(ErrTooLarge, ManifestName, "%d bytes, the limit is %d", info.Size(), MaxManifest)
	}
	b, err := io.ReadAll(io.LimitReader(f, MaxManifest+1))
	if err != nil {
		return Manifest{}, err
	}
	return Parse(b)
}

// checkNames refuses an artifact's folder with anything in it that its manifest does not name, or that is no regular
// file, before any of it is read.
func checkNames(ctx context.Context, root *os.Root, m *Manifest) error {
	files := make(map[string]bool, len(m.Files)+1)
	files[ManifestName] = true
	for _, f := range m.Files {
		files[f.Path] = true
	}
	folders := m.folders()
	err := fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case name == ".":
		case e.IsDir() && !folders[name], !e.IsDir() && !files[name]:
			return invalid(name, "its manifest does not name it")
		case !e.IsDir() && !e.Type().IsRegular():
			return invalid(name, "it is no regular file, but %v", e.Type())
		case !e.IsDir():
			delete(files, name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for name := range files {
		return invalid(name, "it is missing")
	}
	return nil
}

// openFolder opens an artifact's folder and reads its manifest. Nothing that is reached through a link is the artifact's.
func openFolder(dir string) (*os.Root, Manifest, error) {
	switch i, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, Manifest{}, invalidFor(err, dir, "it is not there")
	case err != nil:
		return nil, Manifest{}, err
	case !i.IsDir():
		return nil, Manifest{}, invalid(dir, "it is no folder")
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, Manifest{}, err
	}
	m, err := readManifest(root)
	if err != nil {
		return nil, Manifest{}, errors.Join(err, root.Close())
	}
	return root, m, nil
}
