package repair

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/typedfold/fold/runtime/kv"
)

// spillBytes is what a spill, or the writer of a sorter's run, holds in memory before it goes to its file.
const spillBytes = 64 << 10

// errScratch: a scratch file does not hold what was written to it.
var errScratch = errors.New("scratch file corrupt")

var scratchSums = crc32.MakeTable(crc32.Castagnoli)

// scratchFile is a temporary file that is written from front to back, and read anywhere. Where the system allows it the
// file has no name any more, so that not even a crash leaves it behind.
type scratchFile struct {
	f     *os.File
	size  int64
	named bool
}

func newScratchFile(dir string) (*scratchFile, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("scratch folder: %w", err)
	}
	f, err := os.CreateTemp(dir, "fold-repair-*.tmp")
	if err != nil {
		return nil, fmt.Errorf("scratch file: %w", err)
	}
	return &scratchFile{f: f, named: os.Remove(f.Name()) != nil}, nil
}

func (s *scratchFile) write(p []byte) error {
	n, err := s.f.Write(p)
	s.size += int64(n)
	if err != nil {
		return fmt.Errorf("scratch file: %w", err)
	}
	return nil
}

func (s *scratchFile) close() error {
	if s == nil {
		return nil
	}
	err := s.f.Close()
	if s.named {
		err = errors.Join(err, os.Remove(s.f.Name()))
	}
	return err
}

// scratchHead is the fixed part of a record: flags, the version's length, a time.
const scratchHead = 2 + 8

// appendScratch appends one record: its length, the fixed part, the version's bytes, the key, and a checksum of all but
// the length.
func appendScratch(dst, key []byte, v kv.Version, nano int64, flags byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(scratchHead+v.Len()+len(key)))
	n := len(dst)
	dst = binary.LittleEndian.AppendUint64(append(dst, flags, byte(v.Len())), uint64(nano))
	dst = append(v.AppendBytes(dst), key...)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[n:], scratchSums))
}

// scratchReader reads records in the order in which they were written. key is valid until the next call.
type scratchReader struct {
	r    *bufio.Reader
	left uint64
	body []byte

	key     []byte
	version kv.Version
	nano    int64
	flags   byte
	err     error
}

func newScratchReader(at io.ReaderAt, from, to int64, buffer int) *scratchReader {
	return &scratchReader{r: bufio.NewReaderSize(io.NewSectionReader(at, from, to-from), buffer), left: uint64(to - from)}
}

// next moves to the next record; false at the end or on an error.
func (r *scratchReader) next() bool {
	if r.err != nil || r.left == 0 {
		return false
	}
	if err := r.read(); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: it ends early", errScratch)
		}
		r.err = fmt.Errorf("read back: %w", err)
		return false
	}
	return true
}

func (r *scratchReader) read() error {
	size, err := binary.ReadUvarint(r.r)
	if err != nil {
		return err
	}
	all := uint64(uvarintLen(size)) + size + 4
	if size < scratchHead || size > r.left || all > r.left {
		return fmt.Errorf("%w: record of %d bytes, %d are left", errScratch, size, r.left)
	}
	r.left -= all
	if n := int(size) + 4; cap(r.body) < n {
		r.body = make([]byte, 2*n)
	}
	b := r.body[:size+4]
	if _, err := io.ReadFull(r.r, b); err != nil {
		return err
	}
	if sum := binary.LittleEndian.Uint32(b[size:]); sum != crc32.Checksum(b[:size], scratchSums) {
		return fmt.Errorf("%w: checksum", errScratch)
	}
	b = b[:size]
	n := scratchHead + int(b[1])
	if n > len(b) {
		return fmt.Errorf("%w: version of %d bytes", errScratch, n)
	}
	if r.version, err = kv.ParseVersion(b[scratchHead:n]); err != nil {
		return fmt.Errorf("%w: %w", errScratch, err)
	}
	r.nano = int64(binary.LittleEndian.Uint64(b[2:]))
	r.flags, r.key = b[0], b[n:]
	return nil
}

func uvarintLen(x uint64) int {
	return len(binary.AppendUvarint(make([]byte, 0, binary.MaxVarintLen64), x))
}

// spill is a sequence of keys, each with a version and flags, that is written once and read back in order, any number of
// times. A short one stays in memory, a longer one is in a file of the scratch folder, of which spillBytes are held.
// Close it.
type spill struct {
	dir    string
	held   []byte
	file   *scratchFile
	n      uint64
	sealed bool
}

func newSpill(dir string) *spill { return &spill{dir: dir} }

// add appends a key; the spill keeps none of its bytes. Nothing is added after the first read.
func (s *spill) add(key []byte, v kv.Version, flags byte) error {
	if s.sealed {
		return errors.New("spill: add after read")
	}
	s.held = appendScratch(s.held, key, v, 0, flags)
	s.n++
	if len(s.held) < spillBytes {
		return nil
	}
	return s.flush()
}

func (s *spill) flush() error {
	if s.file == nil {
		f, err := newScratchFile(s.dir)
		if err != nil {
			return err
		}
		s.file = f
	}
	err := s.file.write(s.held)
	s.held = s.held[:0]
	return err
}

// len is how many keys were added.
func (s *spill) len() uint64 { return s.n }

// read begins at the first key. Readers are independent of each other, and end with the spill's close.
func (s *spill) read() (*scratchReader, error) {
	if !s.sealed && s.file != nil && len(s.held) > 0 {
		if err := s.flush(); err != nil {
			return nil, err
		}
	}
	s.sealed = true
	if s.file == nil {
		return newScratchReader(bytes.NewReader(s.held), 0, int64(len(s.held)), 512), nil
	}
	return newScratchReader(s.file.f, 0, s.file.size, spillBytes), nil
}

// close removes the file. It may be called more than once.
func (s *spill) close() error {
	if s == nil {
		return nil
	}
	f := s.file
	s.file, s.held, s.sealed = nil, nil, true
	return f.close()
}
