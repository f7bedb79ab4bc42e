package golden

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/basic/gen/basic/v1/basicv1fold"
	keysv1 "github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/keys/gen/keys/v1"
	"github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/keys/gen/keys/v1/keysv1fold"
	palettev1 "github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/types/gen/palette/v1"
	typesv1 "github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/types/gen/types/v1"
	"github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/types/gen/types/v1/typesv1fold"
	fold "github.com/typedfold/fold/runtime"
)

// codec takes one key type through both directions.
type codec[K interface {
	comparable
	fold.Key
}] struct {
	parse func(string) (K, error)
	// compare is nil when the keys are not in the order of their fields.
	compare func(a, b K) int
}

// stored is the form that rows are ordered by.
func stored(key string) string { return strings.ReplaceAll(key, ".", "\x00") }

// check: a key that can be written reads back as itself, and two keys are ordered as their fields are.
func (c codec[K]) check(t *testing.T, a, b K) {
	t.Helper()
	x, errA := a.AppendKey(nil)
	y, errB := b.AppendKey(nil)
	if errA != nil || errB != nil {
		return // a verbatim part that is no token, or a number without a name
	}
	for _, one := range []struct {
		key  K
		text string
	}{{a, string(x)}, {b, string(y)}} {
		if back, err := c.parse(one.text); err != nil || back != one.key {
			t.Fatalf("%#v is written as %q, which reads as %#v, %v", one.key, one.text, back, err)
		}
	}
	if (string(x) == string(y)) != (a == b) {
		t.Fatalf("%#v and %#v are written as %q and %q", a, b, x, y)
	}
	if c.compare == nil {
		return
	}
	if got, want := cmp.Compare(stored(string(x)), stored(string(y))), c.compare(a, b); got != want {
		t.Fatalf("%#v and %#v compare as %d, their keys %q and %q as %d", a, b, want, x, y, got)
	}
}

var (
	texts = codec[typesv1fold.TextKey]{typesv1fold.ParseTextKey, func(a, b typesv1fold.TextKey) int {
		return cmp.Or(cmp.Compare(a.Esc, b.Esc), cmp.Compare(a.Verbatim, b.Verbatim), cmp.Compare(a.Hex, b.Hex), cmp.Compare(a.Digest, b.Digest), cmp.Compare(a.Raw, b.Raw))
	}}
	numbers = codec[typesv1fold.NumberKey]{typesv1fold.ParseNumberKey, func(a, b typesv1fold.NumberKey) int {
		return cmp.Or(cmp.Compare(a.I32, b.I32), cmp.Compare(a.S32, b.S32), cmp.Compare(a.F32, b.F32), cmp.Compare(a.I64, b.I64), cmp.Compare(a.S64, b.S64),
			cmp.Compare(a.F64, b.F64), cmp.Compare(a.U32, b.U32), cmp.Compare(a.X32, b.X32), cmp.Compare(a.U64, b.U64), cmp.Compare(a.X64, b.X64))
	}}
	wides = codec[typesv1fold.WideKey]{typesv1fold.ParseWideKey, func(a, b typesv1fold.WideKey) int {
		return cmp.Or(cmp.Compare(a.I32, b.I32), cmp.Compare(a.I64, b.I64), cmp.Compare(a.U32, b.U32), cmp.Compare(a.U64, b.U64))
	}}
	choices = codec[typesv1fold.ChoiceKey]{typesv1fold.ParseChoiceKey, func(a, b typesv1fold.ChoiceKey) int {
		on := map[bool]int{true: 1}
		return cmp.Or(cmp.Compare(on[a.On], on[b.On]), cmp.Compare(a.Color, b.Color), cmp.Compare(a.Size, b.Size), cmp.Compare(a.Hue, b.Hue))
	}}
	plains  = codec[keysv1fold.PlainKey]{keysv1fold.ParsePlainKey, nil}
	blobs   = codec[keysv1fold.BlobKey]{keysv1fold.ParseBlobKey, nil}
	moments = codec[keysv1fold.MomentKey]{keysv1fold.ParseMomentKey, func(a, b keysv1fold.MomentKey) int {
		return cmp.Or(bytes.Compare(a.ID[:], b.ID[:]), bytes.Compare(a.Raw[:], b.Raw[:]), a.At.Compare(b.At), a.InnerTook.Compare(b.InnerTook))
	}}
	leases = codec[keysv1fold.LeaseKey]{keysv1fold.ParseLeaseKey, func(a, b keysv1fold.LeaseKey) int {
		return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Digest, b.Digest), a.Since.Compare(b.Since),
			a.TTL.Compare(b.TTL), slices.Compare(strings.Split(a.Path, "/"), strings.Split(b.Path, "/")))
	}}
	hosts = codec[basicv1fold.HostKey]{basicv1fold.ParseHostKey, func(a, b basicv1fold.HostKey) int {
		return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.HostID, b.HostID))
	}}
)

// number has the same number for all fields of one type up to the shift, so that fields of a pair agree and differ.
func number(a, b int64, shift uint8) typesv1fold.NumberKey {
	all := [10]int64{a, a, a, a, a, a, a, a, a, a}
	for i := int(shift % 11); i < len(all); i++ {
		all[i] = b
	}
	return typesv1fold.NumberKey{
		I32: int32(all[0]), S32: int32(all[1]), F32: int32(all[2]), I64: all[3], S64: all[4], F64: all[5],
		U32: uint32(all[6]), X32: uint32(all[7]), U64: uint64(all[8]), X64: uint64(all[9]),
	}
}

// uuid has the beginning of the text.
func uuid(s string) (id [16]byte) {
	copy(id[:], s)
	return id
}

// instant is one of any second, with its nanoseconds in range.
func instant(seconds, nanos int64) fold.Time {
	return fold.Time{Seconds: seconds, Nanos: int32(uint64(nanos) % 1_000_000_000)}
}

// checkTypes checks the keys of the further types.
func checkTypes(t *testing.T, s, u string, i, j int64) {
	t.Helper()
	names := []keysv1.Color{keysv1.Color_COLOR_UNSPECIFIED, keysv1.Color_COLOR_RED, keysv1.Color_COLOR_DARK, keysv1.Color(i)}
	a := keysv1fold.PlainKey{I32: int32(i), I64: i, U32: uint32(j), U64: uint64(i), Color: keysv1.Color(j), Name: names[uint64(i)%4]}
	b := keysv1fold.PlainKey{I32: int32(j), I64: i, U32: uint32(i), U64: uint64(j), Color: keysv1.Color(j), Name: names[uint64(j)%4]}
	plains.check(t, a, b)
	x, y := instant(i, j), instant(j, i)
	moments.check(t, keysv1fold.MomentKey{ID: uuid(s), Raw: uuid(u), At: x, InnerTook: fold.Span(y)}, keysv1fold.MomentKey{ID: uuid(u), Raw: uuid(u), At: y, InnerTook: fold.Span(x)})
	moments.check(t, keysv1fold.MomentKey{At: x, InnerTook: fold.Span(x)}, keysv1fold.MomentKey{At: x, InnerTook: fold.Span(y)})
	leases.check(t, keysv1fold.LeaseKey{Region: "r", Tenant: s, Digest: u, Since: x, Path: s}, keysv1fold.LeaseKey{Region: "r", Tenant: s, Digest: s, Since: x, Path: u})
	leases.check(t, keysv1fold.LeaseKey{Region: "r", Since: x, TTL: fold.Span(y), Path: s}, keysv1fold.LeaseKey{Region: "r", Since: x, TTL: fold.Span(x), Path: u})
	leases.check(t, keysv1fold.LeaseKey{Region: "r", Path: s}, keysv1fold.LeaseKey{Region: "r", Path: u})
	blobs.check(t, keysv1fold.BlobKey{ID: uuid(s), On: i > j, I64: i, Text: u}, keysv1fold.BlobKey{ID: uuid(u), On: j > i, I32: int32(j), U32: uint32(i), U64: uint64(j), Text: s})
}

func FuzzGeneratedKeys(f *testing.F) {
	f.Add("", "", int64(0), int64(0), uint8(0))
	f.Add("a.b", "a", int64(-1), int64(1), uint8(3))
	f.Add("z", "z\x00", int64(-1<<63), int64(1<<63-1), uint8(7))
	f.Add("\xff", "_^`", int64(9), int64(10), uint8(1))
	f.Add("eu-west-1", "eu-west", int64(-100), int64(-99), uint8(10))
	f.Fuzz(func(t *testing.T, s, u string, i, j int64, shift uint8) {
		texts.check(t, typesv1fold.TextKey{Esc: s, Verbatim: "v", Hex: u, Digest: s, Raw: u}, typesv1fold.TextKey{Esc: u, Verbatim: "v", Hex: u, Digest: u, Raw: s})
		texts.check(t, typesv1fold.TextKey{Esc: s, Verbatim: s, Hex: u, Raw: u}, typesv1fold.TextKey{Esc: s, Verbatim: u, Hex: s, Raw: u})
		hosts.check(t, basicv1fold.HostKey{Region: s, HostID: u}, basicv1fold.HostKey{Region: u, HostID: s})
		numbers.check(t, number(i, j, shift), number(i, i, 0))
		numbers.check(t, number(i, j, shift), number(j, i, shift))
		wides.check(t, typesv1fold.WideKey{I32: int32(i), I64: i, U32: uint32(i), U64: uint64(j)}, typesv1fold.WideKey{I32: int32(j), I64: i, U32: uint32(j), U64: uint64(i)})
		choices.check(t,
			typesv1fold.ChoiceKey{On: i > j, Color: palettev1.Color(i), Size: typesv1.Choice_Size(j), Hue: palettev1.Color(j)},
			typesv1fold.ChoiceKey{On: j > i, Color: palettev1.Color(j), Size: typesv1.Choice_Size(j), Hue: palettev1.Color(i)})
		checkTypes(t, s, u, i, j)
	})
}

// FuzzGeneratedParsers: a key that a generated parser takes is the one that it would write.
func FuzzGeneratedParsers(f *testing.F) {
	for _, key := range []string{
		"host.eu/2D1.a/2Eb", "slot.h.b42", "text.my__z-one.eu-west-1.617A.00FF.azFF", "wide.80000007.7FFFFFFFFFFFFFF9.00000007.0000000000000007",
		"choice.1.pa1.pa0.80000001", "choice.1.pa1.pa0", "host.a", "host..b", "host.a.b.c", "",
		"plain.-7.-9223372036854775808.0.18446744073709551615.-3.COLOR_RED", "plain.007.-0.0.0.0.COLOR_RED",
		"moment.01234567-89ab-cdef-0123-456789abcdef.01234567-89ab-cdef-0123-456789abcdef.nz7250000000.pa0000000001",
		"lease.eu-west-1.t.00FF.pa1000000000.nz8000000000.a.b", "blob.01234567-89ab-cdef-0123-456789abcdef.1.nz8.-1.00000001.a1.C3A9",
	} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		rewrites(t, key, typesv1fold.ParseTextKey)
		rewrites(t, key, typesv1fold.ParseNumberKey)
		rewrites(t, key, typesv1fold.ParseWideKey)
		rewrites(t, key, typesv1fold.ParseChoiceKey)
		rewrites(t, key, keysv1fold.ParsePlainKey)
		rewrites(t, key, keysv1fold.ParseMomentKey)
		rewrites(t, key, keysv1fold.ParseLeaseKey)
		rewrites(t, key, keysv1fold.ParseBlobKey)
		rewrites(t, key, basicv1fold.ParseHostKey)
		rewrites(t, key, basicv1fold.ParseHost_SlotKey)
	})
}

func rewrites[K fold.Key](t *testing.T, key string, parse func(string) (K, error)) {
	t.Helper()
	k, err := parse(key)
	if err != nil {
		return
	}
	again, err := k.AppendKey(nil)
	if err != nil || string(again) != key {
		t.Fatalf("%q reads as %#v, which is written as %q, %v", key, k, again, err)
	}
}
