// Package keyenc turns values into single NATS tokens and back. Each encoding is a bijection from the values of its
// type onto its tokens: every value has exactly one token, and a token that the encoder would not write is refused.
// Where an encoding is ordered, the order of whole keys with '.' taken as 0x00 is the order of the value tuples.
//
// Encoders append to dst and can't fail unless they say so. Decoders return a *TokenError. A decoded string aliases
// the token where nothing in it was escaped. All functions are pure and safe for concurrent use.
package keyenc

import (
	"errors"
	"fmt"
	"slices"
)

// Encoding is how a value becomes a token. The numbers are those of fold.v1.Encoding.
type Encoding uint8

const (
	EncESC      Encoding = iota + 1 // any string, escaped; ordered
	EncVerbatim                     // a string of token characters as it is; ordered
	EncInt                          // an integer or an enum's number; ordered
	EncDecimal                      // an integer in plain decimal; not ordered
	EncHex                          // bytes, or an integer in fixed width; ordered
	EncBool                         // 0 or 1; ordered
	EncUUID                         // 36 lower-case characters; ordered
	EncTime                         // seconds and nanoseconds; ordered
	EncEnumName                     // an enum value's name; not ordered
)

var encodingNames = [...]string{
	EncESC: "ESC", EncVerbatim: "VERBATIM", EncInt: "INT", EncDecimal: "DECIMAL", EncHex: "HEX", EncBool: "BOOL",
	EncUUID: "UUID", EncTime: "TIME", EncEnumName: "ENUM_NAME",
}

// String is the encoding's name in the options, without its prefix.
func (e Encoding) String() string {
	if e == 0 || int(e) >= len(encodingNames) {
		return fmt.Sprintf("ENCODING(%d)", uint8(e))
	}
	return encodingNames[e]
}

// EncodingNamed is the encoding that String gives the name of; false for none.
func EncodingNamed(name string) (Encoding, bool) {
	i := slices.Index(encodingNames[:], name)
	return Encoding(max(i, 0)), i > 0
}

// Ordered says whether the order of tokens is the order of values.
func (e Encoding) Ordered() bool { return e != EncDecimal && e != EncEnumName }

// Kind is the type of a key variable. The first ten numbers are those of fold.v1.KeyType.
type Kind uint8

const (
	KindString    Kind = iota + 1
	KindBytes          // held in a Go string
	KindBool           //
	KindInt32          // also sint32 and sfixed32
	KindInt64          // also sint64 and sfixed64
	KindUint32         // also fixed32
	KindUint64         // also fixed64
	KindUUID           // 16 bytes
	KindTimestamp      //
	KindDuration       //
	KindEnum           // any int32, named or not
	KindTail           // one token of a tail: a string without '/'
)

var kindNames = [...]string{
	KindString: "string", KindBytes: "bytes", KindBool: "bool", KindInt32: "int32", KindInt64: "int64",
	KindUint32: "uint32", KindUint64: "uint64", KindUUID: "uuid", KindTimestamp: "timestamp",
	KindDuration: "duration", KindEnum: "enum", KindTail: "tail",
}

func (k Kind) String() string {
	if k == 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return kindNames[k]
}

// KindNamed is the kind that String gives the name of; false for none.
func KindNamed(name string) (Kind, bool) {
	i := slices.Index(kindNames[:], name)
	return Kind(max(i, 0)), i > 0
}

// Default is the encoding of a kind for which none is chosen; 0 for a number that is no kind.
func (k Kind) Default() Encoding {
	switch k {
	case KindString, KindTail:
		return EncESC
	case KindBytes:
		return EncHex
	case KindBool:
		return EncBool
	case KindInt32, KindInt64, KindUint32, KindUint64, KindEnum:
		return EncInt
	case KindUUID:
		return EncUUID
	case KindTimestamp, KindDuration:
		return EncTime
	}
	return 0
}

// Fits says whether the encoding can be chosen for the kind.
func (e Encoding) Fits(k Kind) bool {
	switch e {
	case EncESC:
		return k == KindString || k == KindBytes || k == KindTail
	case EncVerbatim:
		return k == KindString || k == KindBytes
	case EncInt, EncDecimal:
		return k.integer()
	case EncHex:
		return k == KindBytes || k == KindString || k.integer()
	case EncEnumName:
		return k == KindEnum
	case EncBool, EncUUID, EncTime:
		return e == k.Default()
	}
	return false
}

func (k Kind) integer() bool { return k >= KindInt32 && k <= KindUint64 || k == KindEnum }

// Sentinels that a *TokenError matches, one each.
var (
	// ErrForm: the token is not of the encoding's form, or its value is not one of the type.
	ErrForm = errors.New("not in the encoding's form")
	// ErrNotCanonical: the token can be read, but the encoder writes another one for that value.
	ErrNotCanonical = errors.New("not canonical")
)

// TokenError is a token that an encoding did not write, or a value that it can't write (VERBATIM, UUID, TIME).
type TokenError struct {
	Enc          Encoding
	Token        string
	NotCanonical bool // else the form is wrong
	Reason       string
}

func (e *TokenError) Error() string {
	what := "not"
	if e.NotCanonical {
		what = "not canonical"
	}
	return fmt.Sprintf("token %q: %s %v: %s", e.Token, what, e.Enc, e.Reason)
}

func (e *TokenError) Is(target error) bool {
	if e.NotCanonical {
		return target == ErrNotCanonical
	}
	return target == ErrForm
}

func formErr(e Encoding, token, reason string) error {
	return &TokenError{Enc: e, Token: token, Reason: reason}
}

func canonErr(e Encoding, token, reason string) error {
	return &TokenError{Enc: e, Token: token, NotCanonical: true, Reason: reason}
}
