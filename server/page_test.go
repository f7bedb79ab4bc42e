package server

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/reader"
)

// FuzzAppendRecord: a record that is written by hand is what the library writes, byte by byte, or neither writes it.
func FuzzAppendRecord(f *testing.F) {
	f.Add(uint64(0), int64(0), []byte(nil), "", []byte(nil), 0)
	f.Add(uint64(127), int64(1), []byte("body"), "name", []byte("value"), 1)
	f.Add(uint64(1)<<63, int64(1790000000000), bytes.Repeat([]byte("b"), 300), "", []byte{}, 3)
	f.Add(uint64(1), int64(-1), []byte{}, "\xff", []byte("v"), 2)
	f.Fuzz(func(t *testing.T, seq uint64, at int64, body []byte, name string, value []byte, headers int) {
		r := nova.Record{Body: body, Timestamp: at}
		want := &novav1.SequencedRecord{SeqNum: seq, Timestamp: at, Body: body}
		for range headers & 7 {
			r.Headers = append(r.Headers, nova.Header{Name: name, Value: value})
			want.Headers = append(want.Headers, &novav1.Header{Name: name, Value: value})
		}
		wire, wantErr := proto.MarshalOptions{Deterministic: true}.Marshal(&novav1.ReadResponse{Records: []*novav1.SequencedRecord{want}})
		size := recordSize(seq, &r)
		got, err := appendRecord(nil, size, seq, &r)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%v, the library says %v", err, wantErr)
		}
		if err == nil && !bytes.Equal(got, wire) {
			t.Fatalf("wrote\n%x, the library\n%x", got, wire)
		}
		p := &pages{buf: make([]byte, 3, 100+len(body))}
		if p.plain(seq, &r) && (err != nil || !bytes.Equal(p.buf[3:], wire) || p.next.SeqNum != seq+1 || p.next.Timestamp != at) {
			t.Fatalf("wrote\n%x, the library\n%x", p.buf[3:], wire)
		}
	})
}

// sent are the messages that pages sent, by way of the library or directly.
type sent struct {
	http.ResponseWriter
	messages []*novav1.ReadResponse
	bytes    []int
	directly int
	flushed  int
}

func (s *sent) Send(m *novav1.ReadResponse) error {
	b, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	return s.message(b)
}

func (s *sent) message(b []byte) error {
	own := &novav1.ReadResponse{}
	s.messages, s.bytes = append(s.messages, own), append(s.bytes, len(b))
	return proto.Unmarshal(b, own)
}

// Write takes one message in its envelope.
func (s *sent) Write(b []byte) (int, error) {
	if len(b) < envelope || b[0] != 0 || int(binary.BigEndian.Uint32(b[1:])) != len(b)-envelope {
		return 0, fmt.Errorf("%d bytes that are no message: %x", len(b), b[:min(len(b), envelope)])
	}
	s.directly++
	return len(b), s.message(b[envelope:])
}

func (s *sent) Flush() { s.flushed++ }

// pages are those that send to s.
func (s *sent) pages(directly bool) *pages {
	p := &pages{out: s, binary: true, message: novav1.ReadResponse{Next: &novav1.Position{}}}
	if directly {
		p.direct = &direct{w: s, c: http.NewResponseController(s)}
	}
	return p
}

func recordsFrom(first, n, size int) reader.Records {
	rs := reader.Records{First: uint64(first)}
	for i := range n {
		rs.Records = append(rs.Records, nova.Record{Body: bytes.Repeat([]byte{byte(i)}, size), Timestamp: int64(1000 + first + i)})
	}
	return rs
}

// TestPages: what is at hand is sent together, up to a bound; a pause sends what there is, and the tail is told at once.
func TestPages(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(p *pages) error
		want string // first:count of each message
	}{
		{"a pause", func(p *pages) error {
			return firstOf(p.Take(recordsFrom(0, 3, 10)), p.Take(recordsFrom(3, 2, 10)), p.Pause(), p.Pause())
		}, "0:5"},
		{"the tail", func(p *pages) error {
			return firstOf(p.Take(recordsFrom(5, 2, 10)), p.Take(reader.Records{First: 7}))
		}, "5:2 7:0"},
		{"the end", func(p *pages) error {
			return firstOf(p.Take(recordsFrom(5, 1, 10)), p.end(nova.Position{SeqNum: 6}))
		}, "5:1 6:0"},
		{"full", func(p *pages) error {
			return firstOf(p.Take(recordsFrom(0, 5, pageBytes/4)), p.Pause())
		}, "0:3 3:2"},
		{"a large record", func(p *pages) error {
			return firstOf(p.Take(recordsFrom(0, 1, 10)), p.Take(recordsFrom(1, 1, 2*pageBytes)), p.Take(recordsFrom(2, 1, 10)), p.Pause())
		}, "0:1 1:1 2:1"},
	} {
		for _, directly := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, directly %v", c.name, directly), func(t *testing.T) {
				s := &sent{}
				if err := c.do(s.pages(directly)); err != nil {
					t.Fatal(err)
				}
				got, full := "", 0
				for i, m := range s.messages {
					next := m.GetNext().GetSeqNum()
					got += fmt.Sprintf(" %d:%d", next-uint64(len(m.Records)), len(m.Records))
					for j, r := range m.Records {
						if want := next - uint64(len(m.Records)-j); r.SeqNum != want || r.Timestamp != int64(1000+want) {
							t.Errorf("message %d has record %d of %d at place %d", i, r.SeqNum, r.Timestamp, want)
						}
					}
					if n := s.bytes[i]; n+envelope > 512<<10 && len(m.Records) > 1 {
						t.Errorf("message %d has %d bytes", i, n)
					}
					if len(m.Records) > 0 {
						full++
					}
				}
				if got != " "+c.want {
					t.Errorf("sent %q, want %q", got, c.want)
				}
				if directly && s.directly != full-1 || !directly && s.directly > 0 || s.flushed != s.directly {
					t.Errorf("of %d messages with records %d are sent directly, and flushed %d", full, s.directly, s.flushed)
				}
			})
		}
	}
}

// TestBriefPages leave out what follows from the record before, in one message.
func TestBriefPages(t *testing.T) {
	record := func(at int64, size, headers int) nova.Record {
		return nova.Record{Timestamp: at, Body: make([]byte, size), Headers: make([]nova.Header, headers)}
	}
	for _, c := range []struct {
		name    string
		first   uint64
		records []nova.Record
		want    string // number and time of each record, as sent
	}{
		{"of one time", 5, []nova.Record{record(100, 1, 0), record(100, 1, 0), record(100, 300, 0)}, "5@100 0@0 0@0"},
		{"of another time", 5, []nova.Record{record(100, 1, 0), record(101, 1, 0), record(101, 1, 0)}, "5@100 6@101 0@0"},
		{"from the beginning", 0, []nova.Record{record(100, 1, 0), record(100, 1, 0)}, "0@100 0@0"},
		{"without a body", 5, []nova.Record{record(100, 1, 0), record(100, 0, 0), record(100, 1, 0)}, "5@100 6@100 0@0"},
		{"with headers", 5, []nova.Record{record(100, 1, 0), record(100, 1, 1), record(100, 1, 0)}, "5@100 6@100 0@0"},
		{"in two messages", 5, []nova.Record{record(100, 1, 0), record(100, pageBytes, 0), record(100, 1, 0), record(100, 1, 0)}, "5@100|6@100|7@100 0@0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &sent{}
			p := s.pages(true)
			p.brief, p.buf = true, make([]byte, 0, 1<<10)
			if err := firstOf(p.Take(reader.Records{First: c.first, Records: c.records}), p.Pause()); err != nil {
				t.Fatal(err)
			}
			var messages []string
			for _, m := range s.messages {
				var records []string
				for _, r := range m.Records {
					records = append(records, fmt.Sprintf("%d@%d", r.SeqNum, r.Timestamp))
				}
				messages = append(messages, strings.Join(records, " "))
			}
			if got := strings.Join(messages, "|"); got != c.want {
				t.Errorf("sent %q, want %q", got, c.want)
			}
		})
	}
}

// TestARecordThatCantBeSent ends the read. What was read before it is sent, and can be read.
func TestARecordThatCantBeSent(t *testing.T) {
	s := &sent{}
	p := &pages{out: s, binary: true, brief: true, message: novav1.ReadResponse{Next: &novav1.Position{}}}
	rs := recordsFrom(5, 3, 10)
	rs.Records[2].Headers = []nova.Header{{Name: "good"}, {Name: "\xff"}}
	if err := p.Take(rs); !errors.Is(err, errNotUTF8) {
		t.Fatal(err)
	}
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	if len(s.messages) != 1 || len(s.messages[0].Records) != 2 || s.messages[0].GetNext().GetSeqNum() != 7 {
		t.Errorf("sent %v", s.messages)
	}
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

type nowhere struct{}

func (nowhere) Send(*novav1.ReadResponse) error { return nil }

func (nowhere) Header() http.Header         { return nil }
func (nowhere) WriteHeader(int)             {}
func (nowhere) Flush()                      {}
func (nowhere) Write(b []byte) (int, error) { return len(b), nil }

// TestPagesAllocateNothing: not for a record, and not for a message.
func TestPagesAllocateNothing(t *testing.T) {
	p := &pages{
		out: nowhere{}, direct: &direct{w: nowhere{}, c: http.NewResponseController(nowhere{})}, binary: true,
		message: novav1.ReadResponse{Next: &novav1.Position{}},
	}
	rs := recordsFrom(1_000_000, 1000, 128)
	n := math.Inf(1)
	for try := 0; try < 20 && n > 0; try++ { // what else runs in this process allocates, too
		n = testing.AllocsPerRun(20, func() {
			if err := p.Take(rs); err != nil {
				t.Fatal(err)
			}
		})
	}
	if n > 0 {
		t.Errorf("%v allocations for 1,000 records", n)
	}
}

// TestAnIdleReadKeepsLittle: a follower that has caught up gives its buffer back.
func TestAnIdleReadKeepsLittle(t *testing.T) {
	p := &pages{out: nowhere{}, binary: true, message: novav1.ReadResponse{Next: &novav1.Position{}}}
	for _, rs := range []reader.Records{recordsFrom(0, 3000, 128), recordsFrom(3000, 1, 128)} {
		if err := firstOf(p.Take(rs), p.Pause()); err != nil {
			t.Fatal(err)
		}
	}
	if n := cap(p.buf); n > idlePage {
		t.Errorf("it keeps %d bytes", n)
	}
}

func BenchmarkPages(b *testing.B) {
	p := &pages{out: nowhere{}, binary: true, message: novav1.ReadResponse{Next: &novav1.Position{}}}
	rs := recordsFrom(1_000_000, 1000, 128)
	b.SetBytes(128 * 1000)
	for b.Loop() {
		if err := p.Take(rs); err != nil {
			b.Fatal(err)
		}
	}
}
