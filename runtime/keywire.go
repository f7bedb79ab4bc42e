package fold

import (
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/typedfold/fold/internal/wire"
	"github.com/typedfold/fold/runtime/keyenc"
	"github.com/typedfold/fold/runtime/schema"
)

// keySlots are the places of one variable's fields among those that the wire checker reads: the field itself, and the
// two fields of a Timestamp or Duration.
type keySlots struct{ own, seconds, nanos int }

func (s *keySlots) field(fields []wire.Field) *wire.Field { return &fields[s.own] }

// keyPaths are the paths that the checker reads, each once.
type keyPaths [][]protoreflect.FieldDescriptor

func (p *keyPaths) addAll(vars []schema.Var) []keySlots {
	all := make([]keySlots, len(vars))
	for i := range vars {
		v := &vars[i]
		if v.KeyOnly() {
			continue
		}
		all[i].own = p.add(v.Path)
		if v.Enc == keyenc.EncTime {
			fields := v.Field().Message().Fields()
			all[i].seconds = p.add(append(slices.Clone(v.Path), fields.ByNumber(1)))
			all[i].nanos = p.add(append(slices.Clone(v.Path), fields.ByNumber(2)))
		}
	}
	return all
}

func (p *keyPaths) add(path []protoreflect.FieldDescriptor) int {
	if i := slices.IndexFunc(*p, func(have []protoreflect.FieldDescriptor) bool { return slices.Equal(have, path) }); i >= 0 {
		return i
	}
	*p = append(*p, path)
	return len(*p) - 1
}

// appendField encodes the wire field f as the key variable that it is bound to; false when it has no such form.
func appendField(dst []byte, v *schema.Var, f *wire.Field, slots *keySlots, fields []wire.Field) ([]byte, bool) {
	if v.Tail {
		return keyenc.AppendTail(dst, bytesAsString(f.Bytes)), true
	}
	switch v.Enc {
	case keyenc.EncESC:
		return keyenc.AppendESC(dst, bytesAsString(f.Bytes)), true
	case keyenc.EncVerbatim:
		out, err := keyenc.AppendVerbatim(dst, bytesAsString(f.Bytes))
		return out, err == nil
	case keyenc.EncBool:
		return keyenc.AppendBool(dst, f.Num != 0), true
	case keyenc.EncInt:
		if f.Class == wire.ClassUint {
			return keyenc.AppendInt(dst, f.Num), true
		}
		return keyenc.AppendInt(dst, f.Int()), true
	case keyenc.EncDecimal:
		if f.Class == wire.ClassUint {
			return keyenc.AppendDecimal(dst, f.Num), true
		}
		return keyenc.AppendDecimal(dst, f.Int()), true
	case keyenc.EncHex:
		if v.Kind == keyenc.KindBytes || v.Kind == keyenc.KindString {
			return keyenc.AppendHex(dst, bytesAsString(f.Bytes)), true
		}
		return appendHexField(dst, v.Kind, f)
	case keyenc.EncUUID:
		return appendUUIDField(dst, f)
	case keyenc.EncTime:
		return appendTimeField(dst, v.Kind, fields[slots.seconds].Int(), int32(fields[slots.nanos].Int()))
	case keyenc.EncEnumName:
		out, err := keyenc.AppendEnumName(dst, v.Field().Enum(), protoreflect.EnumNumber(f.Int()))
		return out, err == nil
	}
	return dst, false
}

func appendHexField(dst []byte, k keyenc.Kind, f *wire.Field) ([]byte, bool) {
	switch k {
	case keyenc.KindInt32, keyenc.KindEnum:
		return keyenc.AppendHexInt(dst, int32(f.Int())), true
	case keyenc.KindInt64:
		return keyenc.AppendHexInt(dst, f.Int()), true
	case keyenc.KindUint32:
		return keyenc.AppendHexInt(dst, uint32(f.Num)), true
	case keyenc.KindUint64:
		return keyenc.AppendHexInt(dst, f.Num), true
	}
	return dst, false
}

func appendUUIDField(dst []byte, f *wire.Field) ([]byte, bool) {
	if f.Class == wire.ClassBytes {
		if len(f.Bytes) != len([16]byte{}) {
			return dst, false
		}
		return keyenc.AppendUUID(dst, [16]byte(f.Bytes)), true
	}
	_, err := keyenc.ParseUUID(bytesAsString(f.Bytes))
	return append(dst, f.Bytes...), err == nil
}

func appendTimeField(dst []byte, k keyenc.Kind, seconds int64, nanos int32) ([]byte, bool) {
	if k == keyenc.KindDuration {
		var ok bool
		if seconds, nanos, ok = floorSpan(seconds, nanos); !ok {
			return dst, false
		}
	}
	out, err := keyenc.AppendTime(dst, seconds, nanos)
	return out, err == nil
}
