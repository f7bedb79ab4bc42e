package wire_test

import (
	"math/rand/v2"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// generator writes random encodings that mostly follow a schema.
type generator struct {
	*rand.Rand
	wild bool // also what a decoder has to refuse or keep as unknown
}

func (g *generator) odds(n int) bool { return g.wild && g.IntN(n) == 0 }

func (g *generator) message(b []byte, md protoreflect.MessageDescriptor, depth int) []byte {
	fields := md.Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if (fd.Cardinality() == protoreflect.Required || md.IsMapEntry()) && !g.odds(25) {
			b = g.field(b, fd, max(depth, 1))
		}
	}
	if fields.Len() == 0 || md.IsMapEntry() && !g.odds(4) {
		return b
	}
	for range g.IntN(7) {
		switch {
		case g.odds(15):
			b = g.unknown(b, protowire.Number(1+g.IntN(300)), 2)
		case g.odds(60) && md.ExtensionRanges().Len() > 0:
			r := md.ExtensionRanges().Get(0)
			b = g.unknown(b, r[0]+protowire.Number(g.IntN(4)), 2)
		default:
			b = g.field(b, fields.Get(g.IntN(fields.Len())), depth)
		}
	}
	return b
}

func (g *generator) field(b []byte, fd protoreflect.FieldDescriptor, depth int) []byte {
	if g.odds(20) {
		return g.unknown(b, fd.Number(), 2)
	}
	if fd.Message() != nil {
		if depth == 0 {
			return b
		}
		if fd.Kind() == protoreflect.GroupKind {
			b = g.tag(b, fd.Number(), protowire.StartGroupType)
			b = g.message(b, fd.Message(), depth-1)
			return g.tag(b, fd.Number(), protowire.EndGroupType)
		}
		b = g.tag(b, fd.Number(), protowire.BytesType)
		return g.bytes(b, g.message(nil, fd.Message(), depth-1))
	}
	typ := scalarType(fd.Kind())
	if fd.IsList() && typ != protowire.BytesType && g.IntN(2) == 0 {
		var packed []byte
		for range g.IntN(5) {
			packed = g.scalar(packed, fd.Kind())
		}
		if g.odds(20) && len(packed) > 0 {
			packed = packed[:len(packed)-1]
		}
		return g.bytes(g.tag(b, fd.Number(), protowire.BytesType), packed)
	}
	return g.scalar(g.tag(b, fd.Number(), typ), fd.Kind())
}

func scalarType(k protoreflect.Kind) protowire.Type {
	switch k {
	case protoreflect.StringKind, protoreflect.BytesKind:
		return protowire.BytesType
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return protowire.Fixed32Type
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return protowire.Fixed64Type
	default:
		return protowire.VarintType
	}
}

func (g *generator) scalar(b []byte, k protoreflect.Kind) []byte {
	switch scalarType(k) {
	case protowire.BytesType:
		return g.bytes(b, g.text())
	case protowire.Fixed32Type:
		return protowire.AppendFixed32(b, uint32(g.number()))
	case protowire.Fixed64Type:
		return protowire.AppendFixed64(b, g.number())
	default:
		return g.varint(b, g.number())
	}
}

func (g *generator) number() uint64 {
	if g.IntN(4) == 0 {
		return 0
	}
	return g.Uint64() >> g.IntN(64)
}

func (g *generator) text() []byte {
	s := []byte("abcdefghijklmnopqrstuvwxyz"[:g.IntN(27)])
	switch {
	case g.odds(25):
		s = append(s, 0xc3)
	case g.odds(25) && len(s) > 0:
		s[g.IntN(len(s))] = byte(g.Uint32())
	case g.IntN(8) == 0:
		s = append(s, "é世🙂"...)
	}
	return s
}

func (g *generator) bytes(b, v []byte) []byte {
	n := uint64(len(v))
	switch {
	case g.odds(150):
		n++
	case g.odds(150):
		n = g.Uint64() >> g.IntN(64)
	}
	return append(g.varint(b, n), v...)
}

// varint is sometimes longer than it has to be.
func (g *generator) varint(b []byte, v uint64) []byte {
	b = protowire.AppendVarint(b, v)
	if g.odds(12) {
		for range 1 + g.IntN(3) {
			b[len(b)-1] |= 0x80
			b = append(b, 0)
		}
	}
	return b
}

func (g *generator) tag(b []byte, num protowire.Number, typ protowire.Type) []byte {
	if g.odds(200) {
		return g.varint(b, g.number())
	}
	return g.varint(b, protowire.EncodeTag(num, typ))
}

// unknown writes any value under a number, whatever the schema says of it.
func (g *generator) unknown(b []byte, num protowire.Number, depth int) []byte {
	typ := protowire.Type(g.IntN(6))
	if g.odds(40) {
		typ = protowire.Type(g.IntN(8))
	}
	b = g.tag(b, num, typ)
	switch typ {
	case protowire.VarintType:
		return g.varint(b, g.number())
	case protowire.Fixed32Type:
		return protowire.AppendFixed32(b, g.Uint32())
	case protowire.Fixed64Type:
		return protowire.AppendFixed64(b, g.Uint64())
	case protowire.StartGroupType:
		for range g.IntN(3) {
			inner := protowire.Number(1 + g.IntN(20))
			if g.odds(20) {
				inner = protowire.MaxValidNumber + protowire.Number(g.IntN(5))
			}
			if depth > 0 {
				b = g.unknown(b, inner, depth-1)
			}
		}
		return g.tag(b, num, protowire.EndGroupType)
	case protowire.BytesType:
		return g.bytes(b, g.text())
	default:
		return b
	}
}

// mutate damages an encoding.
func (g *generator) mutate(b []byte) []byte {
	for range 1 + g.IntN(3) {
		if len(b) == 0 {
			return append(b, byte(g.Uint32()))
		}
		at := g.IntN(len(b))
		switch g.IntN(7) {
		case 0:
			b = b[:at]
		case 1:
			b[at] ^= 1 << g.IntN(8)
		case 2:
			b[at] = byte(g.Uint32())
		case 3:
			b = append(b[:at], b[at+1:]...)
		case 4:
			b = append(b[:at], append([]byte{byte(g.Uint32())}, b[at:]...)...)
		case 5:
			end := at + g.IntN(len(b)-at+1)
			b = append(b, b[at:end]...)
		case 6:
			b[at] |= 0x80
		}
	}
	return b
}
