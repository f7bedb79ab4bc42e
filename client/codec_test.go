package client

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
)

func readOf(n int, headers bool) *novav1.ReadResponse {
	m := &novav1.ReadResponse{Next: &novav1.Position{SeqNum: uint64(n), Timestamp: 7}}
	for i := range n {
		r := &novav1.SequencedRecord{SeqNum: uint64(i), Timestamp: int64(i) - 1, Body: bytes.Repeat([]byte{byte(i)}, i*37%300)}
		if headers {
			r.Headers = []*novav1.Header{{Name: "a", Value: []byte("b")}}
		}
		m.Records = append(m.Records, r)
	}
	return m
}

// brief is a message whose records leave out what follows from the one before.
func brief() *novav1.ReadResponse {
	return &novav1.ReadResponse{Records: []*novav1.SequencedRecord{
		{SeqNum: 7, Timestamp: 100, Body: []byte("a")}, {Body: []byte("b")}, {}, {SeqNum: 10, Timestamp: 101}, {Timestamp: 102, Body: []byte("c")}, {SeqNum: 12},
	}}
}

// TestABriefPage: what is left out follows from the record before, and nothing does in the first one.
func TestABriefPage(t *testing.T) {
	for _, c := range []struct {
		m    *novav1.ReadResponse
		want string
	}{
		{brief(), "7@100a 8@100b 9@100 10@101 11@102c 12@102"},
		{&novav1.ReadResponse{Records: []*novav1.SequencedRecord{{}, {Body: []byte("a")}, {Timestamp: 3}}}, "0@0 1@0a 2@3"},
	} {
		b, err := proto.Marshal(c.m)
		if err != nil {
			t.Fatal(err)
		}
		var p page
		if err := p.of(b); err != nil {
			t.Fatal(err)
		}
		var got []string
		if _, err := p.each(func(r SequencedRecord) bool {
			got = append(got, fmt.Sprintf("%d@%d%s", r.SeqNum, r.Timestamp, r.Body))
			return true
		}); err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%q, %v, want %q", got, err, c.want)
		}
	}
}

// FuzzReadResponse: whatever this codec reads, the library reads the same, and refuses what it refuses.
func FuzzReadResponse(f *testing.F) {
	for _, m := range []*novav1.ReadResponse{{}, readOf(0, false), readOf(1, false), readOf(200, false), readOf(2, true), brief()} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(append(b, b...)) // a field that is there twice
		f.Add(append(b, 0x18, 1))
		if len(b) > 3 {
			f.Add(b[:len(b)-3])
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var want novav1.ReadResponse
		wantErr := proto.Unmarshal(b, &want)
		var p page
		in := bytes.Clone(b)
		err := codec{}.Unmarshal(in, &p)
		clear(in) // the buffer is used again
		var got *novav1.ReadResponse
		if err == nil {
			got, err = responseOf(t, &p)
		}
		if (wantErr == nil) != (err == nil) {
			t.Fatalf("%x gives %v, not %v", b, err, wantErr)
		}
		if err == nil && !proto.Equal(got, plain(&want)) {
			t.Fatalf("%x gives\n%v, not\n%v", b, got, &want)
		}
	})
}

// responseOf is the message that a page was made of, as far as it keeps that.
func responseOf(t *testing.T, p *page) (*novav1.ReadResponse, error) {
	m := &novav1.ReadResponse{Next: &novav1.Position{}}
	var err error
	m.Next.SeqNum, err = p.each(func(r SequencedRecord) bool {
		to := &novav1.SequencedRecord{SeqNum: r.SeqNum, Timestamp: r.Timestamp, Body: r.Body}
		for _, h := range r.Headers {
			to.Headers = append(to.Headers, &novav1.Header{Name: h.Name, Value: h.Value})
			if cap(h.Value) != len(h.Value) {
				t.Errorf("a value of %d bytes can grow into %d of another's", len(h.Value), cap(h.Value)-len(h.Value))
			}
		}
		if cap(r.Body) != len(r.Body) {
			t.Errorf("a body of %d bytes can grow into %d of another's", len(r.Body), cap(r.Body)-len(r.Body))
		}
		m.Records = append(m.Records, to)
		return true
	})
	return m, err
}

// plain is a message with what a page keeps of it, and with what was left out of its records.
func plain(m *novav1.ReadResponse) *novav1.ReadResponse {
	out := &novav1.ReadResponse{Next: &novav1.Position{SeqNum: m.GetNext().GetSeqNum()}}
	for i, r := range m.GetRecords() {
		to := &novav1.SequencedRecord{SeqNum: r.GetSeqNum(), Timestamp: r.GetTimestamp(), Body: r.GetBody()}
		if i > 0 && to.SeqNum == 0 {
			to.SeqNum = out.Records[i-1].SeqNum + 1
		}
		if i > 0 && to.Timestamp == 0 {
			to.Timestamp = out.Records[i-1].Timestamp
		}
		for _, h := range r.GetHeaders() {
			to.Headers = append(to.Headers, &novav1.Header{Name: h.GetName(), Value: h.GetValue()})
		}
		out.Records = append(out.Records, to)
	}
	return out
}

// TestPagesAreReadByHand: what this server writes needs no library.
func TestPagesAreReadByHand(t *testing.T) {
	for _, m := range []*novav1.ReadResponse{{}, readOf(0, false), readOf(200, false), readOf(20, true)} {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var p page
		if !p.split(b) {
			t.Errorf("%d records are not split", len(m.Records))
		}
		for _, r := range m.Records {
			b, err := proto.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if !new(SequencedRecord).read(b) {
				t.Errorf("record %v is not read", r)
			}
		}
	}
}

// TestARecordKeepsASlab: records share slabs of 32 KiB; a larger one has its own.
func TestARecordKeepsASlab(t *testing.T) {
	m := readOf(200, false)
	m.Records[7].Body = make([]byte, 3*slab)
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var p page
	if err := p.of(b); err != nil {
		t.Fatal(err)
	}
	total, large := 0, 0
	for _, s := range p.slabs {
		total += len(s)
		if len(s) > slab {
			large++
			if len(s) > 3*slab+20 {
				t.Errorf("a slab has %d bytes", len(s))
			}
		}
	}
	if total != len(b) || large != 1 {
		t.Errorf("%d bytes in slabs of %d, %d of them large", total, len(b), large)
	}
}

// TestPageAllocs: a slab for every 32 KiB, the list of slabs, and the position at the end.
func TestPageAllocs(t *testing.T) {
	m := readOf(1000, false)
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	n, most := math.Inf(1), float64(len(b)/(slab-320)+1+4)
	for try := 0; try < 20 && n > most; try++ { // what else runs in this process allocates, too
		n = testing.AllocsPerRun(20, func() {
			var p page
			records := 0
			if err := (codec{}).Unmarshal(b, &p); err != nil {
				t.Fatal(err)
			}
			if _, err := p.each(func(SequencedRecord) bool { records++; return true }); err != nil || records != 1000 {
				t.Fatal(records, err)
			}
		})
	}
	if n > most {
		t.Errorf("%v allocations, want %v at most", n, most)
	}
}
