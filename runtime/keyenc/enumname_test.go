package keyenc

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"pgregory.net/rapid"
)

func TestEnumName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := names.Values().Get(rapid.IntRange(0, names.Values().Len()-1).Draw(t, "value")).Number()
		roundTrip(t, n, func(b []byte, n protoreflect.EnumNumber) []byte { return must(AppendEnumName(b, names, n)) },
			func(token string) (protoreflect.EnumNumber, error) { return ParseEnumName(names, token) })
	})
	if b, err := AppendEnumName([]byte("k."), names, 99); !errors.Is(err, ErrForm) || string(b) != "k." {
		t.Errorf("a number without a name: %q, %v", b, err)
	}
	for _, token := range []string{"", "on", "ONE", "Names.ON", "-7", "*"} {
		if _, err := ParseEnumName(names, token); !errors.Is(err, ErrForm) {
			t.Errorf("%q: %v", token, err)
		}
	}
}

// Of two names of one number only the first is written, so only that one is read.
func TestEnumNameOfAlias(t *testing.T) {
	value := func(name string, n int32) *descriptorpb.EnumValueDescriptorProto {
		return &descriptorpb.EnumValueDescriptorProto{Name: &name, Number: &n}
	}
	e := must(protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("alias.proto"), Syntax: proto.String("proto2"),
		EnumType: []*descriptorpb.EnumDescriptorProto{{
			Name: proto.String("Alias"), Value: []*descriptorpb.EnumValueDescriptorProto{value("A", 0), value("B", 1), value("C", 1)},
			Options: &descriptorpb.EnumOptions{AllowAlias: proto.Bool(true)},
		}},
	}, nil)).Enums().Get(0)
	if n, err := ParseEnumName(e, "B"); n != 1 || err != nil {
		t.Errorf("B: %d, %v", n, err)
	}
	if _, err := ParseEnumName(e, "C"); !errors.Is(err, ErrNotCanonical) {
		t.Errorf("C: %v", err)
	}
	if b := must(AppendEnumName(nil, e, 1)); string(b) != "B" {
		t.Errorf("1 is written %s", b)
	}
}

func TestEnumNameAllocations(t *testing.T) {
	buf := make([]byte, 0, 64)
	var n protoreflect.EnumNumber
	var err error
	if got := testing.AllocsPerRun(200, func() {
		buf, err = AppendEnumName(buf[:0], names, -7)
		n, err = ParseEnumName(names, "pa1")
	}); got != 0 || err != nil || string(buf) != "ON" || n != 6 {
		t.Errorf("%v allocations, %q, %d, %v", got, buf, n, err)
	}
}
