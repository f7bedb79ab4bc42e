package logstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

const (
	headerV2Len = 6
	// recordV2Min is the shortest record of format 2: checksum, type, and the length of a cursor without bytes.
	recordV2Min = 6
)

// EntryV2 is one live key of a format 2 file.
type EntryV2 struct {
	Key     string
	Value   []byte
	Version kv.Version
}

// FileV2 is what a format 2 file adds up to.
type FileV2 struct {
	// Entries are the live keys, sorted by their bytes.
	Entries []EntryV2
	Cursor  kv.Cursor
	// Compact: no key and no cursor was written twice, nothing was deleted, and the file ends cleanly.
	Compact bool
	// Torn is how many bytes at the end belong to a record that was cut short, and count for nothing.
	Torn int64
}

// ReadV2 reads a format 2 file, as it is, and writes nothing. A value of more than MaxValue, a checksum that does not
// match before the end, and zeros before other data are store.ErrCorrupt; another version or an unknown record type is
// store.ErrFormat. Lengths are not checksummed by themselves in this format: one that was damaged and points past the
// end reads as a torn tail.
func ReadV2(path string) (*FileV2, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, ioError("read", path, err)
	}
	return parseV2(path, b)
}

// parseV2 reads the bytes of a format 2 file. The values alias b.
func parseV2(path string, b []byte) (*FileV2, error) {
	version, err := fileVersion(path, b)
	if err != nil {
		return nil, err
	}
	if version != versionV2 {
		return nil, badFormat(path, 0, "format %d where 2 is needed", version)
	}
	p := parserV2{path: path, b: b, off: headerV2Len, keys: map[string]EntryV2{}}
	f := &FileV2{Compact: true}
	cursors := 0
	for {
		rec, ok, err := p.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		switch rec.kind {
		case recPut:
			if _, again := p.keys[rec.Key]; again {
				f.Compact = false
			}
			p.keys[rec.Key] = rec.EntryV2
		case recDelete:
			f.Compact = false
			delete(p.keys, rec.Key)
		case recCursor:
			f.Cursor = rec.cursor
			cursors++
		}
	}
	f.Torn = int64(len(b) - p.off)
	f.Compact = f.Compact && cursors <= 1 && f.Torn == 0
	f.Entries = make([]EntryV2, 0, len(p.keys))
	for _, e := range p.keys {
		f.Entries = append(f.Entries, e)
	}
	slices.SortFunc(f.Entries, func(a, b EntryV2) int { return strings.Compare(a.Key, b.Key) })
	return f, nil
}

type parserV2 struct {
	path string
	b    []byte
	off  int // of the next record
	keys map[string]EntryV2
}

type recordV2 struct {
	EntryV2
	kind   byte
	cursor kv.Cursor
}

// next reads a record; ok is false at the end or at a torn tail, where off stays at its beginning.
func (p *parserV2) next() (rec recordV2, ok bool, err error) {
	b := p.b[p.off:]
	if len(b) < recordV2Min {
		return rec, false, nil
	}
	sum := binary.LittleEndian.Uint32(b)
	rec.kind = b[4]
	if sum == 0 && rec.kind == 0 {
		if len(bytes.Trim(b, "\x00")) == 0 {
			return rec, false, nil
		}
		return rec, false, corrupt(p.path, int64(p.off), "a hole of zeros with data after it")
	}
	in := fieldsV2{b: b[5:]}
	var version, cursor []byte
	switch rec.kind {
	case recPut:
		rec.Key = string(in.take(in.number(2)))
		size := in.number(4)
		if size > MaxValue {
			return rec, false, corrupt(p.path, int64(p.off), "a value of %d bytes, the limit is %d", size, MaxValue)
		}
		rec.Value = in.take(size)
		version = in.take(in.number(1))
	case recDelete:
		rec.Key = string(in.take(in.number(2)))
		version = in.take(in.number(1))
	case recCursor:
		cursor = in.take(in.number(1))
	default:
		return rec, false, badFormat(p.path, int64(p.off), "unknown record type %#x", rec.kind)
	}
	if in.short {
		return rec, false, nil
	}
	n := len(b) - len(in.b)
	if crc32.ChecksumIEEE(b[4:n]) != sum {
		if len(in.b) < recordV2Min {
			return rec, false, nil
		}
		return rec, false, corrupt(p.path, int64(p.off), "a record that does not match its checksum, with data after it")
	}
	if rec.Version, err = kv.ParseVersion(version); err == nil {
		rec.cursor, err = kv.ParseCursor(cursor)
	}
	if err == nil && strings.Contains(rec.Key, "\x00") {
		err = errors.New("a key with a zero byte")
	}
	if err != nil {
		return rec, false, corrupt(p.path, int64(p.off), "%v", err)
	}
	p.off += n
	return rec, true, nil
}

// fieldsV2 takes fields off a record; short is set, for good, by one that goes past the end of the file.
type fieldsV2 struct {
	b     []byte
	short bool
}

func (f *fieldsV2) take(n int) []byte {
	if f.short || n > len(f.b) {
		f.short = true
		return nil
	}
	b := f.b[:n:n]
	f.b = f.b[n:]
	return b
}

func (f *fieldsV2) number(size int) int {
	n := 0
	for i, c := range f.take(size) {
		n |= int(c) << (8 * i)
	}
	return n
}

// loadV2 reads a format 2 file into a table. Nothing of it is owed a truncation: the first write replaces the file.
func loadV2(path string, r io.ReaderAt, size int64) (*loaded, error) {
	b := make([]byte, size)
	if n, err := r.ReadAt(b, 0); err != nil && !(errors.Is(err, io.EOF) && n == len(b)) {
		return nil, ioError("read", path, err)
	}
	f, err := parseV2(path, b)
	if err != nil {
		return nil, err
	}
	out := &loaded{table: f.table(), cursor: f.Cursor, base: size, good: size, format: versionV2, torn: f.Torn}
	return out, nil
}

func (f *FileV2) table() table {
	t := newTable()
	b := store.Batch{Updates: make([]kv.Update, 0, len(f.Entries))}
	for _, e := range f.Entries {
		b.Updates = append(b.Updates, kv.Update{Key: e.Key, Value: e.Value, Version: e.Version, Op: kv.OpPut})
	}
	t.batch(&b)
	return t
}

// ImportV2 writes what the format 2 file src holds as a new store at dst, which must not exist. src is only read.
func ImportV2(src, dst string) error {
	f, err := ReadV2(src)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(dst); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("logstore: import to %s: %w", dst, errors.Join(os.ErrExist, err))
	}
	w := rewriter{fs: osFS{}, path: dst}
	if err := makeDir(w.fs, filepath.Dir(dst)); err != nil {
		return ioError("create the directory of", dst, err)
	}
	lock, err := w.fs.Lock(dst + lockSuffix)
	if err != nil {
		return fmt.Errorf("logstore: import to %s: %w", dst, err)
	}
	defer lock.Close()
	t := f.table()
	file, _, err := w.run(context.Background(), t.tree, f.Cursor)
	return closeFile(file, err)
}

// WriteV2 writes f as a compacted format 2 file: the header, a put for each entry in the order of Entries, and the
// cursor. The file appears under path only when it is whole and synced, and replaces one that was there.
func (f *FileV2) WriteV2(path string) error {
	w := rewriter{fs: osFS{}, path: path}
	file, err := w.replace(f.appendTo)
	if file == nil {
		return err
	}
	return closeFile(file.File, err)
}

func (f *FileV2) appendTo(out *appendFile) error {
	buf := binary.LittleEndian.AppendUint16([]byte(magic), versionV2)
	for i := range f.Entries {
		e := &f.Entries[i]
		if len(e.Key) > MaxKey {
			return &SizeError{Key: e.Key, What: "key", Size: len(e.Key), Limit: MaxKey}
		}
		if len(e.Value) > MaxValue {
			return &SizeError{Key: e.Key, What: "value", Size: len(e.Value), Limit: MaxValue}
		}
		buf = appendPutV2(buf, e)
		if len(buf) >= frameTarget {
			if err := out.write(buf); err != nil {
				return err
			}
			buf = buf[:0]
		}
	}
	return out.write(appendCursorV2(buf, f.Cursor))
}

func appendPutV2(dst []byte, e *EntryV2) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0, recPut)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(e.Key)))
	dst = append(dst, e.Key...)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(e.Value)))
	dst = append(dst, e.Value...)
	dst = append(dst, byte(e.Version.Len()))
	dst = e.Version.AppendBytes(dst)
	return sumV2(dst, at)
}

func appendCursorV2(dst []byte, c kv.Cursor) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0, recCursor, 0)
	dst = c.AppendBytes(dst)
	dst[at+5] = byte(len(dst) - at - 6)
	return sumV2(dst, at)
}

// sumV2 fills in the checksum of the record that begins at at.
func sumV2(dst []byte, at int) []byte {
	binary.LittleEndian.PutUint32(dst[at:], crc32.ChecksumIEEE(dst[at+4:]))
	return dst
}

// ExportV2 writes the fold as a compacted format 2 file at path: keys in the order of their bytes, then the cursor, so
// that equal folds give equal files. Format 2 has no place for a record's time, content type and rejected mark, nor for
// what lies outside store.SpaceData: they are left out. Apply may run meanwhile; the file is of one moment. It replaces
// a file that was at path, which must not be a store that is open.
func (s *Store) ExportV2(path string) error {
	if own, err := samePath(path, s.path); err != nil || own {
		return fmt.Errorf("logstore: export to %s: the store's own file: %w", path, errors.Join(os.ErrExist, err))
	}
	v, err := s.view()
	if err != nil {
		return err
	}
	f := &FileV2{Cursor: v.cursor}
	v.tree.Ascend(probe([]byte{byte(store.SpaceData)}), func(e entry) bool {
		if e.key()[0] != byte(store.SpaceData) {
			return false
		}
		var r store.Record
		if r, err = store.ParseRecord(e.value()); err != nil {
			err = fmt.Errorf("logstore: export %q: %w", store.NATSKey(e.key()), err)
			return false
		}
		f.Entries = append(f.Entries, EntryV2{Key: store.NATSKey(e.key()), Value: r.Value, Version: r.Version})
		return true
	})
	if err != nil {
		return err
	}
	slices.SortFunc(f.Entries, func(a, b EntryV2) int { return strings.Compare(a.Key, b.Key) })
	return f.WriteV2(path)
}

func samePath(a, b string) (bool, error) {
	a, err := filepath.Abs(a)
	if err != nil {
		return false, err
	}
	b, err = filepath.Abs(b)
	return a == b, err
}
