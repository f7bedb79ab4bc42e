package fold

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/typedfold/fold/runtime/keyenc"
)

// Key is a table's key struct. AppendKey appends the NATS key; its error is a *Rejection that names the field.
type Key interface {
	comparable
	AppendKey([]byte) ([]byte, error)
}

// KeyString is the NATS key of k as text, for String methods. A key that can't be written is "!(why)".
func KeyString[K Key](k K) string {
	text, err := keyText(k)
	if err != nil {
		return "!(" + err.Error() + ")"
	}
	return text
}

// keyText is the NATS key of k, with one allocation.
func keyText[K Key](k K) (string, error) {
	buf := readBufs.Get().(*readBuf)
	defer readBufs.Put(buf)
	b, err := k.AppendKey(buf.key[:0])
	if err != nil {
		return "", err
	}
	buf.key = b
	return string(b), nil
}

// AppendESC appends a string or bytes in ESC.
func AppendESC(dst []byte, s string) []byte { return keyenc.AppendESC(dst, s) }

// AppendVerbatim appends a string as it is. A value that is no token is a *Rejection KEY_SEGMENT.
func AppendVerbatim(dst []byte, field, s string) ([]byte, error) {
	out, err := keyenc.AppendVerbatim(dst, s)
	return appended(dst, out, field, err)
}

// AppendInt appends an integer or an enum's number in INT.
func AppendInt[T keyenc.Integer](dst []byte, v T) []byte { return keyenc.AppendInt(dst, v) }

// AppendHex appends bytes in HEX.
func AppendHex(dst []byte, s string) []byte { return keyenc.AppendHex(dst, s) }

// AppendHexInt appends an integer in HEX of fixed width.
func AppendHexInt[T keyenc.FixedInteger](dst []byte, v T) []byte { return keyenc.AppendHexInt(dst, v) }

// AppendBool appends 0 or 1.
func AppendBool(dst []byte, v bool) []byte { return keyenc.AppendBool(dst, v) }

// AppendDecimal appends an integer or an enum's number in plain decimal.
func AppendDecimal[T keyenc.Integer](dst []byte, v T) []byte { return keyenc.AppendDecimal(dst, v) }

// AppendUUID appends the 36 lower-case characters of a UUID.
func AppendUUID(dst []byte, id [16]byte) []byte { return keyenc.AppendUUID(dst, id) }

// AppendTime appends an instant. Nanoseconds that are not in 0..999999999 are a *Rejection KEY_SEGMENT.
func AppendTime(dst []byte, field string, t Time) ([]byte, error) {
	out, err := keyenc.AppendTime(dst, t.Seconds, t.Nanos)
	return appended(dst, out, field, err)
}

// AppendSpan appends a length of time. Nanoseconds that are not in 0..999999999 are a *Rejection KEY_SEGMENT.
func AppendSpan(dst []byte, field string, s Span) ([]byte, error) {
	out, err := keyenc.AppendTime(dst, s.Seconds, s.Nanos)
	return appended(dst, out, field, err)
}

// EnumValue is a generated Go enum.
type EnumValue interface {
	~int32
	protoreflect.Enum
}

// AppendEnumName appends the name of an enum's value. A number without a name is a *Rejection KEY_SEGMENT.
func AppendEnumName[E EnumValue](dst []byte, field string, v E) ([]byte, error) {
	out, err := keyenc.AppendEnumName(dst, v.Descriptor(), protoreflect.EnumNumber(v))
	return appended(dst, out, field, err)
}

// appended is what an encoder that can refuse has made of dst.
func appended(dst, out []byte, field string, err error) ([]byte, error) {
	if err != nil {
		return dst, &Rejection{Code: KeySegment, Field: field, Err: err}
	}
	return out, nil
}

// AppendTail appends the tokens of a tail, joined by dots.
func AppendTail(dst []byte, s string) []byte { return keyenc.AppendTail(dst, s) }

// KeyReader reads a key token by token. Its methods return zero values after a failure, and End tells: a pattern that
// does not fit goes before a token that does not, whichever comes first in the key, since such a key is another
// table's. It is a value for the stack of one call; the strings that it returns alias the key where nothing was escaped.
type KeyReader struct {
	key   string
	rest  string
	ended bool // no token is left
	rej   *Rejection
}

// ReadKey begins with the first token of key, or the one after the literals.
func ReadKey(key string, literals ...string) KeyReader {
	r := KeyReader{key: key, rest: key, ended: key == ""}
	for _, token := range literals {
		r.Lit(token)
	}
	return r
}

// Lit passes a token that must be the literal, and is r.
func (r *KeyReader) Lit(token string) *KeyReader {
	if got, ok := r.next(); ok && got != token {
		r.noPattern("token %q, want %q", got, token)
	}
	return r
}

// ESC reads a string.
func (r *KeyReader) ESC(field string) string {
	token, ok := r.next()
	if !ok {
		return ""
	}
	v, err := keyenc.ParseESC(token)
	if err != nil {
		r.fail(field, err)
	}
	return v
}

// Verbatim reads a string.
func (r *KeyReader) Verbatim(field string) string {
	token, ok := r.next()
	if !ok {
		return ""
	}
	v, err := keyenc.ParseVerbatim(token)
	if err != nil {
		r.fail(field, err)
	}
	return v
}

// Hex reads bytes.
func (r *KeyReader) Hex(field string) string {
	token, ok := r.next()
	if !ok {
		return ""
	}
	v, err := keyenc.ParseHex(token)
	if err != nil {
		r.fail(field, err)
	}
	return v
}

// Bool reads 0 or 1.
func (r *KeyReader) Bool(field string) bool {
	token, ok := r.next()
	if !ok {
		return false
	}
	v, err := keyenc.ParseBool(token)
	if err != nil {
		r.fail(field, err)
	}
	return v
}

// UUID reads a UUID.
func (r *KeyReader) UUID(field string) (id [16]byte) {
	token, ok := r.next()
	if !ok {
		return id
	}
	id, err := keyenc.ParseUUID(token)
	if err != nil {
		r.fail(field, err)
	}
	return id
}

// Time reads an instant.
func (r *KeyReader) Time(field string) Time {
	seconds, nanos := r.seconds(field)
	return Time{Seconds: seconds, Nanos: nanos}
}

// Span reads a length of time.
func (r *KeyReader) Span(field string) Span {
	seconds, nanos := r.seconds(field)
	return Span{Seconds: seconds, Nanos: nanos}
}

func (r *KeyReader) seconds(field string) (int64, int32) {
	token, ok := r.next()
	if !ok {
		return 0, 0
	}
	seconds, nanos, err := keyenc.ParseTime(token)
	if err != nil {
		r.fail(field, err)
	}
	return seconds, nanos
}

// Tail reads all tokens that are left, one or more.
func (r *KeyReader) Tail(field string) string {
	if r.ended {
		r.tooFew()
		return ""
	}
	v, err := keyenc.ParseTail(r.rest)
	r.rest, r.ended = "", true
	if err != nil {
		r.fail(field, err)
	}
	return v
}

// ReadInt reads an integer or an enum's number in INT.
func ReadInt[T keyenc.Integer](r *KeyReader, field string) T {
	token, ok := r.next()
	if !ok {
		return 0
	}
	v, err := keyenc.ParseInt[T](token)
	if err != nil {
		r.fail(field, err)
	}
	return v
}

// ReadHexInt reads an integer in HEX of fixed width.
func ReadHexInt[T keyenc.FixedInteger](r *KeyReader, field string) T {
	token, ok := r.next()
	if !ok {
		return 0
	}
	v, err := keyenc.ParseHexInt[T](token)
	if err != nil {
		r.fail(field, err)
	}
	return v
}

// ReadDecimal reads an integer or an enum's number in plain decimal.
func ReadDecimal[T keyenc.Integer](r *KeyReader, field string) T {
	token, ok := r.next()
	if !ok {
		return 0
	}
	v, err := keyenc.ParseDecimal[T](token)
	if err != nil {
		r.fail(field, err)
	}
	return v
}

// ReadEnumName reads the name of an enum's value.
func ReadEnumName[E EnumValue](r *KeyReader, field string) (v E) {
	token, ok := r.next()
	if !ok {
		return v
	}
	n, err := keyenc.ParseEnumName(v.Descriptor(), token)
	if err != nil {
		r.fail(field, err)
	}
	return E(n)
}

// End is nil when the whole key was read, else a *Rejection with the key, but no table and no revision. The values read
// must not be used then.
func (r *KeyReader) End() error {
	if !r.ended {
		r.noPattern("tokens %q after the pattern's end", r.rest)
	}
	if r.rej != nil {
		return r.rej
	}
	return nil
}

func (r *KeyReader) next() (string, bool) {
	if r.ended {
		r.tooFew()
		return "", false
	}
	i := strings.IndexByte(r.rest, '.')
	if i < 0 {
		token := r.rest
		r.rest, r.ended = "", true
		return token, true
	}
	token := r.rest[:i]
	r.rest = r.rest[i+1:]
	return token, true
}

func (r *KeyReader) tooFew() { r.noPattern("too few tokens") }

// noPattern notes that the key is not the pattern's and ends the reading.
func (r *KeyReader) noPattern(format string, args ...any) {
	r.rest, r.ended = "", true
	if r.rej == nil || r.rej.Code != KeyNoPattern {
		r.rej = &Rejection{Code: KeyNoPattern, Key: r.key, Err: fmt.Errorf(format, args...)}
	}
}

// fail notes a token that was refused; the first one is kept.
func (r *KeyReader) fail(field string, err error) {
	if r.rej != nil {
		return
	}
	code := KeySegment
	if errors.Is(err, keyenc.ErrNotCanonical) {
		code = KeyNotCanonical
	}
	r.rej = &Rejection{Code: code, Key: r.key, Field: field, Err: err}
}
