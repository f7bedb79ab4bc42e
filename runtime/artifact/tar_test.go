package artifact

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
	"github.com/typedfold/fold/runtime/store/pebblestore"
)

// TestPackedIsATar: other programs read it too, and it is the same whenever and wherever it is packed.
func TestPackedIsATar(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend string) {
		g := newGround(t, backend)
		dir, m := g.export(t, "artifact")
		_, b, err := packed(bounded(t), dir)
		must(t, err)
		if int64(len(b)) != m.PackedSize() {
			t.Errorf("%d bytes, not %d", len(b), m.PackedSize())
		}
		r := tar.NewReader(bytes.NewReader(b))
		for i := -1; i < len(m.Files); i++ {
			h, err := r.Next()
			must(t, err)
			f := File{Path: ManifestName, Size: int64(len(m.Bytes()))}
			if i >= 0 {
				f = m.Files[i]
			}
			if h.Name != f.Path || h.Size != f.Size || h.Typeflag != tar.TypeReg || h.Mode != 0o600 || h.Uid|h.Gid != 0 || h.Uname+h.Gname != "" || h.ModTime.Unix() != 0 || h.Format != tar.FormatUSTAR {
				t.Errorf("header %+v of %+v", h, f)
			}
			content, err := io.ReadAll(r)
			must(t, err)
			want, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(f.Path)))
			if err != nil || !bytes.Equal(content, want) {
				t.Errorf("%s differs: %v", f.Path, err)
			}
		}
		if _, err := r.Next(); err != io.EOF {
			t.Errorf("%v", err)
		}
		must(t, Unpack(bounded(t), bytes.NewReader(b), m, g.path("again"), Options{Kinds: kinds()}))
		if _, again, err := packed(bounded(t), g.path("again")); err != nil || !bytes.Equal(again, b) {
			t.Errorf("packed anew it differs: %v", err)
		}
	})
}

// TestTarHeaders: the longest name, and a size that octal digits don't hold.
func TestTarHeaders(t *testing.T) {
	name := DataName + "/" + strings.Repeat("n", MaxPath-len(DataName)-1)
	for _, size := range []int64{0, 1, tarOctal - 1, tarOctal, 1 << 50, 1<<63 - 1} {
		h, err := tar.NewReader(bytes.NewReader(tarHeader(name, size))).Next()
		if err != nil || h.Name != name || h.Size != size || h.Typeflag != tar.TypeReg {
			t.Errorf("%d: %+v, %v", size, h, err)
		}
	}
}

// entry is what a hostile stream has in the place of a file.
type entry struct {
	header  tar.Header
	content []byte
}

// entries are the entries of a packed artifact.
func entries(t *testing.T, b []byte) []entry {
	t.Helper()
	var all []entry
	r := tar.NewReader(bytes.NewReader(b))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return all
		}
		must(t, err)
		content, err := io.ReadAll(r)
		must(t, err)
		all = append(all, entry{tar.Header{Name: h.Name, Size: h.Size, Mode: h.Mode, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}, content})
	}
}

func rebuild(t *testing.T, all []entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range all {
		must(t, w.WriteHeader(&e.header))
		if e.header.Size > 0 && e.header.Typeflag == tar.TypeReg {
			_, err := w.Write(e.content)
			must(t, err)
		}
	}
	must(t, w.Close())
	return b.Bytes()
}

// largest is the number of the entry with the largest file, which is not empty, and where it begins in the stream.
func largest(m Manifest) (entry int, begins int64) {
	at := tarBlock + int64(len(m.Bytes())+tarPadding(int64(len(m.Bytes()))))
	size := int64(0)
	for i, f := range m.Files {
		if f.Size > size {
			size, entry, begins = f.Size, i+1, at
		}
		at += tarBlock + f.Size + int64(tarPadding(f.Size))
	}
	return entry, begins
}

func TestHostileStreams(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend string) {
		g := newGround(t, backend)
		dir, m := g.export(t, "artifact")
		_, good, err := packed(bounded(t), dir)
		must(t, err)
		last, begins := largest(m)
		entriesOf := func(change func(all []entry) []entry) []byte { return rebuild(t, change(entries(t, good))) }
		header := func(change func(h *tar.Header)) []byte {
			return entriesOf(func(all []entry) []entry { change(&all[last].header); return all })
		}
		edit := func(change func(b []byte) []byte) []byte { return change(bytes.Clone(good)) }
		for what, b := range map[string][]byte{
			"nothing":          {},
			"cut in a header":  good[:700],
			"cut in a file":    good[:begins+tarBlock+3],
			"cut at the end":   good[:len(good)-tarTrailer],
			"cut in the end":   good[:len(good)-1],
			"trailing data":    append(bytes.Clone(good), 'x'),
			"trailing zeros":   append(bytes.Clone(good), make([]byte, tarBlock)...),
			"a second archive": append(bytes.Clone(good), good...),
			"data in the end":  edit(func(b []byte) []byte { b[len(b)-5] = 1; return b }),
			"padding":          edit(func(b []byte) []byte { b[tarBlock+len(m.Bytes())] = 1; return b }),
			"a byte is another": edit(func(b []byte) []byte {
				b[begins+tarBlock+m.Files[last-1].Size/2] ^= 1
				return b
			}),
			"another manifest": entriesOf(func(all []entry) []entry { all[0].content[len(all[0].content)-1] = ' '; return all }),
			"no manifest":      entriesOf(func(all []entry) []entry { return all[1:] }),
			"a file less":      entriesOf(func(all []entry) []entry { return slices.Delete(all, last, last+1) }),
			"a file twice":     entriesOf(func(all []entry) []entry { return append(all, all[last]) }),
			"twice at once":    entriesOf(func(all []entry) []entry { return slices.Insert(all, last, all[last]) }),
			"a file more":      entriesOf(func(all []entry) []entry { e := all[last]; e.header.Name = "data/more"; return append(all, e) }),
			"another order":    entriesOf(func(all []entry) []entry { all[0], all[last] = all[last], all[0]; return all }),
			"a folder": entriesOf(func(all []entry) []entry {
				return append([]entry{{header: tar.Header{Name: "data/", Typeflag: tar.TypeDir, Mode: 0o700}}}, all...)
			}),
			"a global header": entriesOf(func(all []entry) []entry {
				return append([]entry{{header: tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"path": "/x"}, Format: tar.FormatPAX}}}, all...)
			}),
			"a longer file": entriesOf(func(all []entry) []entry {
				all[last].content = append(all[last].content, 0)
				all[last].header.Size++
				return all
			}),
			"a shorter file": entriesOf(func(all []entry) []entry {
				all[last].content = all[last].content[1:]
				all[last].header.Size--
				return all
			}),
			"absolute":        header(func(h *tar.Header) { h.Name = "/" + h.Name }),
			"traversal":       header(func(h *tar.Header) { h.Name = "data/../../" + h.Name }),
			"a symbolic link": header(func(h *tar.Header) { h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, "/etc/passwd", 0 }),
			"a hard link":     header(func(h *tar.Header) { h.Typeflag, h.Linkname, h.Size = tar.TypeLink, "data/x", 0 }),
			"a device":        header(func(h *tar.Header) { h.Typeflag, h.Size = tar.TypeChar, 0 }),
			"a pipe":          header(func(h *tar.Header) { h.Typeflag, h.Size = tar.TypeFifo, 0 }),
			"modes":           header(func(h *tar.Header) { h.Mode = 0o6777 }),
			"an owner":        header(func(h *tar.Header) { h.Uid = 1 }),
			"extended": header(func(h *tar.Header) {
				h.Format, h.PAXRecords = tar.FormatPAX, map[string]string{"SCHILY.xattr.user.x": "1"}
			}),
			"a long name": header(func(h *tar.Header) { h.Format, h.Name = tar.FormatGNU, strings.Repeat("n", 300) }),
			"sparse": edit(func(b []byte) []byte {
				b[begins+156] = tar.TypeGNUSparse
				return b
			}),
		} {
			t.Run(what, func(t *testing.T) {
				refused(t, g, Unpack(bounded(t), bytes.NewReader(b), m, g.path("dest"), Options{Kinds: kinds()}), nil, "")
				refused(t, g, ImportPacked(bounded(t), bytes.NewReader(b), m, g.path("dest"), Options{Kinds: kinds()}), nil, "")
			})
		}
		if same := rebuild(t, entries(t, good)); len(same) != len(good) {
			t.Errorf("the streams are made of %d bytes, the artifact packs to %d", len(same), len(good))
		}
		refused(t, g, Unpack(bounded(t), bytes.NewReader(good), Manifest{Backend: backend}, g.path("dest"), Options{Kinds: kinds()}), nil, "Parse")
		must(t, Unpack(bounded(t), bytes.NewReader(good), m, g.path("dest"), Options{Kinds: kinds()}))
	})
}

// failing is a reader or a writer that fails after some bytes.
type failing struct {
	r    io.Reader
	left int
}

var errBroken = errors.New("broken")

func (f *failing) Read(b []byte) (int, error) {
	if f.left <= 0 {
		return 0, errBroken
	}
	n, err := f.r.Read(b[:min(len(b), f.left, 700)])
	f.left -= n
	return n, err
}

func (f *failing) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, errBroken
	}
	return len(b), nil
}

// TestBrokenStreams: a stream that breaks off says nothing of its artifact, and leaves nothing.
func TestBrokenStreams(t *testing.T) {
	g := newGround(t, logstore.Backend)
	dir, m := g.export(t, "artifact")
	_, good, err := packed(bounded(t), dir)
	must(t, err)
	for at := 0; at <= len(good); at += 997 {
		err := ImportPacked(bounded(t), &failing{bytes.NewReader(good), at}, m, g.path("dest"), Options{Kinds: kinds()})
		if !errors.Is(err, errBroken) || errors.Is(err, ErrInvalid) {
			t.Fatalf("at %d: %v", at, err)
		}
		if err := Pack(bounded(t), dir, m, &failing{left: at}); !errors.Is(err, errBroken) {
			t.Fatalf("pack to %d: %v", at, err)
		}
		wantNames(t, g.dir, "artifact", "live")
	}
	ctx, cancel := context.WithCancel(bounded(t))
	cancel()
	if err := Pack(ctx, dir, m, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestPackOfAChangedFile: what is packed is what the manifest says, or the stream does not end.
func TestPackOfAChangedFile(t *testing.T) {
	g := newGround(t, pebblestore.Backend)
	dir, m := g.export(t, "artifact")
	name := filepath.Join(dir, filepath.FromSlash(m.Files[0].Path))
	b, err := os.ReadFile(name)
	must(t, err)
	b[0] ^= 1
	replaceFile(t, name, b)
	var out bytes.Buffer
	if err := Pack(bounded(t), dir, m, &out); !errors.Is(err, ErrInvalid) || int64(out.Len()) >= m.PackedSize() {
		t.Errorf("%v after %d bytes", err, out.Len())
	}
}

// FuzzImportPacked: whatever the stream is, it is refused and leaves nothing, or it is the one that the artifact packs to.
func FuzzImportPacked(f *testing.F) {
	g := newGround(f, logstore.Backend)
	dir, m := g.export(f, "artifact")
	_, good, err := packed(bounded(f), dir)
	must(f, err)
	f.Add(uint32(0), []byte{}, false)
	f.Add(uint32(156), []byte("2"), false)
	f.Add(uint32(600), []byte("xx"), true)
	f.Add(uint32(len(good)), []byte("x"), false)
	opened := 0
	k := store.Kind{Backend: logstore.Backend, Reads: logstore.Kind().Reads, Open: func(dir string) (store.Store, error) {
		opened++
		return logstore.Kind().Open(dir)
	}}
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, end bool) {
		b := bytes.Clone(good)
		at = min(at, uint32(len(b)))
		b = append(b[:at], append(bytes.Clone(patch), b[min(len(b), int(at)+len(patch)):]...)...)
		if end {
			b = b[:at]
		}
		opened = 0
		err := ImportPacked(t.Context(), bytes.NewReader(b), m, g.path("dest"), Options{Kinds: []store.Kind{k}})
		if same := bytes.Equal(b, good); same != (err == nil) || !same && opened > 0 && bytes.Equal(b[:len(good)-tarTrailer], good[:len(good)-tarTrailer]) == false {
			t.Fatalf("%v, opened %d times, of the same stream: %t", err, opened, same)
		}
		must(t, os.RemoveAll(g.path("dest")))
		wantNames(t, g.dir, "artifact", "live")
	})
}

type writeFunc func(b []byte) (int, error)

func (f writeFunc) Write(b []byte) (int, error) { return f(b) }

// TestPackOfAFileThatGrows: what is added to a file while it is read is not passed over.
func TestPackOfAFileThatGrows(t *testing.T) {
	g := newGround(t, logstore.Backend)
	dir, m := g.export(t, "artifact")
	name := filepath.Join(dir, filepath.FromSlash(m.Files[0].Path))
	grown := false
	err := Pack(bounded(t), dir, m, writeFunc(func(b []byte) (int, error) {
		if int64(len(b)) == m.Files[0].Size {
			f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
			must(t, err)
			_, err = f.WriteString("more")
			must(t, errors.Join(err, f.Close()))
			grown = true
		}
		return len(b), nil
	}))
	if !grown || !errors.Is(err, ErrInvalid) {
		t.Errorf("grown %t: %v", grown, err)
	}
}
