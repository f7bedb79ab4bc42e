package wire

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Class says how the value of a [Field] is held.
type Class uint8

const (
	ClassBool    Class = iota + 1 // Num is 0 or 1
	ClassInt                      // signed integers and enums; Num is the int64 in two's complement
	ClassUint                     // unsigned integers, in Num
	ClassFloat                    // Num holds the 32 bits of a float
	ClassDouble                   // Num holds the 64 bits of a double
	ClassString                   // in Bytes
	ClassBytes                    // in Bytes
	ClassMessage                  // only Present is set
)

// Field is a key field as it would stand after decoding.
type Field struct {
	// Present is what Has would report: for a field with implicit presence
	// false means the zero value, else that the field is not set.
	Present bool
	Class   Class
	Num     uint64
	// Bytes aliases the checked value.
	Bytes []byte
}

// Int returns the value of a ClassInt field.
func (f *Field) Int() int64 { return int64(f.Num) }

type kind uint8

const (
	kindVarint kind = iota
	kindFixed32
	kindFixed64
	kindBytes
	kindUTF8
	kindMessage
	kindGroup
	kindMap
	kindRepeatedVarint
	kindRepeatedFixed32
	kindRepeatedFixed64
)

// field is the program of one known field.
type field struct {
	kind     kind
	accepts  uint8 // bit set of the wire types that are not "unknown"
	required uint64
	sub      *program
	number   protowire.Number
	key      *slot  // nil: not a key field
	clears   []slot // keys under the other members of the oneof
}

// slot says where and how a key field is stored.
type slot struct {
	index    int
	class    Class
	scalar   protoreflect.Kind
	explicit bool // has explicit presence
}

func (s *slot) reset(keys []Field) { keys[s.index] = Field{Class: s.class} }

func (s *slot) storeNum(keys []Field, v uint64) {
	switch s.scalar {
	case protoreflect.BoolKind:
		if v != 0 {
			v = 1
		}
	case protoreflect.Int32Kind, protoreflect.EnumKind, protoreflect.Sfixed32Kind:
		v = uint64(int64(int32(v)))
	case protoreflect.Uint32Kind:
		v &= math.MaxUint32
	case protoreflect.Sint32Kind:
		v = uint64(int64(int32(protowire.DecodeZigZag(v & math.MaxUint32))))
	case protoreflect.Sint64Kind:
		v = uint64(protowire.DecodeZigZag(v))
	}
	k := &keys[s.index]
	k.Num = v
	k.Present = s.explicit || v != 0
}

func (s *slot) storeBytes(keys []Field, v []byte) {
	k := &keys[s.index]
	k.Bytes = v
	k.Present = s.explicit || len(v) != 0
}

func classOf(k protoreflect.Kind) Class {
	switch k {
	case protoreflect.BoolKind:
		return ClassBool
	case protoreflect.EnumKind, protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind,
		protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return ClassInt
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return ClassUint
	case protoreflect.FloatKind:
		return ClassFloat
	case protoreflect.DoubleKind:
		return ClassDouble
	case protoreflect.StringKind:
		return ClassString
	case protoreflect.BytesKind:
		return ClassBytes
	default:
		return ClassMessage
	}
}
