package golden

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	fillv1 "github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/fill/gen/fill/v1"
	"github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/fill/gen/fill/v1/fillv1fold"
	keysv1 "github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/keys/gen/keys/v1"
	"github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/keys/gen/keys/v1/keysv1fold"
	fold "github.com/typedfold/fold/runtime"
)

const uuidText = "01234567-89ab-cdef-0123-456789abcdef"

var (
	uuidBytes = [16]byte{0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF, 0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF}
	before    = time.Date(1969, 12, 31, 23, 59, 58, 250_000_000, time.UTC)
)

func TestKeyTypes(t *testing.T) {
	checkTable(t, &keysv1.Plain{I32: -7, I64: -1 << 63, U32: 0, U64: 1<<64 - 1, Color: keysv1.Color_COLOR_DARK, Name: keysv1.Color_COLOR_RED},
		"plain.-7.-9223372036854775808.0.18446744073709551615.-3.COLOR_RED",
		keysv1fold.PlainKeyOf, keysv1fold.ParsePlainKey, keysv1fold.ParsePlain)
	moment := &keysv1.Moment{
		Id: uuidText, Raw: uuidBytes[:], At: timestamppb.New(before),
		Inner: &keysv1.Moment_Inner{Took: durationpb.New(-1500 * time.Millisecond)}, Payload: "p",
	}
	checkTable(t, moment, "moment."+uuidText+"."+uuidText+".nz7250000000.nz7500000000",
		keysv1fold.MomentKeyOf, keysv1fold.ParseMomentKey, keysv1fold.ParseMoment)
	k, err := keysv1fold.MomentKeyOf(moment)
	want := keysv1fold.MomentKey{ID: uuidBytes, Raw: uuidBytes, At: fold.TimeOf(before), InnerTook: fold.SpanOf(-1500 * time.Millisecond)}
	if err != nil || k != want || !k.At.AsTime().Equal(before) || k.InnerTook.AsDuration() != -1500*time.Millisecond {
		t.Errorf("key %+v, %v, want %+v", k, err, want)
	}
	checkTable(t, &keysv1.Moment{Id: uuidText, Raw: uuidBytes[:], At: &timestamppb.Timestamp{}, Inner: &keysv1.Moment_Inner{Took: &durationpb.Duration{}}},
		"moment."+uuidText+"."+uuidText+".pa0000000000.pa0000000000",
		keysv1fold.MomentKeyOf, keysv1fold.ParseMomentKey, keysv1fold.ParseMoment)
	checkTable(t, &keysv1.Filled{
		Id: uuidText, Raw: uuidBytes[:], At: timestamppb.New(before), Took: durationpb.New(time.Nanosecond), Name: keysv1.Color_COLOR_DARK, N: 42, Payload: "p",
	}, "filled."+uuidText+"."+uuidText+".nz7250000000.pa0000000001.COLOR_DARK.42",
		keysv1fold.FilledKeyOf, keysv1fold.ParseFilledKey, keysv1fold.ParseFilled)
}

// What a value says in another form than the key's one is refused, and so is what is no value of the type.
func TestKeyTypesRefused(t *testing.T) {
	good := func() *keysv1.Moment {
		return &keysv1.Moment{Id: uuidText, Raw: uuidBytes[:], At: timestamppb.New(before), Inner: &keysv1.Moment_Inner{Took: durationpb.New(time.Second)}}
	}
	for _, c := range []struct {
		name  string
		spoil func(*keysv1.Moment)
		code  fold.RejectCode
		field string
	}{
		{"no uuid", func(m *keysv1.Moment) { m.Id = "" }, fold.KeySegment, "id"},
		{"upper-case uuid", func(m *keysv1.Moment) { m.Id = "01234567-89AB-cdef-0123-456789abcdef" }, fold.KeyNotCanonical, "id"},
		{"uuid in braces", func(m *keysv1.Moment) { m.Id = "{" + uuidText + "}" }, fold.KeySegment, "id"},
		{"short bytes", func(m *keysv1.Moment) { m.Raw = m.Raw[:15] }, fold.KeySegment, "raw"},
		{"no bytes", func(m *keysv1.Moment) { m.Raw = nil }, fold.KeySegment, "raw"},
		{"no instant", func(m *keysv1.Moment) { m.At = nil }, fold.KeyFieldUnset, "at"},
		{"nanoseconds backwards", func(m *keysv1.Moment) { m.At.Nanos = -1 }, fold.KeySegment, "at"},
		{"a second of nanoseconds", func(m *keysv1.Moment) { m.At.Nanos = 1_000_000_000 }, fold.KeySegment, "at"},
		{"no length of time", func(m *keysv1.Moment) { m.Inner.Took = nil }, fold.KeyFieldUnset, "inner.took"},
		{"two signs", func(m *keysv1.Moment) { m.Inner.Took.Nanos = -1 }, fold.KeySegment, "inner.took"},
		{"too short to say", func(m *keysv1.Moment) { m.Inner.Took = &durationpb.Duration{Seconds: -1 << 63, Nanos: -1} }, fold.KeySegment, "inner.took"},
	} {
		m := good()
		c.spoil(m)
		k, err := keysv1fold.MomentKeyOf(m)
		var rej *fold.Rejection
		if !errors.As(err, &rej) || rej.Code != c.code || rej.Field != c.field || k != (keysv1fold.MomentKey{}) {
			t.Errorf("%s: %v, %v, want %v of %s", c.name, k, err, c.code, c.field)
		}
		if _, rej := keysv1fold.ParseMoment(put(t, "moment."+uuidText+"."+uuidText+".nz7250000000.pa1000000000", m)); rej == nil {
			t.Errorf("%s: the fold accepts it", c.name)
		}
	}
	_, err := keysv1fold.PlainKey{Name: 99}.AppendKey(nil)
	var rej *fold.Rejection
	if !errors.As(err, &rej) || rej.Code != fold.KeySegment || rej.Field != "name" {
		t.Errorf("a number without a name: %v", err)
	}
	for key, code := range map[string]fold.RejectCode{
		"plain.07.0.0.0.0.COLOR_RED":                                         fold.KeyNotCanonical,
		"plain.-0.0.0.0.0.COLOR_RED":                                         fold.KeyNotCanonical,
		"plain.2147483648.0.0.0.0.COLOR_RED":                                 fold.KeySegment,
		"plain.0.0.-1.0.0.COLOR_RED":                                         fold.KeySegment,
		"plain.0.0.0.0.0.COLOR_GREEN":                                        fold.KeySegment,
		"plain.0.0.0.0.0.color_red":                                          fold.KeySegment,
		"plain.0.0.0.0.0.3":                                                  fold.KeySegment,
		"plain.0.0.0.0.COLOR_RED":                                            fold.KeyNoPattern,
		"moment." + uuidText + ".01234567.pa0000000000.pa0000000000":         fold.KeySegment,
		"moment." + uuidText + "." + uuidText + ".pa0.pa0000000000":          fold.KeySegment,
		"moment." + uuidText + "." + uuidText + ".pb00000000000.pa000000000": fold.KeyNotCanonical,
	} {
		_, errPlain := keysv1fold.ParsePlainKey(key)
		_, errMoment := keysv1fold.ParseMomentKey(key)
		err := errPlain
		if key[0] == 'm' {
			err = errMoment
		}
		if !errors.As(err, &rej) || rej.Code != code {
			t.Errorf("%s: %v, want %v", key, err, code)
		}
	}
}

// The parts that are in the key only come from the key, and the value says the rest.
func TestKeyOnlyParts(t *testing.T) {
	const key = "lease.eu-west-1.t.00FF.pa1000000000.nz9000000000.a.b"
	want := keysv1fold.LeaseKey{
		Region: "eu-west-1", Tenant: "t", Digest: "\x00\xFF", Since: fold.Time{Seconds: 1}, TTL: fold.SpanOf(-time.Second), Path: "a/b",
	}
	k, err := keysv1fold.ParseLeaseKey("lease.eu-west-1.t.00FF.pa1000000000.nz8000000000.a.b")
	if err != nil || k != want || k.String() != "lease.eu-west-1.t.00FF.pa1000000000.nz8000000000.a.b" {
		t.Errorf("key %+v, %v", k, err)
	}
	if _, err := keysv1fold.ParseLeaseKey(key); err == nil {
		t.Errorf("%s is read, and there is no minus zero", key)
	}
	lease := &keysv1.Lease{Tenant: proto.String("t"), Holder: "h"}
	ev, rej := keysv1fold.ParseLease(put(t, k.String(), lease))
	if rej != nil || ev.Key != want || !proto.Equal(ev.New, lease) {
		t.Errorf("entry: %v, %v", ev, rej)
	}
	lease.Tenant = proto.String("u")
	if _, rej := keysv1fold.ParseLease(put(t, k.String(), lease)); rej == nil || rej.Code != fold.KeyValueMismatch || rej.Field != "tenant" {
		t.Errorf("another tenant: %v", rej)
	}
	lease.Tenant = nil
	if _, rej := keysv1fold.ParseLease(put(t, k.String(), lease)); rej == nil || rej.Code != fold.KeyFieldUnset || rej.Field != "tenant" {
		t.Errorf("no tenant: %v", rej)
	}
	blob := keysv1fold.BlobKey{ID: uuidBytes, On: true, I32: -1, I64: -1, U32: 1, U64: 1, Text: "é"}
	if got := blob.String(); got != "blob."+uuidText+".1.nz8.-1.00000001.a1.C3A9" {
		t.Errorf("key %q", got)
	}
	if ev, rej := keysv1fold.ParseBlob(put(t, blob.String(), &keysv1.Blob{Data: []byte{1}})); rej != nil || ev.Key != blob {
		t.Errorf("entry: %v, %v", ev, rej)
	}
	// Bound by FILL: the value says nothing, and is given what is a field of it.
	mixed, rej := keysv1fold.ParseMixed(put(t, "mixed.a7.o.pa0000000001", &keysv1.Mixed{Payload: "p"}))
	if rej != nil || mixed.Key.Shard != 7 || !proto.Equal(mixed.New, &keysv1.Mixed{Owner: "o", Since: &timestamppb.Timestamp{Nanos: 1}, Payload: "p"}) {
		t.Errorf("filled: %v, %v", mixed, rej)
	}
	for _, c := range []struct{ got, want string }{
		{keysv1fold.LeaseByRegionTenantDigestSince("r", "t", "\xAB", fold.Time{Nanos: 5}).String(), "lease.r.t.AB.pa0000000005."},
		{keysv1fold.BlobByIDOnI32I64(uuidBytes, false, 0, -3).String(), "blob." + uuidText + ".0.pa0.-3."},
	} {
		if c.got != c.want {
			t.Errorf("prefix %q, want %q", c.got, c.want)
		}
	}
}

// A singleton that is bound by FILL has nothing to fill.
func TestFillWithoutVariables(t *testing.T) {
	only := &fillv1.Only{Payload: "p"}
	checkTable(t, only, "only", fillv1fold.OnlyKeyOf, fillv1fold.ParseOnlyKey, fillv1fold.ParseOnly)
}

// Tables whose rows don't go by the values of their keys have nothing that says they do.
func TestUnorderedTablesHaveNoRange(t *testing.T) {
	for _, c := range []struct {
		table   any
		ordered bool
	}{
		{keysv1fold.PlainTable{}, false}, {keysv1fold.FilledTable{}, false}, {keysv1fold.BlobTable{}, false},
		{keysv1fold.MomentTable{}, true}, {keysv1fold.LeaseTable{}, true},
	} {
		typ := reflect.TypeOf(c.table)
		for _, method := range []string{"Range", "Ceil", "Floor"} {
			if _, has := typ.MethodByName(method); has != c.ordered {
				t.Errorf("%v has %s: %v", typ, method, has)
			}
		}
		for _, method := range []string{"Get", "GetRow", "GetInto", "Has", "Peek", "List", "Keys", "First", "Last", "Count", "Watch", "Rejected", "At"} {
			if _, has := typ.MethodByName(method); !has {
				t.Errorf("%v has no %s", typ, method)
			}
		}
	}
	// A writer of a table that has some of its key in the key only can't write without it.
	for _, c := range []struct {
		writer any
		keyed  bool
	}{{keysv1fold.LeaseWriter{}, true}, {keysv1fold.BlobWriter{}, true}, {keysv1fold.MixedWriter{}, true}, {keysv1fold.MomentWriter{}, false}} {
		typ := reflect.TypeOf(c.writer)
		for _, method := range []string{"Create", "Put", "Update"} {
			_, has := typ.MethodByName(method)
			if _, hasAt := typ.MethodByName(method + "At"); hasAt != c.keyed || has == c.keyed {
				t.Errorf("%v: %s %v, %sAt %v", typ, method, has, method, hasAt)
			}
		}
	}
}

// Appending a key to a buffer allocates nothing, and reading one only the strings in which something was escaped.
func TestKeyTypeAllocations(t *testing.T) {
	allocs := func(name string, want float64, f func()) {
		t.Helper()
		if got := testing.AllocsPerRun(200, f); got != want {
			t.Errorf("%s: %v allocations, want %v", name, got, want)
		}
	}
	buf := make([]byte, 0, 512)
	var err error
	plain := keysv1fold.PlainKey{I32: -7, I64: 1 << 40, U32: 9, U64: 1 << 63, Color: keysv1.Color_COLOR_DARK, Name: keysv1.Color_COLOR_RED}
	moment := keysv1fold.MomentKey{ID: uuidBytes, Raw: uuidBytes, At: fold.TimeOf(before), InnerTook: fold.SpanOf(time.Second)}
	lease := keysv1fold.LeaseKey{Region: "eu", Tenant: "t.u", Digest: "\x00\xFF", Path: "a/b.c"}
	blob := keysv1fold.BlobKey{ID: uuidBytes, I64: -5, Text: "abc"}
	allocs("append plain", 0, func() { buf, err = plain.AppendKey(buf[:0]) })
	allocs("append moment", 0, func() { buf, err = moment.AppendKey(buf[:0]) })
	allocs("append lease", 0, func() { buf, err = lease.AppendKey(buf[:0]) })
	allocs("append blob", 0, func() { buf, err = blob.AppendKey(buf[:0]) })
	plainText, momentText, leaseText, blobText := plain.String(), moment.String(), lease.String(), blob.String()
	allocs("parse plain", 0, func() { plain, err = keysv1fold.ParsePlainKey(plainText) })
	allocs("parse moment", 0, func() { moment, err = keysv1fold.ParseMomentKey(momentText) })
	allocs("parse lease", 3, func() { lease, err = keysv1fold.ParseLeaseKey(leaseText) }) // tenant, digest, path
	allocs("parse blob", 1, func() { blob, err = keysv1fold.ParseBlobKey(blobText) })     // text
	m := &keysv1.Moment{Id: uuidText, Raw: uuidBytes[:], At: timestamppb.New(before), Inner: &keysv1.Moment_Inner{Took: durationpb.New(time.Second)}}
	allocs("key of a message", 0, func() { moment, err = keysv1fold.MomentKeyOf(m) })
	if err != nil {
		t.Error(err)
	}
	if lease.Tenant != "t.u" || blob.Text != "abc" || moment.ID != uuidBytes || plain.Name != keysv1.Color_COLOR_RED {
		t.Errorf("%+v %+v %+v %+v", lease, blob, moment, plain)
	}
}
