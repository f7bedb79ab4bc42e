package logstore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

const (
	magic     = "PGSS"
	versionV2 = 2
	versionV3 = 3

	headerV3Len  = 16
	frameHeadLen = 20
	// frameTarget is the payload after which a group goes on in another frame: it bounds what a rewrite and a load
	// hold beside the data.
	frameTarget = 1 << 20
	// maxContentType bounds what a record has beside its value, and maxRecordHead is that bound.
	maxContentType = 1 << 12
	maxRecordHead  = maxContentType + 64
	// maxPayload is the longest payload of a frame: frameTarget, one record of the largest key and value, and a cursor.
	maxPayload = frameTarget + MaxValue + maxRecordHead + MaxKey + 64

	kindBase  = 'B'
	kindBatch = 'A'
	flagMore  = 1
	// flagSynced, on the first frame of a group: all before it was durable when it was written.
	flagSynced = 2

	recPut    = 1
	recDelete = 2
	recCursor = 3
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendHeaderV3 appends the file header. A reader of format 2 that met it behind a damaged version would find the
// record type 0xF3, which it refuses.
func appendHeaderV3(dst []byte) []byte {
	n := len(dst)
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint16(dst, versionV3)
	dst = append(dst, 0, 0, 0, 0, 0xF3, 0)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[n:], castagnoli))
}

// frameHead is a decoded frame header.
type frameHead struct {
	length, crc, count uint32
	kind, flags        byte
}

func (h *frameHead) more() bool { return h.flags&flagMore != 0 }

// put writes the header of a frame at file offset off into dst, which has frameHeadLen bytes.
func (h *frameHead) put(dst []byte, off int64) {
	le := binary.LittleEndian
	le.PutUint32(dst[4:], h.length)
	le.PutUint32(dst[8:], h.crc)
	le.PutUint32(dst[12:], h.count)
	dst[16], dst[17], dst[18], dst[19] = h.kind, h.flags, 0, 0
	le.PutUint32(dst, headCRC(dst, off))
}

// parseFrameHead reads a frame header; ok is false when it is not the header of a frame at off.
func parseFrameHead(b []byte, off int64) (h frameHead, ok bool) {
	le := binary.LittleEndian
	if le.Uint32(b) != headCRC(b, off) {
		return h, false
	}
	h = frameHead{length: le.Uint32(b[4:]), crc: le.Uint32(b[8:]), count: le.Uint32(b[12:]), kind: b[16], flags: b[17]}
	ok = (h.kind == kindBase || h.kind == kindBatch) && h.flags&^(flagMore|flagSynced) == 0 && b[18] == 0 && b[19] == 0 && h.length <= maxPayload
	return h, ok
}

func headCRC(b []byte, off int64) uint32 {
	var at [8]byte
	binary.LittleEndian.PutUint64(at[:], uint64(off))
	return crc32.Update(crc32.Checksum(b[4:frameHeadLen], castagnoli), castagnoli, at[:])
}

// groupWriter encodes one group of frames and hands each frame to write, at its offset. A failed write is kept and
// ends the group.
type groupWriter struct {
	write func(b []byte, off int64) error
	buf   []byte // the frame so far, header included; reused
	off   int64  // where buf begins in the file
	count uint32
	kind  byte
	first byte // flags of the group's first frame, until it is written
	err   error
}

// begin begins a group of a kind at off. synced says that all before off is durable.
func (w *groupWriter) begin(kind byte, off int64, synced bool) {
	w.kind, w.off, w.first, w.err = kind, off, 0, nil
	if synced {
		w.first = flagSynced
	}
	w.reset()
}

func (w *groupWriter) reset() {
	w.buf = append(w.buf[:0], make([]byte, frameHeadLen)...)
	w.count = 0
}

// next makes room for another record.
func (w *groupWriter) next() {
	if len(w.buf) >= frameHeadLen+frameTarget {
		w.seal(flagMore)
	}
	w.count++
}

func (w *groupWriter) seal(flags byte) {
	if w.err == nil {
		payload := w.buf[frameHeadLen:]
		h := frameHead{length: uint32(len(payload)), crc: crc32.Checksum(payload, castagnoli), count: w.count, kind: w.kind, flags: flags | w.first}
		h.put(w.buf[:frameHeadLen], w.off)
		w.err = w.write(w.buf, w.off)
		w.off += int64(len(w.buf))
		w.first = 0
	}
	w.reset()
}

func (w *groupWriter) put(key, value []byte) {
	w.next()
	w.buf = append(appendPutHead(w.buf, len(key), len(value)), key...)
	w.buf = append(w.buf, value...)
}

func (w *groupWriter) delete(key []byte) {
	w.next()
	w.buf = binary.AppendUvarint(append(w.buf, recDelete), uint64(len(key)))
	w.buf = append(w.buf, key...)
}

func (w *groupWriter) update(u *kv.Update) {
	switch {
	case u.Op == kv.OpPut:
		w.next()
		w.buf = store.AppendKey(appendPutHead(w.buf, 1+len(u.Key), store.RecordSize(u)), store.SpaceData, u.Key)
		w.buf = store.AppendRecord(w.buf, u)
	case u.Op.Removes():
		w.next()
		w.buf = binary.AppendUvarint(append(w.buf, recDelete), uint64(1+len(u.Key)))
		w.buf = store.AppendKey(w.buf, store.SpaceData, u.Key)
	}
}

// end writes the cursor and the last frame, and returns where the group ends in the file.
func (w *groupWriter) end(c kv.Cursor) (int64, error) {
	w.next()
	w.buf = append(w.buf, recCursor, 0)
	n := len(w.buf)
	w.buf = c.AppendBytes(w.buf)
	w.buf[n-1] = byte(len(w.buf) - n)
	w.seal(0)
	if cap(w.buf) > 2*frameTarget {
		w.buf = nil
	}
	return w.off, w.err
}

func appendPutHead(dst []byte, key, value int) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(append(dst, recPut), uint64(key)), uint64(value))
}

// putSize is the encoded size of a put record: the measure of live data.
func putSize(key, value int) int64 {
	return int64(1 + uvarintLen(key) + uvarintLen(value) + key + value)
}

func uvarintLen(x int) int { return (bits.Len64(uint64(x)|1) + 6) / 7 }

// frameSink takes the records of a payload; the bytes are only borrowed.
type frameSink interface {
	put(key, value []byte)
	delete(key []byte)
}

// decodePayload reads the records of a frame whose checksum matched. last says that the group ends here, so that the
// payload must end in a cursor.
func decodePayload(b []byte, count uint32, last bool, sink frameSink) (c kv.Cursor, err error) {
	for ; count > 0; count-- {
		if len(b) == 0 {
			return c, fmt.Errorf("%d records are missing", count)
		}
		kind := b[0]
		b = b[1:]
		switch kind {
		case recPut, recDelete:
			var key, value uint64
			if key, b, err = takeUvarint(b); err == nil && kind == recPut {
				value, b, err = takeUvarint(b)
			}
			if err != nil {
				return c, err
			}
			if key == 0 || key > uint64(len(b)) || value > uint64(len(b))-key {
				return c, fmt.Errorf("key of %d and value of %d bytes in a payload with %d left", key, value, len(b))
			}
			if kind == recPut {
				sink.put(b[:key], b[key:key+value])
			} else {
				sink.delete(b[:key])
			}
			b = b[key+value:]
		case recCursor:
			if !last || count != 1 {
				return c, fmt.Errorf("a cursor before the end of its group")
			}
			if len(b) == 0 || int(b[0]) != len(b)-1 {
				return c, fmt.Errorf("a cursor that does not end its payload")
			}
			return kv.ParseCursor(b[1:])
		default:
			return c, fmt.Errorf("unknown record type %#x", kind)
		}
	}
	if last || len(b) != 0 {
		return c, fmt.Errorf("a group without a cursor, or %d bytes after the last record", len(b))
	}
	return c, nil
}

func takeUvarint(b []byte) (uint64, []byte, error) {
	x, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, fmt.Errorf("a length that is no number")
	}
	return x, b[n:], nil
}
