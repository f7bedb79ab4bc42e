package wire_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/typedfold/fold/internal/wire"
	"github.com/typedfold/fold/internal/wire/internal/wiretest"
)

// wrapping returns what stands before and after n bytes that are nested once.
type wrapping func(n int) (before, after []byte)

// nest wraps nothing that often.
func nest(levels int, wrap wrapping) []byte { return nestAround(nil, levels, wrap) }

func nestAround(inner []byte, levels int, wrap wrapping) []byte {
	befores := make([][]byte, levels)
	b, n := slices.Clone(inner), len(inner)
	for i := range levels {
		before, after := wrap(n)
		befores[levels-1-i] = before
		b = append(b, after...)
		n += len(before) + len(after)
	}
	return append(slices.Concat(befores...), b...)
}

func inBytes(num protowire.Number) wrapping {
	return func(n int) ([]byte, []byte) {
		return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.BytesType), uint64(n)), nil
	}
}

func inGroup(num protowire.Number) wrapping {
	return func(int) ([]byte, []byte) {
		return protowire.AppendTag(nil, num, protowire.StartGroupType), protowire.AppendTag(nil, num, protowire.EndGroupType)
	}
}

func bytesField(num protowire.Number, v string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, num, protowire.BytesType), v)
}

func varintField(num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)
}

func TestRecursionLimit(t *testing.T) {
	const limit = protowire.DefaultRecursionLimit
	inEntry := func(n int) ([]byte, []byte) {
		value, _ := inBytes(2)(n)
		entry, _ := inBytes(52)(n + len(value))
		return append(entry, value...), nil
	}
	cases := []struct {
		name string
		m    proto.Message
		wrap wrapping
		last int // the most levels that are accepted
	}{
		{"message", &wiretest.All{}, inBytes(17), limit - 1},
		{"oneof", &wiretest.All{}, inBytes(23), limit - 1},
		{"list", &wiretest.All{}, inBytes(41), limit - 1},
		{"map", &wiretest.All{}, inEntry, (limit - 1) / 2},
		{"group", &wiretest.Edition{}, inGroup(5), limit - 1},
		{"unknown group", &wiretest.All{}, inGroup(3000), limit + 1},
		{"lazy", &wiretest.Opaque{}, inBytes(2), limit - 1},
		{"lazy group", &wiretest.Opaque{}, inGroup(5), limit - 1},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := compile(t, tc.m)
			for _, levels := range []int{tc.last - 1, tc.last, tc.last + 1, tc.last + 2} {
				b := nest(levels, tc.wrap)
				got := c.Check(b, nil)
				want := proto.Unmarshal(b, tc.m.ProtoReflect().New().Interface())
				if (got == nil) != (want == nil) || (got == nil) != (levels <= tc.last) {
					t.Errorf("%d levels: check: %v, unmarshal: %v", levels, got, want)
				}
			}
		})
	}
	t.Run("error", func(t *testing.T) {
		if err := compile(t, &wiretest.All{}).Check(nest(limit, inBytes(17)), nil); !errors.Is(err, wire.ErrTooDeep) {
			t.Error(err)
		}
	})
	t.Run("map of another wire type", func(t *testing.T) {
		far := nestAround(varintField(52, 1), limit-1, inBytes(17))
		near := nestAround(varintField(8, 1), limit-1, inBytes(10))
		for _, err := range []error{
			compile(t, &wiretest.All{}).Check(far, nil),
			compile(t, &wiretest.Two{}).Check(near, nil),
		} {
			if !errors.Is(err, wire.ErrUncheckable) {
				t.Errorf("the runtime's lazy and eager ways differ here: %v", err)
			}
		}
	})
}

func TestKeysMergeAsDecoded(t *testing.T) {
	meta := func(m *wiretest.Deployment_Meta) []byte {
		b, err := proto.Marshal(&wiretest.Deployment{Meta: m})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	b := meta(&wiretest.Deployment_Meta{Id: "first", Shard: -7, Zone: proto.Int32(-1)})
	b = append(b, meta(&wiretest.Deployment_Meta{Id: "second"})...)
	b = append(b, meta(&wiretest.Deployment_Meta{})...)
	c := compile(t, &wiretest.Deployment{}, "meta", "meta.id", "meta.shard", "meta.zone")
	keys := make([]wire.Field, c.Keys())
	if err := c.Check(b, keys); err != nil {
		t.Fatal(err)
	}
	if !keys[0].Present || string(keys[1].Bytes) != "second" || keys[2].Int() != -7 || keys[3].Int() != -1 {
		t.Errorf("keys after a merge: %+v", keys)
	}
	if err := c.Check(nil, keys); err != nil || keys[0].Present || keys[1].Present || keys[2].Present || keys[3].Present {
		t.Errorf("keys of an empty message: %+v, %v", keys, err)
	}
}

func TestOneofDropsOtherKeys(t *testing.T) {
	c := compile(t, &wiretest.All{}, "p_string", "p_all.f_string", "p_all.o_int32", "p_int64")
	b := bytesField(23, string(bytesField(14, "dropped")))
	b = append(b, bytesField(21, "dropped as well")...)
	b = append(b, bytesField(23, string(varintField(18, 5)))...)
	keys := make([]wire.Field, c.Keys())
	if err := c.Check(b, keys); err != nil {
		t.Fatal(err)
	}
	if keys[0].Present || keys[1].Present || !keys[2].Present || keys[2].Int() != 5 || keys[3].Present {
		t.Errorf("keys: %+v", keys)
	}
}

func TestKeyOfAnotherWireTypeIsAbsent(t *testing.T) {
	c := compile(t, &wiretest.Route{}, "tenant", "weight")
	b := append(varintField(1, 1), bytesField(4, "7")...)
	keys := make([]wire.Field, 2)
	if err := c.Check(b, keys); err != nil || keys[0].Present || keys[1].Present {
		t.Errorf("keys: %+v, %v", keys, err)
	}
}

func TestExtensions(t *testing.T) {
	c := compile(t, &wiretest.Extendable{}, "id")
	keys := make([]wire.Field, 1)
	for _, num := range []protowire.Number{11, 150} {
		if err := c.Check(varintField(num, 1), keys); err != nil {
			t.Errorf("number %d, which no extension has: %v", num, err)
		}
	}
	for _, b := range [][]byte{bytesField(10, ""), varintField(100, 1), varintField(101, 1), bytesField(2, string(varintField(101, 1)))} {
		if err := c.Check(b, keys); !errors.Is(err, wire.ErrUncheckable) {
			t.Errorf("a registered extension: %x: %v", b, err)
		}
	}
}

func TestRequired(t *testing.T) {
	c := compile(t, &wiretest.Required{})
	if err := c.Check(nil, nil); !errors.Is(err, wire.ErrRequired) {
		t.Errorf("missing at the top: %v", err)
	}
	whole := &wiretest.Required{Id: proto.String("a"), Number: proto.Uint64(1), Box: &wiretest.Required_Box{Size: proto.Int32(1)}}
	whole.Child = proto.CloneOf(whole)
	b, err := proto.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(b, nil); err != nil {
		t.Errorf("complete: %v", err)
	}
	if err := c.Check(append(b, bytesField(3, "")...), nil); !errors.Is(err, wire.ErrUncheckable) {
		t.Errorf("an occurrence that lacks what an earlier one has: %v", err)
	}
}

func TestErrorsSayWhereAndWhy(t *testing.T) {
	route := func(b ...byte) error { return compile(t, &wiretest.Route{}).Check(b, nil) }
	cases := []struct {
		err  error
		is   error
		text string
	}{
		{route(0x20, 0x01, 0x0a, 0x05, 'a'), wire.ErrMalformed, "fold.internal.wiretest.Route: malformed message: field runs past the end at byte 2 of 5"},
		{route(0x0a, 0x01, 0xff), wire.ErrInvalidUTF8, "invalid utf-8 at byte 0 of 3"},
		{route(0x00), wire.ErrMalformed, "illegal field number"},
		{route(0x0c), wire.ErrMalformed, "group start and end"},
		{route(0x20, 0xff), wire.ErrMalformed, "varint"},
		{route(0x0e), wire.ErrMalformed, "unknown field"},
	}
	for _, tc := range cases {
		if !errors.Is(tc.err, tc.is) || !strings.Contains(tc.err.Error(), tc.text) {
			t.Errorf("got %v, want %q", tc.err, tc.text)
		}
	}
	if err := compile(t, &wiretest.Route{}).Check(nil, make([]wire.Field, 1)); !errors.Is(err, wire.ErrKeys) {
		t.Error(err)
	}
}

type messageSet struct{ protoreflect.MessageDescriptor }

func (messageSet) IsMessageSet() bool { return true }

type placeholder struct{ protoreflect.MessageDescriptor }

func (placeholder) IsPlaceholder() bool { return true }

func TestCompileRefuses(t *testing.T) {
	all := (&wiretest.All{}).ProtoReflect().Descriptor()
	route := (&wiretest.Route{}).ProtoReflect().Descriptor()
	path := func(md protoreflect.MessageDescriptor, name string) []protoreflect.FieldDescriptor {
		p, err := wire.Path(md, name)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	tenant := path(route, "tenant")
	cases := []struct {
		name  string
		md    protoreflect.MessageDescriptor
		paths [][]protoreflect.FieldDescriptor
		is    error
	}{
		{"message set", messageSet{route}, nil, wire.ErrUncheckable},
		{"placeholder", placeholder{route}, nil, wire.ErrUncheckable},
		{"empty path", route, [][]protoreflect.FieldDescriptor{{}}, wire.ErrPath},
		{"twice", route, [][]protoreflect.FieldDescriptor{tenant, tenant}, wire.ErrPath},
		{"repeated", all, [][]protoreflect.FieldDescriptor{path(all, "r_int32")}, wire.ErrPath},
		{"through repeated", all, [][]protoreflect.FieldDescriptor{path(all, "r_all.f_int32")}, wire.ErrPath},
		{"map", all, [][]protoreflect.FieldDescriptor{path(all, "m_string.key")}, wire.ErrPath},
		{"of another type", all, [][]protoreflect.FieldDescriptor{tenant}, wire.ErrPath},
		{"below a scalar", route, [][]protoreflect.FieldDescriptor{{tenant[0], tenant[0]}}, wire.ErrPath},
	}
	for _, tc := range cases {
		if _, err := wire.Compile(tc.md, tc.paths); !errors.Is(err, tc.is) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	for _, name := range []string{"", "nope", "tenant.nope"} {
		if _, err := wire.Path(route, name); !errors.Is(err, wire.ErrPath) {
			t.Errorf("path %q: %v", name, err)
		}
	}
}

func TestCheckDoesNotAllocate(t *testing.T) {
	flat, flatKeys := sampleRoute()
	nested, nestedKeys := sampleDeployment()
	for _, tc := range []struct {
		m     proto.Message
		names []string
	}{{flat, flatKeys}, {nested, nestedKeys}} {
		c, b, keys := compileSample(t, tc.m, tc.names)
		n := testing.AllocsPerRun(100, func() {
			if err := c.Check(b, keys); err != nil {
				t.Error(err)
			}
		})
		if n != 0 {
			t.Errorf("%T: %v allocations", tc.m, n)
		}
	}
}

func TestCheckerIsSafeForConcurrentUse(t *testing.T) {
	m, names := sampleDeployment()
	c, b, _ := compileSample(t, m, names)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			keys := make([]wire.Field, c.Keys())
			for range 200 {
				if err := c.Check(b, keys); err != nil || string(keys[0].Bytes) != m.GetMeta().GetId() {
					t.Errorf("%+v: %v", keys, err)
				}
			}
		})
	}
	wg.Wait()
}
