package fold

import (
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/typedfold/fold/runtime/keyenc"
)

// Time is a Timestamp in a key struct: seconds since 1970 in UTC, and nanoseconds that count forward from them, 0 to
// 999,999,999. Two are equal when they are the same instant.
type Time struct {
	Seconds int64
	Nanos   int32
}

// TimeOf is the instant of t, without its location and monotonic clock.
func TimeOf(t time.Time) Time { return Time{Seconds: t.Unix(), Nanos: int32(t.Nanosecond())} }

// AsTime is the instant in UTC.
func (t Time) AsTime() time.Time { return time.Unix(t.Seconds, int64(t.Nanos)).UTC() }

// Compare is -1, 0 or 1, as t is before, at or after u: the order of keys.
func (t Time) Compare(u Time) int { return compareSeconds(t.Seconds, u.Seconds, t.Nanos, u.Nanos) }

// Span is a Duration in a key struct: whole seconds, rounded down, and nanoseconds that count forward from them, 0 to
// 999,999,999. Minus half a second is {-1, 500000000}. Two are equal when they are as long.
type Span struct {
	Seconds int64
	Nanos   int32
}

// SpanOf is the length of d.
func SpanOf(d time.Duration) Span {
	seconds, nanos := int64(d/time.Second), int32(d%time.Second)
	seconds, nanos, _ = keyenc.FloorTime(seconds, nanos) // a time.Duration is far from the ends
	return Span{Seconds: seconds, Nanos: nanos}
}

// AsDuration is the length, or the nearest that a time.Duration holds.
func (s Span) AsDuration() time.Duration {
	switch {
	case s.Compare(SpanOf(math.MinInt64)) <= 0:
		return math.MinInt64
	case s.Compare(SpanOf(math.MaxInt64)) >= 0:
		return math.MaxInt64
	}
	seconds, nanos := s.parts()
	return time.Duration(seconds)*time.Second + time.Duration(nanos)
}

// Compare is -1, 0 or 1, as s is shorter than, as long as or longer than u: the order of keys.
func (s Span) Compare(u Span) int { return compareSeconds(s.Seconds, u.Seconds, s.Nanos, u.Nanos) }

// parts are seconds and nanoseconds of one sign, as a Duration has them.
func (s Span) parts() (seconds int64, nanos int32) {
	if s.Seconds < 0 && s.Nanos > 0 {
		return s.Seconds + 1, s.Nanos - int32(time.Second)
	}
	return s.Seconds, s.Nanos
}

func compareSeconds(s, t int64, n, m int32) int {
	switch {
	case s < t || s == t && n < m:
		return -1
	case s == t && n == m:
		return 0
	}
	return 1
}

// KeyFields reads those key fields of a message that may hold what is no value of the key's type; for generated code.
// It keeps the first failure, a *Rejection that names the field.
type KeyFields struct{ err error }

// Err is the first failure.
func (f *KeyFields) Err() error { return f.err }

// UUID reads a string field: 36 lower-case characters, the one form of the value.
func (f *KeyFields) UUID(field, text string) [16]byte {
	id, err := keyenc.ParseUUID(text)
	f.fail(field, err)
	return id
}

// UUIDBytes reads a bytes field of 16 bytes.
func (f *KeyFields) UUIDBytes(field string, b []byte) (id [16]byte) {
	if len(b) != len(id) {
		f.fail(field, fmt.Errorf("a uuid of %d bytes, want %d", len(b), len(id)))
		return id
	}
	return [16]byte(b)
}

// Time reads a Timestamp.
func (f *KeyFields) Time(field string, t *timestamppb.Timestamp) Time {
	if n := t.GetNanos(); n < 0 || n >= int32(time.Second) {
		f.fail(field, fmt.Errorf("a Timestamp with %d nanoseconds, want 0..999999999", n))
		return Time{}
	}
	return Time{Seconds: t.GetSeconds(), Nanos: t.GetNanos()}
}

// Span reads a Duration, whose seconds and nanoseconds have one sign.
func (f *KeyFields) Span(field string, d *durationpb.Duration) Span {
	seconds, nanos, ok := floorSpan(d.GetSeconds(), d.GetNanos())
	if !ok {
		f.fail(field, fmt.Errorf("a Duration of %d seconds and %d nanoseconds, want the same sign and less than a second of the latter", d.GetSeconds(), d.GetNanos()))
	}
	return Span{Seconds: seconds, Nanos: nanos}
}

// floorSpan is the key's form of a Duration; false when the Duration is not valid.
func floorSpan(seconds int64, nanos int32) (int64, int32, bool) {
	if seconds > 0 && nanos < 0 || seconds < 0 && nanos > 0 {
		return 0, 0, false
	}
	return keyenc.FloorTime(seconds, nanos)
}

func (f *KeyFields) fail(field string, err error) {
	if err == nil || f.err != nil {
		return
	}
	code := KeySegment
	if errors.Is(err, keyenc.ErrNotCanonical) {
		code = KeyNotCanonical
	}
	f.err = &Rejection{Code: code, Field: field, Err: err}
}

// uuidFieldValue is a UUID as a string or bytes field holds it.
func uuidFieldValue(fd protoreflect.FieldDescriptor, id [16]byte) (v protoreflect.Value, ok bool) {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(string(keyenc.AppendUUID(nil, id))), true
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(id[:]), true
	}
	return v, false
}

// setSeconds sets a Timestamp or Duration field, whose two fields have the same numbers; false when fd is no name's.
func setSeconds(m protoreflect.Message, fd protoreflect.FieldDescriptor, name protoreflect.FullName, seconds int64, nanos int32) bool {
	if fd.Message() == nil || fd.Message().FullName() != name {
		return false
	}
	m.Clear(fd)
	inner := m.Mutable(fd).Message()
	fields := inner.Descriptor().Fields()
	inner.Set(fields.ByNumber(1), protoreflect.ValueOfInt64(seconds))
	inner.Set(fields.ByNumber(2), protoreflect.ValueOfInt32(nanos))
	return true
}
