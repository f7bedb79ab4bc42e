package keyenc

import (
	"fmt"
	"math/bits"
	"strconv"
)

// Integer is every integer type that INT and DECIMAL take, named ones too. An enum is its int32.
type Integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// AppendInt appends the INT token of v. Unsigned types: a letter a..t for the number of digits, then the digits.
// Signed types: p and that, or n, a letter from z downwards, and the nines' complement of the digits.
func AppendInt[T Integer](dst []byte, v T) []byte {
	switch {
	case !signed[T]():
		return appendNat(dst, uint64(v))
	case v >= 0:
		return appendNat(append(dst, 'p'), uint64(v))
	}
	return appendNeg(append(dst, 'n'), -uint64(int64(v)))
}

// ParseInt reads an INT token whose value is in T's range.
func ParseInt[T Integer](token string) (T, error) {
	digits, neg := token, false
	if signed[T]() {
		if token == "" || token[0] != 'p' && token[0] != 'n' {
			return 0, formErr(EncInt, token, "a signed integer begins with p or n")
		}
		digits, neg = token[1:], token[0] == 'n'
	}
	u, err := parseCounted(token, digits, neg)
	if err != nil {
		return 0, err
	}
	v, ok := fromParts[T](u, neg)
	if !ok {
		return 0, rangeErr[T](EncInt, token)
	}
	return v, nil
}

// AppendDecimal appends v in canonical decimal.
func AppendDecimal[T Integer](dst []byte, v T) []byte {
	if v < 0 {
		return strconv.AppendInt(dst, int64(v), 10)
	}
	return strconv.AppendUint(dst, uint64(v), 10)
}

// ParseDecimal reads a canonical decimal whose value is in T's range.
func ParseDecimal[T Integer](token string) (T, error) {
	digits, neg := token, false
	if signed[T]() && token != "" && token[0] == '-' {
		digits, neg = token[1:], true
	}
	u, ok, fits := parseDigits(digits, 0)
	switch {
	case !ok:
		return 0, formErr(EncDecimal, token, "not a decimal number of the type's sign")
	case len(digits) > 1 && digits[0] == '0':
		return 0, canonErr(EncDecimal, token, "leading zero")
	case neg && u == 0 && fits:
		return 0, canonErr(EncDecimal, token, "zero has no sign")
	}
	v, inRange := fromParts[T](u, neg)
	if !fits || !inRange {
		return 0, rangeErr[T](EncDecimal, token)
	}
	return v, nil
}

func signed[T Integer]() bool { return ^T(0) < 0 }

// fromParts is the integer of a sign and a magnitude, if T has it.
func fromParts[T Integer](magnitude uint64, neg bool) (T, bool) {
	if !neg {
		v := T(magnitude)
		return v, v >= 0 && uint64(v) == magnitude
	}
	v := T(-magnitude)
	return v, magnitude <= 1<<63 && v < 0 && int64(v) == int64(-magnitude)
}

func rangeErr[T Integer](e Encoding, token string) error {
	var v T
	return formErr(e, token, fmt.Sprintf("out of range of %T", v))
}

func appendNat(dst []byte, u uint64) []byte {
	dst = append(dst, 'a'+byte(decimalLen(u)-1))
	return strconv.AppendUint(dst, u, 10)
}

func appendNeg(dst []byte, magnitude uint64) []byte {
	dst = append(dst, 'z'-byte(decimalLen(magnitude)-1))
	n := len(dst)
	dst = strconv.AppendUint(dst, magnitude, 10)
	for i := n; i < len(dst); i++ {
		dst[i] = '0' + '9' - dst[i]
	}
	return dst
}

var powersOf10 = func() (p [20]uint64) {
	p[0] = 1
	for i := 1; i < len(p); i++ {
		p[i] = p[i-1] * 10
	}
	return
}()

// decimalLen is the number of decimal digits of u, 1 for 0.
func decimalLen(u uint64) int {
	n := bits.Len64(u|1) * 1233 >> 12 // digits, or one less
	if n < len(powersOf10) && u >= powersOf10[n] {
		n++
	}
	return max(n, 1)
}

// parseCounted reads a length letter and its digits, which are complemented for a negative number.
func parseCounted(token, s string, neg bool) (uint64, error) {
	if len(s) < 2 {
		return 0, formErr(EncInt, token, "too short")
	}
	want, zero := int(s[0])-'a'+1, byte('0')
	var flip byte
	if neg {
		want, zero, flip = 'z'-int(s[0])+1, '9', 9
	}
	digits := s[1:]
	if want != len(digits) {
		return 0, formErr(EncInt, token, fmt.Sprintf("length letter %q before %d digits", s[0], len(digits)))
	}
	u, ok, fits := parseDigits(digits, flip)
	switch {
	case !ok:
		return 0, formErr(EncInt, token, "not a digit")
	case !fits:
		return 0, formErr(EncInt, token, "out of range of 64 bits")
	case digits[0] == zero && (neg || len(digits) > 1):
		return 0, canonErr(EncInt, token, "leading zero")
	}
	return u, nil
}

// parseDigits reads decimal digits, each taken from 9 when flip is 9. ok: there are digits and nothing else; fits: the
// number is one of 64 bits.
func parseDigits(s string, flip byte) (u uint64, ok, fits bool) {
	fits = true
	for i := 0; i < len(s); i++ {
		d := s[i] - '0'
		if d > 9 {
			return 0, false, false
		}
		if flip != 0 {
			d = flip - d
		}
		hi, lo := bits.Mul64(u, 10)
		sum, carry := bits.Add64(lo, uint64(d), 0)
		if hi != 0 || carry != 0 {
			fits = false
		}
		u = sum
	}
	return u, s != "", fits
}
