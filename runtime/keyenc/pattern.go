package keyenc

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

const (
	hexUpper = `[0-9A-F]`
	// escRest are the escapes of ESC that do not begin with '/'.
	escRest = `=(?:3[A-F]|40)|_[0-3_a]|z(?:-|7[B-F]|[89A-F][0-9A-F])`
)

// pattern is the image as a regular expression over a whole token. Tests hold it equal to the decoders.
func (m Image) pattern() string {
	switch m.Enc {
	case EncESC:
		slash := `/[0-2][0-9A-F]`
		if m.Kind == KindTail {
			slash = `/(?:[01][0-9A-F]|2[0-9A-E])`
		}
		return `-|(?:[0-9A-Za-y]|` + slash + `|` + escRest + `)+`
	case EncVerbatim:
		return `[-/_=a-zA-Z0-9]+`
	case EncInt:
		return m.Kind.intPattern()
	case EncDecimal:
		return m.Kind.decimalPattern()
	case EncHex:
		if !m.Kind.integer() {
			return `-|(?:` + hexUpper + hexUpper + `)+`
		}
		return fmt.Sprintf(`%s{%d}`, hexUpper, m.Kind.bits()/4)
	case EncBool:
		return `[01]`
	case EncUUID:
		return `[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}`
	case EncTime:
		return `(?:` + KindInt64.intPattern() + `)[0-9]{9}`
	}
	return namesPattern(m.Names)
}

func namesPattern(names []string) string {
	alts := make([]string, 0, len(names))
	for _, n := range names {
		if IsToken(n) {
			alts = append(alts, regexp.QuoteMeta(n))
		}
	}
	if len(alts) == 0 {
		return `[^\x00-\x{10FFFF}]`
	}
	return strings.Join(alts, "|")
}

func (k Kind) bits() int {
	if k == KindInt64 || k == KindUint64 {
		return 64
	}
	return 32
}

func (k Kind) signed() bool { return k != KindUint32 && k != KindUint64 }

// limits are the magnitudes of a kind's greatest and least value; least is 0 for an unsigned one.
func (k Kind) limits() (greatest, least uint64) {
	if k.signed() {
		least = 1 << (k.bits() - 1)
		return least - 1, least
	}
	return math.MaxUint64 >> (64 - k.bits()), 0
}

func (k Kind) intPattern() string {
	greatest, least := k.limits()
	natural := func(n int, lo, hi string) string { return string(rune('a'+n-1)) + span(lo, hi) }
	if !k.signed() {
		return byLength(greatest, 0, natural)
	}
	negative := func(n int, lo, hi string) string { return string(rune('z'-n+1)) + span(nines(hi), nines(lo)) }
	return `p(?:` + byLength(greatest, 0, natural) + `)|n(?:` + byLength(least, 1, negative) + `)`
}

func (k Kind) decimalPattern() string {
	greatest, least := k.limits()
	plain := func(_ int, lo, hi string) string { return span(lo, hi) }
	p := byLength(greatest, 0, plain)
	if k.signed() {
		p += `|-(?:` + byLength(least, 1, plain) + `)`
	}
	return p
}

// byLength joins what each makes of the numbers least..limit (least is 0 or 1) that have n digits, lo to hi, for
// every n.
func byLength(limit uint64, least int, each func(n int, lo, hi string) string) string {
	top := strconv.FormatUint(limit, 10)
	var alts []string
	for n := 1; n <= len(top); n++ {
		lo, hi := "1"+strings.Repeat("0", n-1), strings.Repeat("9", n)
		if n == 1 {
			lo = strconv.Itoa(least)
		}
		if n == len(top) {
			hi = top
		}
		alts = append(alts, each(n, lo, hi))
	}
	return strings.Join(alts, "|")
}

// span matches the digit strings from lo to hi, which have the same length.
func span(lo, hi string) string {
	n := len(lo)
	switch {
	case n == 0:
		return ""
	case strings.Trim(lo, "0") == "" && strings.Trim(hi, "9") == "":
		return fmt.Sprintf(`[0-9]{%d}`, n)
	case lo[0] == hi[0]:
		return lo[:1] + span(lo[1:], hi[1:])
	}
	zeros, nines := strings.Repeat("0", n-1), strings.Repeat("9", n-1)
	first, last := lo[0], hi[0]
	var alts []string
	if lo[1:] != zeros {
		alts = append(alts, string(rune(first))+span(lo[1:], nines))
		first++
	}
	if hi[1:] != nines {
		alts = append(alts, string(rune(last))+span(zeros, hi[1:]))
		last--
	}
	if first <= last {
		alts = append(alts, fmt.Sprintf(`[%c-%c]`, first, last)+span(zeros, nines))
	}
	return `(?:` + strings.Join(alts, "|") + `)`
}

// nines is the nines' complement of a digit string.
func nines(digits string) string {
	b := []byte(digits)
	for i := range b {
		b[i] = '0' + '9' - b[i]
	}
	return string(b)
}
