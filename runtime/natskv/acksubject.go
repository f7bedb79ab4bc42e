package natskv

import (
	"math"
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
	r := numbers{s: s, at: at, ok: true}
	if len(s)-at > 2 && s[at] == '1' && s[at+1] == '.' {
		r.at += 2 // without acknowledgements each message is delivered once
	} else {
		r.next()
	}
	info.streamSeq, info.consumerSeq = r.next(), r.next()
	ts := r.time()
	info.pending = r.last(modern)
	if !r.ok || info.streamSeq == 0 || info.streamSeq == math.MaxUint64 || info.consumerSeq == 0 || ts > math.MaxInt64 {
		return ackInfo{}, false
	}
	info.unixNano = int64(ts)
	return info, true
}

// maxDigits is how many digits always fit in 64 bits.
const maxDigits = 19

// fits reports whether the n digits that begin with first, read as v, fit in 64 bits. Of 20 they do only when they begin
// with 1, and then v has not wrapped around if it is as large as a number of 20 digits.
func fits(n int, first byte, v uint64) bool {
	return n > 0 && (n <= maxDigits || n == maxDigits+1 && first == '1' && v >= 1e19)
}

// numbers reads numbers with dots between them; ok is false once one was none.
type numbers struct {
	s  string
	at int
	ok bool
}

// next is the number at hand and passes the dot after it.
func (r *numbers) next() uint64 {
	v, end := digits(r.s, r.at)
	if end >= len(r.s) || r.s[end] != '.' || !fits(end-r.at, r.s[r.at], v) {
		r.ok, end = false, len(r.s)-1
	}
	r.at = end + 1
	return v
}

// last is the number at hand, which nothing follows, or in the modern form a dot.
func (r *numbers) last(modern bool) uint64 {
	v, end := digits(r.s, r.at)
	if end == r.at || !fits(end-r.at, r.s[r.at], v) || end < len(r.s) && (!modern || r.s[end] != '.') {
		r.ok = false
	}
	return v
}

// time is next for a number that has 19 digits until the year 2286, of which 16 are read eight at a time.
func (r *numbers) time() uint64 {
	if len(r.s)-r.at <= maxDigits || r.s[r.at+maxDigits] != '.' {
		return r.next()
	}
	t := r.s[r.at : r.at+maxDigits]
	hi, ok := eightDigits(t[:8])
	lo, ok2 := eightDigits(t[8:16])
	rest, end := digits(t, 16)
	if !ok || !ok2 || end != maxDigits {
		r.ok = false
	}
	r.at += maxDigits + 1
	return (hi*1e8+lo)*1e3 + rest
}

// digits reads the digits from at on; end is where they end, which may be at once, also for an at past the end of s. The
// value means something where it fits.
func digits(s string, at int) (v uint64, end int) {
	for end = at; end < len(s); end++ {
		d := uint64(s[end]) - '0'
		if d > 9 {
			break
		}
		v = v*10 + d
	}
	return v, end
}

// eightDigits reads 8 bytes in one word: pairs, fours and eights are added up in its lanes.
func eightDigits(s string) (v uint64, ok bool) {
	_ = s[7]
	x := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
	const high, threes = 0xf0f0f0f0f0f0f0f0, 0x3333333333333333
	ok = (x&high | (x+0x0606060606060606)&high>>4) == threes
	x -= 0x3030303030303030
	x = x*10 + x>>8
	x = ((x & 0x000000ff000000ff) * (100 + 1000000<<32)) + ((x >> 16 & 0x000000ff000000ff) * (1 + 10000<<32))
	return x >> 32, ok
}
