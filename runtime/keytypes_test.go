package fold

import (
	"errors"
	"math"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	judgev1 "github.com/typedfold/fold/internal/foldtest/gen/judge/v1"
)

func TestSpan(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		want Span
	}{
		{0, Span{}},
		{1, Span{Nanos: 1}},
		{-1, Span{Seconds: -1, Nanos: 999_999_999}},
		{-500 * time.Millisecond, Span{Seconds: -1, Nanos: 500_000_000}},
		{-2 * time.Second, Span{Seconds: -2}},
		{math.MaxInt64, Span{Seconds: 9223372036, Nanos: 854775807}},
		{math.MinInt64, Span{Seconds: -9223372037, Nanos: 145224192}},
	} {
		if got := SpanOf(c.d); got != c.want || got.AsDuration() != c.d {
			t.Errorf("%v is %+v, which is %v; want %+v", c.d, got, got.AsDuration(), c.want)
		}
	}
	for _, c := range []struct {
		s    Span
		want time.Duration
	}{
		{Span{Seconds: math.MaxInt64, Nanos: 5}, math.MaxInt64}, {Span{Seconds: math.MinInt64}, math.MinInt64},
		{Span{Seconds: 9223372036, Nanos: 854775808}, math.MaxInt64}, {Span{Seconds: -9223372037, Nanos: 145224191}, math.MinInt64},
	} {
		if got := c.s.AsDuration(); got != c.want {
			t.Errorf("%+v is %v, want the nearest, %v", c.s, got, c.want)
		}
	}
}

// Every time.Duration and every valid Duration and Timestamp goes through a key and comes back.
func TestTimesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, e := time.Duration(rapid.Int64().Draw(t, "d")), time.Duration(rapid.Int64().Draw(t, "e"))
		s := SpanOf(d)
		if s.AsDuration() != d || s.Nanos < 0 || s.Compare(SpanOf(e)) != compareSeconds(int64(d), int64(e), 0, 0) {
			t.Fatalf("%v is %+v, and compares with %v as %d", d, s, e, s.Compare(SpanOf(e)))
		}
		var f KeyFields
		seconds, nanos := rapid.Int64().Draw(t, "seconds"), rapid.Int32Range(0, 999_999_999).Draw(t, "nanos")
		if seconds < 0 {
			nanos = -nanos
		}
		wantSpan := &durationpb.Duration{Seconds: seconds, Nanos: nanos}
		if seconds == math.MinInt64 {
			wantSpan.Nanos = 0
		}
		wantTime := &timestamppb.Timestamp{Seconds: seconds, Nanos: max(nanos, -nanos)}
		m := &judgev1.FilledKeys{Inner: &judgev1.FilledKeys_Inner{Note: "kept", Took: durationpb.New(5)}}
		if err := errors.Join(SetKeyField(m, f.Time("at", wantTime), 3), SetKeyField(m, f.Span("took", wantSpan), 4, 1), f.Err()); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(m.GetInner().GetTook(), wantSpan) || !proto.Equal(m.GetAt(), wantTime) || m.GetInner().GetNote() != "kept" {
			t.Fatalf("%v and %v come back as %v", wantSpan, wantTime, m)
		}
	})
}

func TestSetKeyFieldOfTypes(t *testing.T) {
	id := [16]byte{0xAB, 15: 1}
	m := new(judgev1.FilledKeys)
	if err := errors.Join(SetKeyField(m, id, 1), SetKeyField(m, id, 2), SetKeyField(m, judgev1.Answer_ANSWER_NO, 5)); err != nil {
		t.Fatal(err)
	}
	if m.GetUuidText() != "ab000000-0000-0000-0000-000000000001" || string(m.GetUuidBytes()) != string(id[:]) || m.GetMode() != judgev1.Answer_ANSWER_NO {
		t.Errorf("set %v", m)
	}
	for _, err := range []error{
		SetKeyField(m, id, 6),        // an integer
		SetKeyField(m, id, 3),        // a Timestamp
		SetKeyField(m, Time{}, 1),    // a string
		SetKeyField(m, Time{}, 4),    // another message
		SetKeyField(m, Span{}, 3),    // a Timestamp
		SetKeyField(m, Time{}, 4, 1), // a Duration
		SetKeyField(m, "s", 3),
	} {
		if err == nil {
			t.Errorf("no error, and the message is %v", m)
		}
	}
}

// The first failure is kept.
func TestKeyFields(t *testing.T) {
	var f KeyFields
	if f.UUIDBytes("a", make([]byte, 16)); f.Err() != nil {
		t.Error(f.Err())
	}
	f.UUIDBytes("b", nil)
	f.UUID("c", "")
	var rej *Rejection
	if !errors.As(f.Err(), &rej) || rej.Code != KeySegment || rej.Field != "b" {
		t.Errorf("%v", f.Err())
	}
	for name, read := range map[string]func(*KeyFields){
		"seconds forwards, nanoseconds back": func(f *KeyFields) { f.Span("x", &durationpb.Duration{Seconds: 1, Nanos: -1}) },
		"seconds back, nanoseconds forwards": func(f *KeyFields) { f.Span("x", &durationpb.Duration{Seconds: -1, Nanos: 1}) },
		"a second of nanoseconds":            func(f *KeyFields) { f.Span("x", &durationpb.Duration{Nanos: -1_000_000_000}) },
		"beyond 64 bits":                     func(f *KeyFields) { f.Span("x", &durationpb.Duration{Seconds: math.MinInt64, Nanos: -1}) },
		"before the second":                  func(f *KeyFields) { f.Time("x", &timestamppb.Timestamp{Nanos: -1}) },
	} {
		var f KeyFields
		if read(&f); !errors.As(f.Err(), &rej) || rej.Code != KeySegment || rej.Field != "x" {
			t.Errorf("%s: %v", name, f.Err())
		}
	}
}
