package fold

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/typedfold/fold/internal/wire"
	"github.com/typedfold/fold/runtime/keyenc"
	"github.com/typedfold/fold/runtime/schema"

	foldv1 "github.com/typedfold/fold/gen/go/fold/v1"
)

// indexField is one field of an index, and where its value is found.
type indexField struct {
	*schema.IndexField
	slots keySlots
	// present are the places, among the fields that the wire checker reads, of those that have to be set.
	present []int
	// bound is the key variable that says the value, since the stored message does not; nil for none.
	bound *schema.Var
	// segment is where the variable is in the pattern.
	segment int
	// filled is how many messages on the way to the field are always set, since the key fills a field in them.
	filled int
}

// indexValue is a field's value: a number in two's complement, or a text, or seconds in number and nanoseconds.
type indexValue struct {
	number uint64
	nanos  int32
	text   string // may alias the row
}

func newIndexField(t *schema.Table, in *schema.IndexField, paths *keyPaths) indexField {
	f := indexField{IndexField: in}
	if t.Bind == foldv1.Bind_BIND_FILL {
		if f.fill(t); f.bound != nil {
			return f
		}
	}
	if in.Repeated {
		return f
	}
	f.slots.own = paths.add(in.Path)
	for i, fd := range in.Path {
		if fd.HasPresence() && i >= f.filled {
			f.present = append(f.present, paths.add(in.Path[:i+1]))
		}
	}
	if in.Enc == keyenc.EncTime {
		fields := in.Field().Message().Fields()
		f.slots.seconds = paths.add(append(slices.Clone(in.Path), fields.ByNumber(1)))
		f.slots.nanos = paths.add(append(slices.Clone(in.Path), fields.ByNumber(2)))
	}
	return f
}

// fill finds what the key says of the field, and of the messages on the way to it.
func (f *indexField) fill(t *schema.Table) {
	for i, token := range t.Pattern {
		if token.Var < 0 || t.Vars[token.Var].KeyOnly() {
			continue
		}
		v := &t.Vars[token.Var]
		if slices.Equal(v.Path, f.Path) {
			f.bound, f.segment = v, i
			return
		}
		shared := 0
		for shared < min(len(v.Path), len(f.Path))-1 && v.Path[shared] == f.Path[shared] {
			shared++
		}
		f.filled = max(f.filled, shared)
	}
}

// valueSource is a value that was read on the wire, or decoded.
type valueSource struct {
	fields  []wire.Field
	message protoreflect.Message
}

// read is the field's value in a row; false when it is unset.
func (f *indexField) read(key string, s valueSource, element int) (indexValue, bool) {
	switch {
	case f.bound != nil:
		return f.fromKey(key)
	case s.message == nil:
		return f.fromWire(s.fields)
	}
	m, ok := f.owner(s.message)
	if !ok {
		return indexValue{}, false
	}
	fd := f.Field()
	switch {
	case f.Repeated:
		return f.fromValue(m.Get(fd).List().Get(element)), true
	case fd.HasPresence() && !m.Has(fd):
		return indexValue{}, false
	}
	return f.fromValue(m.Get(fd)), true
}

// owner is the message that has the field; false when it, or one on the way to it, is unset.
func (f *indexField) owner(m protoreflect.Message) (protoreflect.Message, bool) {
	for i, fd := range f.Path[:len(f.Path)-1] {
		if i >= f.filled && !m.Has(fd) {
			return nil, false
		}
		m = m.Get(fd).Message()
	}
	return m, true
}

// elements is how many elements the repeated field has.
func (f *indexField) elements(m protoreflect.Message) int {
	if m, ok := f.owner(m); ok {
		return m.Get(f.Field()).List().Len()
	}
	return 0
}

func (f *indexField) fromWire(fields []wire.Field) (indexValue, bool) {
	for _, i := range f.present {
		if !fields[i].Present {
			return indexValue{}, false
		}
	}
	if f.Enc == keyenc.EncTime {
		return indexValue{number: fields[f.slots.seconds].Num, nanos: int32(fields[f.slots.nanos].Int())}, true
	}
	own := &fields[f.slots.own]
	return indexValue{number: own.Num, text: bytesAsString(own.Bytes)}, true
}

func (f *indexField) fromValue(v protoreflect.Value) indexValue {
	switch f.Kind {
	case keyenc.KindString:
		return indexValue{text: v.String()}
	case keyenc.KindBytes:
		return indexValue{text: bytesAsString(v.Bytes())}
	case keyenc.KindBool:
		if v.Bool() {
			return indexValue{number: 1}
		}
	case keyenc.KindInt32, keyenc.KindInt64:
		return indexValue{number: uint64(v.Int())}
	case keyenc.KindUint32, keyenc.KindUint64:
		return indexValue{number: v.Uint()}
	case keyenc.KindEnum:
		return indexValue{number: uint64(int64(v.Enum()))}
	case keyenc.KindTimestamp, keyenc.KindDuration:
		m := v.Message()
		fields := m.Descriptor().Fields()
		return indexValue{number: uint64(m.Get(fields.ByNumber(1)).Int()), nanos: int32(m.Get(fields.ByNumber(2)).Int())}
	}
	return indexValue{}
}

// append encodes a value; false for a Timestamp or Duration that is none.
func (f *indexField) append(dst []byte, v indexValue) ([]byte, bool) {
	switch f.Enc {
	case keyenc.EncESC:
		return keyenc.AppendESC(dst, v.text), true
	case keyenc.EncBool:
		return keyenc.AppendBool(dst, v.number != 0), true
	case keyenc.EncInt:
		if f.unsigned() {
			return keyenc.AppendInt(dst, v.number), true
		}
		return keyenc.AppendInt(dst, int64(v.number)), true
	case keyenc.EncDecimal:
		if f.unsigned() {
			return keyenc.AppendDecimal(dst, v.number), true
		}
		return keyenc.AppendDecimal(dst, int64(v.number)), true
	case keyenc.EncHex:
		return f.appendHex(dst, v)
	case keyenc.EncTime:
		return appendTimeField(dst, f.Kind, int64(v.number), v.nanos)
	}
	return dst, false
}

func (f *indexField) unsigned() bool {
	return f.Kind == keyenc.KindUint32 || f.Kind == keyenc.KindUint64
}

func (f *indexField) appendHex(dst []byte, v indexValue) ([]byte, bool) {
	switch f.Kind {
	case keyenc.KindString, keyenc.KindBytes:
		return keyenc.AppendHex(dst, v.text), true
	case keyenc.KindInt32, keyenc.KindEnum:
		return keyenc.AppendHexInt(dst, int32(v.number)), true
	case keyenc.KindInt64:
		return keyenc.AppendHexInt(dst, int64(v.number)), true
	case keyenc.KindUint32:
		return keyenc.AppendHexInt(dst, uint32(v.number)), true
	case keyenc.KindUint64:
		return keyenc.AppendHexInt(dst, v.number), true
	}
	return dst, false
}

// fromKey reads a field that the key fills; false for a key that can't be read, which has no row.
func (f *indexField) fromKey(key string) (indexValue, bool) {
	for range f.segment {
		_, key, _ = strings.Cut(key, ".")
	}
	if f.bound.Tail {
		text, err := keyenc.ParseTail(key)
		return indexValue{text: text}, err == nil
	}
	token, _, _ := strings.Cut(key, ".")
	v, err := parseBound(f.bound, token)
	return v, err == nil
}

func parseBound(b *schema.Var, token string) (v indexValue, err error) {
	switch b.Kind {
	case keyenc.KindInt32:
		return parseNumber[int32](b.Enc, token)
	case keyenc.KindInt64:
		return parseNumber[int64](b.Enc, token)
	case keyenc.KindUint32:
		return parseNumber[uint32](b.Enc, token)
	case keyenc.KindUint64:
		return parseNumber[uint64](b.Enc, token)
	}
	switch b.Enc {
	case keyenc.EncESC:
		v.text, err = keyenc.ParseESC(token)
	case keyenc.EncVerbatim:
		v.text, err = keyenc.ParseVerbatim(token)
	case keyenc.EncBool:
		var set bool
		if set, err = keyenc.ParseBool(token); set {
			v.number = 1
		}
	case keyenc.EncUUID:
		var id [16]byte
		if id, err = keyenc.ParseUUID(token); !b.KeyOnly() && b.Field().Kind() == protoreflect.BytesKind {
			v.text = string(id[:])
		} else {
			v.text = token // its one form
		}
	case keyenc.EncTime:
		var seconds int64
		if seconds, v.nanos, err = keyenc.ParseTime(token); b.Kind == keyenc.KindDuration {
			seconds, v.nanos = Span{Seconds: seconds, Nanos: v.nanos}.parts()
		}
		v.number = uint64(seconds)
	case keyenc.EncEnumName:
		var n protoreflect.EnumNumber
		n, err = keyenc.ParseEnumName(b.Field().Enum(), token)
		v.number = uint64(int64(n))
	case keyenc.EncHex:
		if b.Kind == keyenc.KindEnum {
			return parseNumber[int32](b.Enc, token)
		}
		v.text, err = keyenc.ParseHex(token)
	default: // enums
		return parseNumber[int32](b.Enc, token)
	}
	return v, err
}

func parseNumber[T keyenc.FixedInteger](enc keyenc.Encoding, token string) (indexValue, error) {
	var n T
	var err error
	switch enc {
	case keyenc.EncDecimal:
		n, err = keyenc.ParseDecimal[T](token)
	case keyenc.EncHex:
		n, err = keyenc.ParseHexInt[T](token)
	default:
		n, err = keyenc.ParseInt[T](token)
	}
	return indexValue{number: uint64(n)}, err
}
