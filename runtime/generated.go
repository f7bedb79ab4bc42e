package fold

import (
	"bytes"
	"context"
	"iter"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/typedfold/fold/runtime/keyenc"
)

// What generated code is made of, so that it says only what differs from table to table.

// Rows are the rows of a read: at most one error, and that last.
type Rows[K Key, V proto.Message] = iter.Seq2[Row[K, V], error]

// KeyWriter writes a key, part by part. It is a value: each method gives back the writer for the next part. After a part
// that can't be written it leaves out all further ones, and End tells.
type KeyWriter struct {
	b   []byte
	rej *Rejection // no error, so that the writer is small enough for registers
}

// WriteKey appends a key to dst that begins with literals, which dots may join.
func WriteKey(dst []byte, literals string) KeyWriter { return KeyWriter{b: append(dst, literals...)} }

// End is what was written. With an error, a *Rejection KEY_SEGMENT, it ends before the part that the error names.
func (w KeyWriter) End() ([]byte, error) {
	if w.rej != nil {
		return w.b, w.rej
	}
	return w.b, nil
}

// Lit writes literals, which dots may join.
func (w KeyWriter) Lit(literals string) KeyWriter {
	if w.rej == nil {
		w.b = append(append(w.b, '.'), literals...)
	}
	return w
}

// ESC writes a string or bytes in ESC.
func (w KeyWriter) ESC(s string) KeyWriter {
	if w.rej == nil {
		w.b = keyenc.AppendESC(append(w.b, '.'), s)
	}
	return w
}

// Verbatim writes a string as it is, if that is a token.
func (w KeyWriter) Verbatim(field, s string) KeyWriter {
	if w.rej == nil {
		out, err := keyenc.AppendVerbatim(append(w.b, '.'), s)
		return w.checked(out, field, err)
	}
	return w
}

// Hex writes a string or bytes in HEX.
func (w KeyWriter) Hex(s string) KeyWriter {
	if w.rej == nil {
		w.b = keyenc.AppendHex(append(w.b, '.'), s)
	}
	return w
}

// Tail writes the tokens of a tail.
func (w KeyWriter) Tail(s string) KeyWriter {
	if w.rej == nil {
		w.b = keyenc.AppendTail(append(w.b, '.'), s)
	}
	return w
}

// Bool writes 0 or 1.
func (w KeyWriter) Bool(v bool) KeyWriter {
	if w.rej == nil {
		w.b = keyenc.AppendBool(append(w.b, '.'), v)
	}
	return w
}

// Int writes a signed integer of any width, or an enum's number, in INT.
func (w KeyWriter) Int(v int64) KeyWriter {
	if w.rej == nil {
		w.b = keyenc.AppendInt(append(w.b, '.'), v)
	}
	return w
}

// Uint writes an unsigned integer of any width in INT.
func (w KeyWriter) Uint(v uint64) KeyWriter {
	if w.rej == nil {
		w.b = keyenc.AppendInt(append(w.b, '.'), v)
	}
	return w
}

// DecimalInt writes a signed integer of any width, or an enum's number, in plain decimal.
func (w KeyWriter) DecimalInt(v int64) KeyWriter {
	if w.rej == nil {
		w.b = keyenc.AppendDecimal(append(w.b, '.'), v)
	}
	return w
}

// DecimalUint writes an unsigned integer of any width in plain decimal.
func (w KeyWriter) DecimalUint(v uint64) KeyWriter {
	if w.rej == nil {
		w.b = keyenc.AppendDecimal(append(w.b, '.'), v)
	}
	return w
}

// HexInt32 writes an integer of 32 bits, or an enum's number, in HEX.
func (w KeyWriter) HexInt32(v int32) KeyWriter { return hexInt(w, v) }

// HexInt64 writes an integer of 64 bits in HEX.
func (w KeyWriter) HexInt64(v int64) KeyWriter { return hexInt(w, v) }

// HexUint32 writes an unsigned integer of 32 bits in HEX.
func (w KeyWriter) HexUint32(v uint32) KeyWriter { return hexInt(w, v) }

// HexUint64 writes an unsigned integer of 64 bits in HEX.
func (w KeyWriter) HexUint64(v uint64) KeyWriter { return hexInt(w, v) }

func hexInt[T keyenc.FixedInteger](w KeyWriter, v T) KeyWriter {
	if w.rej == nil {
		w.b = keyenc.AppendHexInt(append(w.b, '.'), v)
	}
	return w
}

// UUID writes the 36 lower-case characters of a UUID.
func (w KeyWriter) UUID(id [16]byte) KeyWriter {
	if w.rej == nil {
		w.b = keyenc.AppendUUID(append(w.b, '.'), id)
	}
	return w
}

// Time writes an instant whose nanoseconds are in 0..999999999.
func (w KeyWriter) Time(field string, t Time) KeyWriter {
	if w.rej == nil {
		out, err := keyenc.AppendTime(append(w.b, '.'), t.Seconds, t.Nanos)
		return w.checked(out, field, err)
	}
	return w
}

// Span writes a length of time whose nanoseconds are in 0..999999999.
func (w KeyWriter) Span(field string, s Span) KeyWriter {
	if w.rej == nil {
		out, err := keyenc.AppendTime(append(w.b, '.'), s.Seconds, s.Nanos)
		return w.checked(out, field, err)
	}
	return w
}

// EnumName writes the name that an enum has for a number, if it has one.
func (w KeyWriter) EnumName(field string, e protoreflect.EnumDescriptor, n protoreflect.EnumNumber) KeyWriter {
	if w.rej == nil {
		out, err := keyenc.AppendEnumName(append(w.b, '.'), e, n)
		return w.checked(out, field, err)
	}
	return w
}

// checked goes on with out, or ends at the part that an encoder has refused.
func (w KeyWriter) checked(out []byte, field string, err error) KeyWriter {
	if err != nil {
		return KeyWriter{b: append(w.b, '.'), rej: &Rejection{Code: KeySegment, Field: field, Err: err}}
	}
	return KeyWriter{b: out}
}

// PrefixOf is the rows whose key has the same first tokens as k. A later part of k may be one that can't be written.
func PrefixOf[K Key](k K, tokens int) Prefix[K] {
	buf := readBufs.Get().(*readBuf)
	defer readBufs.Put(buf)
	b, err := k.AppendKey(buf.key[:0])
	buf.key = b
	for i, c := range b {
		if c != '.' {
			continue
		}
		if tokens--; tokens == 0 {
			return Prefix[K]{bytes: bytes.Clone(b[:i+1])}
		}
	}
	if err != nil {
		return Prefix[K]{err: err}
	}
	return Prefix[K]{bytes: bytes.Clone(b)} // the whole key
}

// ParsedKey is the key whose parts were read by r, if the literals are all that is left. Its error is a *Rejection.
func ParsedKey[K Key](r *KeyReader, k K, literals ...string) (K, error) {
	for _, token := range literals {
		r.Lit(token)
	}
	if err := r.End(); err != nil {
		var none K
		return none, err
	}
	return k, nil
}

// RequiredFields reads the key fields of a message, of which those at the paths have to be set; see RequireKeyFields.
func RequiredFields(m proto.Message, paths ...string) KeyFields {
	return KeyFields{err: RequireKeyFields(m, paths...)}
}

// FieldsKey is the key whose parts were read by f. Its error is a *Rejection.
func FieldsKey[K Key](f *KeyFields, k K) (K, error) {
	if f.err != nil {
		var none K
		return none, f.err
	}
	return k, nil
}

// KeyFiller sets the key fields of a message, one by one. After one that can't be set it leaves the rest, and End tells.
type KeyFiller struct {
	m   proto.Message
	err error
}

// FillKey sets fields of m.
func FillKey(m proto.Message) KeyFiller { return KeyFiller{m: m} }

// Set sets the field that the numbers lead to; see SetKeyField.
func (f KeyFiller) Set(value any, path ...int32) KeyFiller {
	if f.err == nil {
		f.err = SetKeyField(f.m, value, path...)
	}
	return f
}

// End is the error of the first field that could not be set.
func (f KeyFiller) End() error { return f.err }

// DescOf is the description of a table whose values carry their whole key.
func DescOf[K Key, V proto.Message](parseKey func(string) (K, error), keyOf func(V) (K, error)) *Desc[K, V] {
	return NewDesc(DescConfig[K, V]{ParseKey: parseKey, KeyOf: keyOf})
}

// FillDescOf is the description of a table whose values get their key fields from the key, by fill.
func FillDescOf[K Key, V proto.Message](parseKey func(string) (K, error), keyOf func(V) (K, error), fill func(V, K) error) *Desc[K, V] {
	return NewDesc(DescConfig[K, V]{ParseKey: parseKey, KeyOf: keyOf, Fill: fill})
}

// Parse is the judgement of one message by the table; see ParseEvent.
func (d *Desc[K, V]) Parse(e RawEntry) (Event[K, V], *Rejection) { return ParseEvent(d, e) }

// RegisterAs is Register with a generated type for the table.
func RegisterAs[T ~struct{ *Table[K, V] }, K Key, V proto.Message](b *Builder, d *Desc[K, V], opts ...TableOption) (T, error) {
	t, err := Register(b, d, opts...)
	return T{t}, err
}

// RegisterUnorderedAs is RegisterUnordered with a generated type for the table.
func RegisterUnorderedAs[T ~struct{ *UnorderedTable[K, V] }, K Key, V proto.Message](b *Builder, d *Desc[K, V], opts ...TableOption) (T, error) {
	t, err := RegisterUnordered(b, d, opts...)
	return T{t}, err
}

// CallHook calls a hook that may be nil.
func CallHook[T any](ctx context.Context, hook func(context.Context, T) error, arg T) error {
	if hook == nil {
		return nil
	}
	return hook(ctx, arg)
}

// HooksOf has a table call the methods load and apply of h, or the functions of h if it is an F. A nil h is no hooks.
func HooksOf[F ~struct {
	Load  func(context.Context, Rows[K, V]) error
	Apply func(context.Context, []Event[K, V]) error
}, H any, K Key, V proto.Message](h H, load func(H, context.Context, Rows[K, V]) error, apply func(H, context.Context, []Event[K, V]) error) TableOption {
	switch f := any(h).(type) {
	case nil:
		return WithHooks(Hooks[K, V]{})
	case F:
		return WithHooks(Hooks[K, V](f)) // without the hook that is nil
	}
	return WithHooks(Hooks[K, V]{
		Load:  func(ctx context.Context, rows Rows[K, V]) error { return load(h, ctx, rows) },
		Apply: func(ctx context.Context, events []Event[K, V]) error { return apply(h, ctx, events) },
	})
}
