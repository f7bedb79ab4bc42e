package logstore

import (
	"bufio"
	"errors"
	"hash/crc32"
	"io"

	"github.com/typedfold/fold/runtime/kv"
)

// loaded is what a file holds.
type loaded struct {
	table  table
	cursor kv.Cursor
	// base is where the base group ends, good where the last whole group does; in a format 2 file both are its size.
	base, good int64
	format     int
	torn       int64 // bytes after good
}

// load reads a file of either format. It writes nothing.
func load(path string, r io.ReaderAt, size int64) (*loaded, error) {
	head := make([]byte, min(size, headerV3Len))
	if _, err := r.ReadAt(head, 0); err != nil && !(errors.Is(err, io.EOF) && size == int64(len(head))) {
		return nil, ioError("read", path, err)
	}
	version, err := fileVersion(path, head)
	if err != nil {
		return nil, err
	}
	if version == versionV2 {
		return loadV2(path, r, size)
	}
	if string(head) != string(appendHeaderV3(nil)) {
		return nil, corrupt(path, 0, "the header does not match its checksum")
	}
	l := &loader{path: path, r: r, size: size, off: headerV3Len, out: loaded{table: newTable(), format: versionV3}}
	l.in = bufio.NewReaderSize(io.NewSectionReader(r, headerV3Len, size-headerV3Len), int(min(size, 256<<10)))
	if err := l.run(); err != nil {
		return nil, err
	}
	l.out.torn = size - l.out.good
	return &l.out, nil
}

// fileVersion is the format of the file that begins with head.
func fileVersion(path string, head []byte) (int, error) {
	if len(head) < headerV2Len {
		return 0, corrupt(path, 0, "%d bytes are too few for a header", len(head))
	}
	if string(head[:4]) != magic {
		return 0, badFormat(path, 0, "the file does not begin with %q", magic)
	}
	v := int(head[4]) | int(head[5])<<8
	if v != versionV2 && v != versionV3 {
		return 0, badFormat(path, 0, "format %d; this build reads 2 and 3", v)
	}
	return v, nil
}

// loader walks the groups of a format 3 file.
type loader struct {
	path string
	r    io.ReaderAt
	in   *bufio.Reader
	size int64
	off  int64 // of the next frame
	out  loaded

	buf    []byte     // payload of the current frame
	staged []heldPart // earlier frames of the group being read
}

// heldPart is a frame that waits for the end of its group.
type heldPart struct {
	payload []byte
	count   uint32
	off     int64
}

func (l *loader) run() error {
	kind := byte(kindBase)
	for based := false; ; {
		h, state, err := l.frame()
		if err != nil {
			return err
		}
		if state != frameWhole {
			if !based {
				return corrupt(l.path, l.off, "the file ends inside its base")
			}
			return nil
		}
		if h.kind != kind {
			return corrupt(l.path, l.off, "frame of kind %q where %q belongs", h.kind, kind)
		}
		at := l.off
		l.off += frameHeadLen + int64(h.length)
		if h.more() && based {
			l.staged = append(l.staged, heldPart{payload: append([]byte(nil), l.buf...), count: h.count, off: at})
			continue
		}
		if err := l.fold(h, at); err != nil {
			return err
		}
		if !h.more() {
			l.out.good = l.off
			if !based {
				based, kind, l.out.base = true, kindBatch, l.off
			}
		}
	}
}

// fold applies the current frame, and those of its group that were held back for it.
func (l *loader) fold(h frameHead, at int64) error {
	for _, p := range l.staged {
		if _, err := decodePayload(p.payload, p.count, false, &l.out.table); err != nil {
			return corrupt(l.path, p.off, "%v", err)
		}
	}
	l.staged = nil
	c, err := decodePayload(l.buf, h.count, !h.more(), &l.out.table)
	if err != nil {
		return corrupt(l.path, at, "%v", err)
	}
	l.out.cursor = c
	return nil
}

type frameState int

const (
	frameWhole frameState = iota
	frameTorn             // the end of the file, or what a write that was cut short leaves there
)

// frame reads the frame at l.off into l.buf.
func (l *loader) frame() (h frameHead, _ frameState, err error) {
	left := l.size - l.off
	if left < frameHeadLen {
		return h, frameTorn, nil
	}
	var head [frameHeadLen]byte
	if _, err := io.ReadFull(l.in, head[:]); err != nil {
		return h, 0, ioError("read", l.path, err)
	}
	h, ok := parseFrameHead(head[:], l.off)
	end := l.off + frameHeadLen + int64(h.length)
	if !ok {
		return l.tornOr("a frame header that does not match its checksum")
	}
	if end > l.size {
		return h, frameTorn, nil
	}
	if cap(l.buf) < int(h.length) {
		l.buf = make([]byte, h.length)
	}
	l.buf = l.buf[:h.length]
	if _, err := io.ReadFull(l.in, l.buf); err != nil {
		return h, 0, ioError("read", l.path, err)
	}
	if crc32.Checksum(l.buf, castagnoli) != h.crc {
		return l.tornOr("a frame that does not match its checksum")
	}
	return h, frameWhole, nil
}

// tornOr says that the frame at l.off was lost with the power, as the next ones may be, and refuses it when a later one
// tells that all before it was durable.
func (l *loader) tornOr(reason string) (frameHead, frameState, error) {
	was, err := l.wasSynced()
	if err != nil {
		return frameHead{}, 0, ioError("read", l.path, err)
	}
	if was {
		return frameHead{}, 0, corrupt(l.path, l.off, "%s, with data after it that was written when it was durable", reason)
	}
	return frameHead{}, frameTorn, nil
}

// wasSynced looks for the header of a frame after l.off, at any place, that says so of what is before it.
func (l *loader) wasSynced() (bool, error) {
	in := bufio.NewReaderSize(io.NewSectionReader(l.r, l.off+1, l.size-l.off-1), 64<<10)
	for at := l.off + 1; ; at++ {
		b, err := in.Peek(frameHeadLen)
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if b[17]&flagSynced != 0 && b[18] == 0 && b[19] == 0 {
			if _, ok := parseFrameHead(b, at); ok {
				return true, nil
			}
		}
		if _, err := in.Discard(1); err != nil {
			return false, err
		}
	}
}
