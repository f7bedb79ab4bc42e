package keyenc

import (
	"fmt"
	"strings"
	"unsafe"
)

// AppendHex appends the bytes of s in upper-case hexadecimal, "-" for none.
func AppendHex(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, '-')
	}
	for i := 0; i < len(s); i++ {
		dst = append(dst, upperHex[s[i]>>4], upperHex[s[i]&15])
	}
	return dst
}

// ParseHex reads a HEX token of bytes.
func ParseHex(token string) (string, error) {
	if token == "-" {
		return "", nil
	}
	if token == "" || len(token)%2 != 0 {
		return "", formErr(EncHex, token, fmt.Sprintf("%d digits, want an even number, or -", len(token)))
	}
	if err := checkHex(token); err != nil {
		return "", err
	}
	var b strings.Builder
	b.Grow(len(token) / 2)
	for i := 0; i < len(token); i += 2 {
		hi, _ := hexDigit(token[i])
		lo, _ := hexDigit(token[i+1])
		b.WriteByte(hi<<4 | lo)
	}
	return b.String(), nil
}

// checkHex refuses what is not upper-case hexadecimal; a wrong form goes before a wrong case.
func checkHex(token string) error {
	lower := false
	for i := 0; i < len(token); i++ {
		if _, ok := hexDigit(token[i]); !ok {
			return formErr(EncHex, token, fmt.Sprintf("no hexadecimal digit at offset %d", i))
		}
		lower = lower || token[i] >= 'a'
	}
	if lower {
		return canonErr(EncHex, token, "lower-case digit")
	}
	return nil
}

// FixedInteger is every integer type whose size is the same on all machines.
type FixedInteger interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// AppendHexInt appends v in upper-case hexadecimal of fixed width: 8 digits for types up to 32 bits, 16 for those of
// 64. A signed value has its sign bit (of those 32 or 64) flipped, so that the order holds: int32 0 is 80000000.
func AppendHexInt[T FixedInteger](dst []byte, v T) []byte {
	width, flip := hexShape[T]()
	u := uint64(v) ^ flip
	for shift := width*4 - 4; shift >= 0; shift -= 4 {
		dst = append(dst, upperHex[u>>shift&15])
	}
	return dst
}

// ParseHexInt reads a token of AppendHexInt whose value is in T's range.
func ParseHexInt[T FixedInteger](token string) (T, error) {
	width, flip := hexShape[T]()
	if len(token) != width {
		return 0, formErr(EncHex, token, fmt.Sprintf("%d digits, want %d", len(token), width))
	}
	if err := checkHex(token); err != nil {
		return 0, err
	}
	var u uint64
	for i := 0; i < len(token); i++ {
		d, _ := hexDigit(token[i])
		u = u<<4 | uint64(d)
	}
	u ^= flip
	v := T(u)
	back := uint64(v)
	if width == 8 {
		back &= 1<<32 - 1
	}
	if back != u {
		return 0, rangeErr[T](EncHex, token)
	}
	return v, nil
}

// hexShape is the number of digits of a type and the bits to flip.
func hexShape[T FixedInteger]() (width int, flip uint64) {
	width = 8
	if unsafe.Sizeof(T(0)) == 8 {
		width = 16
	}
	if signed[T]() {
		flip = 1 << (width*4 - 1)
	}
	return width, flip
}

// AppendBool appends 0 or 1.
func AppendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, '1')
	}
	return append(dst, '0')
}

// ParseBool reads 0 or 1.
func ParseBool(token string) (bool, error) {
	if token != "0" && token != "1" {
		return false, formErr(EncBool, token, "want 0 or 1")
	}
	return token == "1", nil
}
