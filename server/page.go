package server

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/reader"
)

// pageBytes is how many bytes of records make a message while more of them are at hand. A larger record is one by itself. A
// message costs as much by itself as some hundred records.
const pageBytes = 512<<10 - 128

// idlePage is the largest buffer that a read keeps which does not fill it any more.
const idlePage = 64 << 10

// pages sends the records of a read, as many in a message as are at hand. It writes their binary form as it goes, from the
// bytes of the log. A message that out sends has that as bytes which it does not know, and one that is sent directly has them as they
// are: on the wire there is no difference.
type pages struct {
	out     sender
	direct  *direct // nil is by out alone
	began   bool    // out has sent something
	binary  bool
	brief   bool          // the reader knows what follows from the record before
	buf     []byte        // room for the envelope, and records; empty when there are none
	next    nova.Position // behind the records in buf
	message novav1.ReadResponse
}

// sender is a connect.ServerStream.
type sender interface {
	Send(*novav1.ReadResponse) error
}

func pagesTo(out *connect.ServerStream[novav1.ReadResponse], direct *direct, brief bool) *pages {
	asked := out.Conn().RequestHeader()
	kind := asked.Get("Content-Type")
	if asked.Get("Connect-Accept-Encoding") != "" || asked.Get("Grpc-Accept-Encoding") != "" {
		direct = nil // the library compresses
	}
	return &pages{
		out: out, direct: direct, binary: !strings.Contains(kind, "json"), brief: brief, message: novav1.ReadResponse{Next: &novav1.Position{}},
	}
}

// Take writes records, and sends what is full. That the tail is reached is sent at once.
func (p *pages) Take(rs reader.Records) error {
	switch {
	case len(rs.Records) == 0:
		if err := p.Pause(); err != nil {
			return err
		}
		return p.out.Send(&novav1.ReadResponse{Next: &novav1.Position{SeqNum: rs.First}})
	case !p.binary:
		return p.out.Send(readResponse(rs))
	}
	for i := range rs.Records {
		r := &rs.Records[i]
		seq := rs.First + uint64(i)
		if p.plain(seq, r) {
			continue
		}
		size := recordSize(seq, r)
		if len(p.buf) > 0 && len(p.buf)+size+tagAndLength > pageBytes {
			if err := p.Pause(); err != nil {
				return err
			}
		}
		if len(p.buf) == 0 {
			p.buf = append(p.buf, make([]byte, envelope)...)
		}
		b, err := appendRecord(p.buf, size, seq, r)
		if err != nil {
			return err // what is in the buffer is whole
		}
		p.buf = b
		p.next.SeqNum, p.next.Timestamp = seq+1, r.Timestamp
	}
	return nil
}

// plain writes what nearly every record is: one without headers, whose body is neither empty nor large, that fits into the
// message and its buffer. Of any other one it reports false.
func (p *pages) plain(seq uint64, r *nova.Record) bool {
	const head = tagAndLength + 2*(1+binary.MaxVarintLen64) + 3
	n, at := len(r.Body), len(p.buf)
	if at == 0 || n == 0 || n >= 1<<14 || len(r.Headers) > 0 || at+head+n > min(cap(p.buf), pageBytes) {
		return false
	}
	follows := p.brief && at > envelope && seq == p.next.SeqNum && r.Timestamp == p.next.Timestamp
	size := 1 + protowire.SizeVarint(uint64(n)) + n
	switch {
	case follows:
	case seq == 0 || r.Timestamp == 0:
		return false
	default:
		size += 2 + protowire.SizeVarint(seq) + protowire.SizeVarint(uint64(r.Timestamp))
	}
	b := p.buf[at : at+head+n]
	b[0] = tagRecord
	i := 1 + binary.PutUvarint(b[1:], uint64(size))
	if !follows {
		b[i] = tagSeq
		i += 1 + binary.PutUvarint(b[i+1:], seq)
		b[i] = tagTimestamp
		i += 1 + binary.PutUvarint(b[i+1:], uint64(r.Timestamp))
	}
	b[i] = tagBody
	i += 1 + binary.PutUvarint(b[i+1:], uint64(n))
	i += copy(b[i:], r.Body)
	p.buf = p.buf[:at+i]
	p.next.SeqNum, p.next.Timestamp = seq+1, r.Timestamp
	return true
}

// Pause sends what was written.
func (p *pages) Pause() error {
	if len(p.buf) <= envelope {
		return nil
	}
	p.message.Next.SeqNum, p.message.Next.Timestamp = p.next.SeqNum, p.next.Timestamp
	var err error
	if p.direct != nil && p.began {
		p.message.ProtoReflect().SetUnknown(nil)
		if p.buf, err = (proto.MarshalOptions{}).MarshalAppend(p.buf, &p.message); err == nil {
			err = p.direct.write(p.buf)
		}
	} else {
		p.message.ProtoReflect().SetUnknown(p.buf[envelope:])
		p.began = true
		err = p.out.Send(&p.message)
	}
	if cap(p.buf) > idlePage && len(p.buf) < cap(p.buf)/8 {
		p.buf = nil
	}
	p.buf = p.buf[:0]
	return err
}

// end sends what was written, and where the next record is read.
func (p *pages) end(next nova.Position) error {
	if err := p.Pause(); err != nil {
		return err
	}
	return p.out.Send(&novav1.ReadResponse{Next: positionOf(next)})
}

// Fields of a message of a read, of a record, and of a header: the number and the kind of what follows.
const (
	tagRecord    = 1<<3 | 2
	tagSeq       = 1 << 3
	tagTimestamp = 2 << 3
	tagBody      = 3<<3 | 2
	tagHeader    = 4<<3 | 2
	tagName      = 1<<3 | 2
	tagValue     = 2<<3 | 2

	tagAndLength = 1 + 5
)

var errNotUTF8 = errors.New("a record has a header whose name is not UTF-8")

// recordSize is the size of a record's message, without its own tag and length.
func recordSize(seq uint64, r *nova.Record) int {
	n := 0
	if seq != 0 {
		n += 1 + protowire.SizeVarint(seq)
	}
	if r.Timestamp != 0 {
		n += 1 + protowire.SizeVarint(uint64(r.Timestamp))
	}
	if len(r.Body) > 0 {
		n += 1 + protowire.SizeBytes(len(r.Body))
	}
	for i := range r.Headers {
		n += 1 + protowire.SizeBytes(headerSize(&r.Headers[i]))
	}
	return n
}

func headerSize(h *nova.Header) int {
	n := 0
	if len(h.Name) > 0 {
		n += 1 + protowire.SizeBytes(len(h.Name))
	}
	if len(h.Value) > 0 {
		n += 1 + protowire.SizeBytes(len(h.Value))
	}
	return n
}

// appendRecord appends a record whose message has this size, as a field of ReadResponse. As everywhere in this form, what
// is zero or empty is left out.
func appendRecord(dst []byte, size int, seq uint64, r *nova.Record) ([]byte, error) {
	dst = slices.Grow(dst, tagAndLength+size)
	dst = append(dst, tagRecord)
	dst = protowire.AppendVarint(dst, uint64(size))
	if seq != 0 {
		dst = protowire.AppendVarint(append(dst, tagSeq), seq)
	}
	if r.Timestamp != 0 {
		dst = protowire.AppendVarint(append(dst, tagTimestamp), uint64(r.Timestamp))
	}
	if len(r.Body) > 0 {
		dst = protowire.AppendBytes(append(dst, tagBody), r.Body)
	}
	for i := range r.Headers {
		h := &r.Headers[i]
		if !utf8.ValidString(h.Name) {
			return dst, errNotUTF8
		}
		dst = protowire.AppendVarint(append(dst, tagHeader), uint64(headerSize(h)))
		if len(h.Name) > 0 {
			dst = protowire.AppendString(append(dst, tagName), h.Name)
		}
		if len(h.Value) > 0 {
			dst = protowire.AppendBytes(append(dst, tagValue), h.Value)
		}
	}
	return dst, nil
}

// readResponse is a message for a peer that reads another form.
func readResponse(rs reader.Records) *novav1.ReadResponse {
	out := &novav1.ReadResponse{Next: &novav1.Position{SeqNum: rs.First + uint64(len(rs.Records))}}
	for i := range rs.Records {
		rec := &rs.Records[i]
		to := &novav1.SequencedRecord{SeqNum: rs.First + uint64(i), Timestamp: rec.Timestamp, Body: rec.Body}
		for _, h := range rec.Headers {
			to.Headers = append(to.Headers, &novav1.Header{Name: h.Name, Value: h.Value})
		}
		out.Records = append(out.Records, to)
		out.Next.Timestamp = rec.Timestamp
	}
	return out
}
