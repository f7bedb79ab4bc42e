// Package frame is how records lie in the log of a stream: one message of the log is one frame, which holds the batches
// that were admitted together, and the whole state of the stream before them.
package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/typedfold/fold/internal/nova"
)

// ErrCorrupt is bytes that no writer of this format leaves.
var ErrCorrupt = errors.New("corrupt frame")

// ErrVersion is a frame of a later format.
var ErrVersion = errors.New("frame of an unknown version")

const version = 1

// State is what a leader must know to go on after a frame. Each frame carries the one before its batches; Frame.After is
// the one behind them.
type State struct {
	// Next is the number of the next record.
	Next uint64
	// Token is the installed fencing token, Fence the number of the fence that installed it; 0 before any.
	Token string
	Fence uint64
	// Timestamp is that of the last record, in milliseconds of Unix time.
	Timestamp int64
}

// Position is the tail at the state: the next record's number, and the last one's time.
func (s State) Position() nova.Position {
	return nova.Position{SeqNum: s.Next, Timestamp: s.Timestamp}
}

// Batch is one admitted batch.
type Batch struct {
	// Token is what its writer presented. It is kept beside the installed one, so that the log itself tells whether a
	// writer was admitted that should not have been.
	Token string
	// HasMatch and Match are the number that the writer asked for.
	HasMatch bool
	Match    uint64
	Records  []nova.Record
}

// Frame is one message of the log.
type Frame struct {
	// Epoch is that of the leader that wrote it.
	Epoch uint64
	// State is as of the frame's first record. A fence frame has no batches, and carries the new token.
	State   State
	Batches []Batch
}

// Count is the number of records.
func (f *Frame) Count() uint64 {
	n := uint64(0)
	for i := range f.Batches {
		n += uint64(len(f.Batches[i].Records))
	}
	return n
}

// After is the state behind the frame.
func (f *Frame) After() State {
	s := f.State
	s.Next += f.Count()
	if len(f.Batches) > 0 {
		records := f.Batches[len(f.Batches)-1].Records
		s.Timestamp = records[len(records)-1].Timestamp
	}
	return s
}

const (
	flagToken = 1 << iota // the batch's token is not the frame's
	flagMatch
)

// Head is the length of the largest head that AppendHead writes.
const Head = 1 + 4*binary.MaxVarintLen64 + 1 + nova.MaxTokenBytes

// AppendHead appends what stands before the batches.
func AppendHead(dst []byte, epoch uint64, s State) []byte {
	dst = append(dst, version)
	dst = binary.AppendUvarint(dst, epoch)
	dst = binary.AppendUvarint(dst, s.Next)
	dst = binary.AppendUvarint(dst, s.Fence)
	dst = binary.AppendUvarint(dst, uint64(s.Timestamp))
	dst = append(dst, byte(len(s.Token)))
	return append(dst, s.Token...)
}

// BatchSize is at least as many bytes as AppendBatch needs for the batch.
func BatchSize(b *Batch) int {
	n := 1 + 1 + len(b.Token) + 2*binary.MaxVarintLen64
	for i := range b.Records {
		r := &b.Records[i]
		n += binary.MaxVarintLen64 + uvarint(len(r.Headers)) + uvarint(len(r.Body)) + len(r.Body)
		for j := range r.Headers {
			h := &r.Headers[j]
			n += uvarint(len(h.Name)) + len(h.Name) + uvarint(len(h.Value)) + len(h.Value)
		}
	}
	return n
}

// AppendBatch appends one batch of a frame with this installed token, whose records' timestamps do not fall below last.
func AppendBatch(dst []byte, b *Batch, installed string, last int64) []byte {
	flags := byte(0)
	if b.Token != installed {
		flags |= flagToken
	}
	if b.HasMatch {
		flags |= flagMatch
	}
	dst = append(dst, flags)
	if flags&flagToken != 0 {
		dst = append(dst, byte(len(b.Token)))
		dst = append(dst, b.Token...)
	}
	if b.HasMatch {
		dst = binary.AppendUvarint(dst, b.Match)
	}
	dst = binary.AppendUvarint(dst, uint64(len(b.Records)))
	for i := range b.Records {
		r := &b.Records[i]
		dst = binary.AppendUvarint(dst, uint64(r.Timestamp-last))
		last = r.Timestamp
		dst = binary.AppendUvarint(dst, uint64(len(r.Headers)))
		for j := range r.Headers {
			dst = binary.AppendUvarint(dst, uint64(len(r.Headers[j].Name)))
			dst = append(dst, r.Headers[j].Name...)
			dst = binary.AppendUvarint(dst, uint64(len(r.Headers[j].Value)))
			dst = append(dst, r.Headers[j].Value...)
		}
		dst = binary.AppendUvarint(dst, uint64(len(r.Body)))
		dst = append(dst, r.Body...)
	}
	return dst
}

// Append appends the whole frame.
func Append(dst []byte, f *Frame) []byte {
	dst = AppendHead(dst, f.Epoch, f.State)
	last := f.State.Timestamp
	for i := range f.Batches {
		b := &f.Batches[i]
		dst = AppendBatch(dst, b, f.State.Token, last)
		last = b.Records[len(b.Records)-1].Timestamp
	}
	return dst
}

// ParseHead reads the epoch and the state of a frame, and none of its batches.
func ParseHead(b []byte) (epoch uint64, s State, err error) {
	r := reader{b: b}
	epoch, s = r.head()
	return epoch, s, r.err
}

// Parse reads a whole frame. Bodies and header values alias b.
func Parse(b []byte) (Frame, error) {
	r := reader{b: b}
	var f Frame
	f.Epoch, f.State = r.head()
	last, next := f.State.Timestamp, f.State.Next
	for r.err == nil && len(r.b) > 0 {
		batch, n := r.batchHead(f.State.Token, next)
		batch.Records = make([]nova.Record, n)
		for i := range batch.Records {
			last = r.record(&batch.Records[i], last)
		}
		f.Batches = append(f.Batches, batch)
		next += uint64(n)
	}
	if r.err != nil {
		return Frame{}, r.err
	}
	return f, nil
}

// reader consumes b; after the first error it gives zero values.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s, %d bytes before the end", ErrCorrupt, what, len(r.b))
	}
	r.b = nil
}

func (r *reader) byte(what string) byte {
	if len(r.b) == 0 {
		r.fail(what)
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

// uvarint reads a number in its shortest form: equal frames have equal bytes.
func (r *reader) uvarint(what string) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || n > 1 && r.b[n-1] == 0 {
		r.fail(what)
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) bytes(n uint64, what string) []byte {
	if n > uint64(len(r.b)) {
		r.fail(what)
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) token(what string) string {
	n := r.byte(what)
	token := string(r.bytes(uint64(n), what))
	if r.err == nil && nova.CheckToken(token) != nil {
		r.fail(what)
	}
	return token
}

func (r *reader) time(what string, last int64) int64 {
	d := r.uvarint(what)
	if d > uint64(math.MaxInt64-last) {
		r.fail(what)
		return last
	}
	return last + int64(d)
}

func (r *reader) head() (epoch uint64, s State) {
	if v := r.byte("version"); r.err == nil && v != version {
		r.err = fmt.Errorf("%w: %d, this build reads %d", ErrVersion, v, version)
		r.b = nil
	}
	epoch = r.uvarint("epoch")
	s.Next = r.uvarint("number")
	s.Fence = r.uvarint("fence")
	s.Timestamp = r.time("time", 0)
	s.Token = r.token("token")
	return epoch, s
}

// batchHead reads what stands before the records of a batch, the first of which has number next, and how many there are.
func (r *reader) batchHead(installed string, next uint64) (b Batch, n int) {
	b.Token = installed
	flags := r.byte("flags")
	if flags&^(flagToken|flagMatch) != 0 {
		r.fail("flags")
	}
	if flags&flagToken != 0 {
		if b.Token = r.token("presented token"); b.Token == installed {
			r.fail("presented token")
		}
	}
	if flags&flagMatch != 0 {
		b.HasMatch, b.Match = true, r.uvarint("match")
	}
	count := r.uvarint("number of records")
	switch {
	case count == 0 || count > nova.MaxBatchRecords:
		r.fail("number of records")
	case next > math.MaxUint64-count:
		r.fail("record numbers overflow")
	}
	if r.err != nil {
		return Batch{}, 0
	}
	return b, int(count)
}

// record reads one record, which is no earlier than last, and its time.
func (r *reader) record(rec *nova.Record, last int64) int64 {
	if r.plain(rec, last) {
		return last
	}
	return r.any(rec, last)
}

// plain reads what nearly every record is: one of the time of the one before, without headers, of less than 16 KiB. Of
// any other one it reports false, and has read nothing.
func (r *reader) plain(rec *nova.Record, last int64) bool {
	b := r.b
	if len(b) < 4 || b[0] != 0 || b[1] != 0 {
		return false
	}
	n, head := int(b[2]), 3
	if n >= 0x80 {
		if n, head = n&0x7f|int(b[3])<<7, 4; b[3] == 0 || b[3] >= 0x80 {
			return false
		}
	}
	if n > len(b)-head {
		return false
	}
	rec.Timestamp, rec.Headers, rec.Body = last, nil, b[head:head+n:head+n]
	r.b = b[head+n:]
	return true
}

func (r *reader) any(rec *nova.Record, last int64) int64 {
	*rec = nova.Record{}
	rec.Timestamp = r.time("time of a record", last)
	headers := r.uvarint("number of headers")
	if headers > uint64(len(r.b)) {
		r.fail("number of headers")
	}
	if headers > 0 && r.err == nil {
		rec.Headers = make([]nova.Header, headers)
		for i := range rec.Headers {
			h := &rec.Headers[i]
			h.Name = string(r.bytes(r.uvarint("header name"), "header name"))
			h.Value = r.bytes(r.uvarint("header value"), "header value")
		}
	}
	rec.Body = r.bytes(r.uvarint("body"), "body")
	return rec.Timestamp
}
