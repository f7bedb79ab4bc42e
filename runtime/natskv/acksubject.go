package natskv

import (
	"math"
	"math/bits"
	"strings"
)

// ackInfo is what a delivery's reply subject says of it. The zero value is "not known".
type ackInfo struct {
	streamSeq   uint64 // the revision
	consumerSeq uint64
	unixNano    int64
	pending     uint64
}

// ackTokensLegacy counts the tokens of $JS.ACK.<stream>.<consumer>.<delivered>.<sseq>.<dseq>.<ts>.<pending>; the
// modern form has a domain and an account token before the stream, and may have more tokens after pending.
const (
	ackTokensLegacy = 9
	ackTokensModern = 11
	ackPrefix       = "$JS.ACK."
)

// ackParser reads the reply subjects of one consumer. It keeps the part that its deliveries share, so that a delivery
// costs one comparison and five numbers. The zero value is ready; it never allocates.
type ackParser struct {
	head   string // up to and including the dot before <delivered>; a part of a subject that was parsed whole
	modern bool
}

// parse reads one reply subject; ok is false for anything that is not a delivery's, which never gets a position.
func (p *ackParser) parse(reply string) (info ackInfo, ok bool) {
	if n := len(p.head); n > 0 && len(reply) > n && reply[:n] == p.head {
		return parseAckNumbers(reply, n, p.modern)
	}
	head, modern, ok := splitAckHead(reply)
	if !ok {
		return ackInfo{}, false
	}
	if info, ok = parseAckNumbers(reply, len(head), modern); ok {
		p.head, p.modern = head, modern
	}
	return info, ok
}

// splitAckHead finds the part of a reply subject before its numbers.
func splitAckHead(reply string) (head string, modern, ok bool) {
	if !strings.HasPrefix(reply, ackPrefix) {
		return "", false, false
	}
	tokens, skip := strings.Count(reply, ".")+1, 2 // stream and consumer
	switch {
	case tokens == ackTokensLegacy:
	case tokens >= ackTokensModern:
		modern, skip = true, 4
	default:
		return "", false, false
	}
	at := len(ackPrefix)
	for range skip {
		n := strings.IndexByte(reply[at:], '.')
		if n <= 0 {
			return "", false, false
		}
		at += n + 1
	}
	return reply[:at], modern, true
}

// parseAckNumbers reads <delivered>.<sseq>.<dseq>.<ts>.<pending> from at on. Only the modern form may go on after it.
func parseAckNumbers(s string, at int, modern bool) (info ackInfo, ok bool) {
	delivered, i := digits(s, at)
	sseq, j := digits(s, i+1)
	dseq, k := digits(s, j+1)
	ts, l := digits(s, k+1)
	pending, m := digits(s, l+1)
	// Each number has a digit and ends at a dot, the last one at the end of s or, in the modern form, at a dot.
	if i == at || j <= i+1 || k <= j+1 || l <= k+1 || m <= l+1 || m > len(s) ||
		s[i] != '.' || s[j] != '.' || s[k] != '.' || s[l] != '.' || m < len(s) && (!modern || s[m] != '.') {
		return ackInfo{}, false
	}
	if sseq == 0 || dseq == 0 || ts > math.MaxInt64 || delivered == tooLarge || sseq == tooLarge || dseq == tooLarge || pending == tooLarge {
		return ackInfo{}, false
	}
	return ackInfo{streamSeq: sseq, consumerSeq: dseq, unixNano: int64(ts), pending: pending}, true
}

// tooLarge is what digits makes of a number that 64 bits, less this one, can't hold.
const tooLarge = math.MaxUint64

// digits reads the digits from at on; end is where they end, which may be at once, also for an at past the end of s.
func digits(s string, at int) (v uint64, end int) {
	if len(s)-at >= 8 {
		v, n := upToEightDigits(s[at : at+8])
		if n == 8 {
			return moreDigits(s, v, at, at+8)
		}
		return v, at + n
	}
	for end = at; end < len(s); end++ { // fewer than eight
		d := uint64(s[end] - '0')
		if d > 9 {
			break
		}
		v = v*10 + d
	}
	return v, end
}

// moreDigits goes on after the first eight digits, whose value is v.
func moreDigits(s string, v uint64, at, i int) (_ uint64, end int) {
	if len(s)-i >= 8 {
		if x, n := upToEightDigits(s[i : i+8]); n == 8 {
			v, i = v*1e8+x, i+8
		}
	}
	large := false
	for ; i < len(s); i++ {
		d := uint64(s[i] - '0')
		if d > 9 {
			break
		}
		if i-at >= 19 && (v > tooLarge/10 || v*10 > tooLarge-1-d) {
			large = true
		}
		v = v*10 + d
	}
	if large {
		v = tooLarge
	}
	return v, i
}

// upToEightDigits reads the n digits that s, of 8 bytes, begins with. All bytes are looked at in one word: the first
// that is no digit is found, what follows it is shifted out, and pairs, fours and eights are added up in the lanes.
func upToEightDigits(s string) (v uint64, n int) {
	const high, threes = 0xf0f0f0f0f0f0f0f0, 0x3333333333333333
	_ = s[7]
	x := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
	n = bits.TrailingZeros64((x&high|(x+0x0606060606060606)&high>>4)^threes) / 8
	x = (x - 0x3030303030303030) << (64 - 8*n)
	x = x*10 + x>>8
	x = ((x & 0x000000ff000000ff) * (100 + 1000000<<32)) + ((x >> 16 & 0x000000ff000000ff) * (1 + 10000<<32))
	return x >> 32, n
}
