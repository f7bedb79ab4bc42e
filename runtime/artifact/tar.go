package artifact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// A packed artifact is a tar stream: the manifest, and each file in the manifest's order, as regular files with no owner
// and no time, so that it is a function of the artifact. It is read by comparing each header with the one that it must
// have: nothing that an archive can hold beside that gets in.
const (
	tarBlock   = 512
	tarTrailer = 2 * tarBlock
	// tarOctal is the first size that the header's octal digits can't hold.
	tarOctal = 1 << 33
)

// PackedSize is the length of the packed artifact.
func (m *Manifest) PackedSize() int64 {
	n := int64(tarBlock + tarTrailer + len(m.raw) + tarPadding(int64(len(m.raw))))
	for _, f := range m.Files {
		n += tarBlock + f.Size + int64(tarPadding(f.Size))
	}
	return n
}

func tarPadding(size int64) int { return int((tarBlock - size%tarBlock) % tarBlock) }

// tarHeader is the header of a regular file. Its name has at most MaxPath bytes.
func tarHeader(name string, size int64) []byte {
	b := make([]byte, tarBlock)
	copy(b, name)
	for _, f := range []struct {
		at   int
		text string
	}{
		{100, "0000600\x00"}, {108, "0000000\x00"}, {116, "0000000\x00"}, // mode, user, group
		{136, "00000000000\x00"},                   // time
		{148, "        "},                          // checksum, as it counts itself
		{156, "0"},                                 // a regular file
		{257, "ustar\x0000"},                       // format
		{329, "0000000\x00"}, {337, "0000000\x00"}, // device
	} {
		copy(b[f.at:], f.text)
	}
	if size < tarOctal {
		copy(b[124:], fmt.Sprintf("%011o\x00", size))
	} else {
		b[124] = 0x80 // the rest is the number in binary, as all common tars read it
		for i := range 8 {
			b[135-i] = byte(size >> (8 * i))
		}
	}
	sum := 0
	for _, c := range b {
		sum += int(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	return b
}

// Pack writes the artifact in dir, which has the manifest m, as a tar stream. The files are hashed on the way: one that
// is not what m says ends the stream with an error before its last file's end.
func Pack(ctx context.Context, dir string, m Manifest, w io.Writer) error {
	if err := pack(ctx, dir, &m, w); err != nil {
		return fmt.Errorf("pack %s: %w", dir, err)
	}
	return nil
}

func pack(ctx context.Context, dir string, m *Manifest, w io.Writer) error {
	root, there, err := openFolder(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if !bytes.Equal(there.raw, m.raw) {
		return invalid(ManifestName, "it is not the one that was to be packed")
	}
	if err := checkNames(ctx, root, m); err != nil {
		return err
	}
	err = packFile(w, ManifestName, int64(len(m.raw)), func() error { _, err := w.Write(m.raw); return err })
	for _, f := range m.Files {
		if err == nil {
			err = packFile(w, f.Path, f.Size, func() error { return pourFile(ctx, w, root, f) })
		}
	}
	if err == nil {
		_, err = w.Write(make([]byte, tarTrailer))
	}
	return err
}

func packFile(w io.Writer, name string, size int64, content func() error) error {
	if _, err := w.Write(tarHeader(name, size)); err != nil {
		return err
	}
	if err := content(); err != nil {
		return err
	}
	_, err := w.Write(make([]byte, tarPadding(size)))
	return err
}

// Unpack reads a packed artifact with the manifest m, which is trusted as far as the caller trusts its origin, and makes it
// a folder at dir, with the checks and the promises of Import. It reads r to its end.
func Unpack(ctx context.Context, r io.Reader, m Manifest, dir string, o Options) error {
	if err := (&intake{m: &m, o: &o, whole: true}).unpack(ctx, r, dir); err != nil {
		return fmt.Errorf("unpack to %s: %w", dir, told(err))
	}
	return nil
}

// ImportPacked reads a packed artifact with the manifest m, and makes its store the folder dest, as Import does, without
// the artifact on disk in between.
func ImportPacked(ctx context.Context, r io.Reader, m Manifest, dest string, o Options) error {
	if err := (&intake{m: &m, o: &o}).unpack(ctx, r, dest); err != nil {
		return fmt.Errorf("import to %s: %w", dest, told(err))
	}
	return nil
}

func (in *intake) unpack(ctx context.Context, r io.Reader, dest string) error {
	return in.run(ctx, dest, func(into *os.Root) error {
		t := tarReader{r: r}
		if err := t.file(ctx, ManifestName, int64(len(in.m.raw)), func() error { return t.manifest(in.m) }); err != nil {
			return err
		}
		for _, f := range in.m.Files {
			err := t.file(ctx, f.Path, f.Size, func() error {
				return in.take(into, f, func(w io.Writer) error {
					h, err := pour(ctx, w, t.r, f.Size)
					return judged(f, h, err)
				})
			})
			if err != nil {
				return err
			}
		}
		if err := t.zeros(tarTrailer, "the stream's end"); err != nil {
			return err
		}
		if err := atEnd(t.r); errors.Is(err, errLonger) {
			return invalidFor(err, "the stream's end", "it goes on")
		} else if err != nil {
			return err
		}
		return nil
	})
}

// tarReader reads a stream that must be the packed artifact of one manifest.
type tarReader struct{ r io.Reader }

// file reads the header that a file must have, its content by read, and the padding.
func (t *tarReader) file(ctx context.Context, name string, size int64, read func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var has [tarBlock]byte
	if err := t.full(has[:], name); err != nil {
		return err
	}
	if want := tarHeader(name, size); !bytes.Equal(has[:], want) {
		return invalid(name, "the stream has %s in its place", tarEntry(has[:]))
	}
	if err := read(); err != nil {
		return err
	}
	return t.zeros(tarPadding(size), name)
}

func (t *tarReader) manifest(m *Manifest) error {
	b := make([]byte, len(m.raw))
	if err := t.full(b, ManifestName); err != nil {
		return err
	}
	if !bytes.Equal(b, m.raw) {
		return invalid(ManifestName, "the stream has another manifest")
	}
	return nil
}

func (t *tarReader) full(b []byte, name string) error {
	_, err := io.ReadFull(t.r, b)
	return cut(err, name)
}

func (t *tarReader) zeros(n int, name string) error {
	b := make([]byte, n)
	if err := t.full(b, name); err != nil {
		return err
	}
	if len(bytes.Trim(b, "\x00")) > 0 {
		return invalid(name, "the stream has data where there must be none")
	}
	return nil
}

func cut(err error, name string) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return invalidFor(io.ErrUnexpectedEOF, name, "the stream ends too early")
	}
	return err
}

// tarEntry describes a header for people.
func tarEntry(b []byte) string {
	field := func(from, to int) string { s, _, _ := strings.Cut(string(b[from:to]), "\x00"); return s }
	return fmt.Sprintf("an entry of type %s named %q, of size %q", strconv.QuoteToASCII(field(156, 157)), field(0, 100), field(124, 136))
}
