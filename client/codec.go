package client

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
	"github.com/typedfold/fold/gen/go/nova/v1/novav1connect"
	"github.com/typedfold/fold/internal/nova"
)

// codec is the binary form of messages. It keeps the messages of a read as they are, in pages, whose records are read one by
// one.
type codec struct{}

// Name is that of the codec which it replaces.
func (codec) Name() string { return "proto" }

func (c codec) Marshal(m any) ([]byte, error) { return c.MarshalAppend(nil, m) }

func (codec) MarshalAppend(dst []byte, m any) ([]byte, error) {
	p, ok := m.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", m)
	}
	b, err := proto.MarshalOptions{}.MarshalAppend(dst, p)
	if err != nil {
		err = invalid(fmt.Errorf("%w: %w", nova.ErrInvalid, err)) // a string that is not UTF-8: nothing is sent
	}
	return b, err
}

func (codec) Unmarshal(b []byte, m any) error {
	switch m := m.(type) {
	case *page:
		return m.of(b)
	case proto.Message:
		return proto.Unmarshal(b, m)
	}
	return fmt.Errorf("%T is no message", m)
}

// reads asks for the records of streams, and receives them in pages.
type reads = connect.Client[novav1.ReadRequest, page]

func readsOf(transport connect.HTTPClient, target string, with ...connect.ClientOption) *reads {
	method := novav1.File_nova_v1_dataplane_proto.Services().ByName("DataPlaneService").Methods().ByName("Read")
	return connect.NewClient[novav1.ReadRequest, page](transport, strings.TrimRight(target, "/")+novav1connect.DataPlaneServiceReadProcedure,
		connect.WithSchema(method), connect.WithClientOptions(with...))
}

// page is one message of a read: whole fields of it in slabs of their own, which the records that are read from them point
// into.
type page struct{ slabs [][]byte }

// slab is how many bytes of a page share an allocation: a record that is kept keeps no more than that alive.
const slab = 32 << 10

// of copies a novav1.ReadResponse into the page. One in a form that this server does not write comes by way of the library.
func (p *page) of(b []byte) error {
	if p.split(b) {
		return nil
	}
	var m novav1.ReadResponse
	if err := proto.Unmarshal(b, &m); err != nil {
		return err
	}
	m.ProtoReflect().SetUnknown(nil)
	b, err := proto.Marshal(&m)
	if err == nil && !p.split(b) {
		err = errors.New("a message of a read can't be read")
	}
	return err
}

// split copies a message in slabs of whole fields; false is one with a field that is not known, or that can't be read.
func (p *page) split(b []byte) bool {
	p.slabs = make([][]byte, 0, len(b)/(slab/2)+1)
	for n := 0; len(b) > 0; {
		var size int
		if n < len(b) {
			if _, size = field(b[n:]); size < 0 || b[n] != tagRecord && b[n] != tagNext {
				return false
			}
		}
		if n > 0 && (size == 0 || n+size > slab) {
			p.slabs = append(p.slabs, append([]byte(nil), b[:n]...)) // memory that is not cleared first
			b, n = b[n:], 0
			continue
		}
		n += size
	}
	return true
}

// each calls f with each record, which is f's from then on. It ends when f returns false. next is where the message says that the
// next record is read. What the message leaves out of a record follows from the one before: novav1.ReadRequest says how.
func (p *page) each(f func(SequencedRecord) bool) (next uint64, err error) {
	first, seq, at := true, uint64(0), int64(0)
	for _, b := range p.slabs {
		for len(b) > 0 {
			inner, size := field(b)
			if b[0] == tagRecord {
				var r SequencedRecord
				if err := r.of(inner); err != nil {
					return next, err
				}
				if !first && r.SeqNum == 0 {
					r.SeqNum = seq + 1
				}
				if !first && r.Timestamp == 0 {
					r.Timestamp = at
				}
				if first, seq, at = false, r.SeqNum, r.Timestamp; !f(r) {
					return next, nil
				}
			} else if next, err = position(inner, next); err != nil {
				return next, err
			}
			b = b[size:]
		}
	}
	return next, nil
}

// position is the number in a novav1.Position, or what it was.
func position(b []byte, was uint64) (uint64, error) {
	p := novav1.Position{SeqNum: was}
	err := proto.UnmarshalOptions{Merge: true}.Unmarshal(b, &p)
	return p.GetSeqNum(), err
}

// of reads a novav1.SequencedRecord into r, which is empty, and keeps b. One in a form that this server does not write is read
// by the library.
func (r *SequencedRecord) of(b []byte) error {
	if r.read(b) {
		return nil
	}
	var m novav1.SequencedRecord
	if err := proto.Unmarshal(b, &m); err != nil {
		return err
	}
	*r = SequencedRecord{SeqNum: m.GetSeqNum(), Timestamp: m.GetTimestamp(), Record: Record{Body: slices.Clip(m.GetBody())}}
	for _, h := range m.GetHeaders() {
		r.Headers = append(r.Headers, Header{Name: h.GetName(), Value: slices.Clip(h.GetValue())})
	}
	return nil
}

// Fields of a message of a read, of a record, of a header, and of a position: the number and the kind of what follows.
const (
	tagRecord    = 1<<3 | 2
	tagNext      = 2<<3 | 2
	tagSeq       = 1 << 3
	tagTimestamp = 2 << 3
	tagBody      = 3<<3 | 2
	tagHeader    = 4<<3 | 2
	tagName      = 1<<3 | 2
	tagValue     = 2<<3 | 2
)

// field is the value of the field that b begins with, whose tag has one byte and whose kind is bytes, and the size of both; -1
// is none.
func field(b []byte) (value []byte, size int) {
	if len(b) < 2 {
		return nil, -1
	}
	n, head := uint64(b[1]), 2
	if n >= 0x80 {
		var m int
		if n, m = protowire.ConsumeVarint(b[1:]); m < 0 {
			return nil, -1
		}
		head = 1 + m
	}
	if n > uint64(len(b)-head) {
		return nil, -1
	}
	end := head + int(n)
	return b[head:end:end], end
}

// number is field for a number.
func number(b []byte) (value uint64, size int) {
	if len(b) > 1 && b[1] < 0x80 {
		return uint64(b[1]), 2
	}
	v, n := protowire.ConsumeVarint(b[1:])
	if n < 0 {
		return 0, -1
	}
	return v, 1 + n
}

// read reads a record; false is one with a field that is not known, that can't be read, or whose tag has another form than the
// shortest one.
func (r *SequencedRecord) read(b []byte) bool {
	for len(b) > 0 {
		var size int
		var inner []byte
		switch b[0] {
		case tagSeq:
			r.SeqNum, size = number(b)
		case tagTimestamp:
			var v uint64
			v, size = number(b)
			r.Timestamp = int64(v)
		case tagBody:
			r.Body, size = field(b)
		case tagHeader:
			if inner, size = field(b); size >= 0 {
				h, ok := readHeader(inner)
				if !ok {
					return false
				}
				r.Headers = append(r.Headers, h)
			}
		default:
			return false
		}
		if size < 0 {
			return false
		}
		b = b[size:]
	}
	return true
}

// readHeader reads one header. It keeps b.
func readHeader(b []byte) (h Header, ok bool) {
	for len(b) > 0 {
		value, size := field(b)
		switch {
		case size < 0:
			return h, false
		case b[0] == tagName && utf8.Valid(value):
			h.Name = string(value)
		case b[0] == tagValue:
			h.Value = value
		default:
			return h, false
		}
		b = b[size:]
	}
	return h, true
}
