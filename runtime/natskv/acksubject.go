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
	var ts uint64
	if _, at = parseDigits(s, at, '.'); at < 0 {
		return ackInfo{}, false
	}
	if info.streamSeq, at = parseDigits(s, at, '.'); at < 0 {
		return ackInfo{}, false
	}
	if info.consumerSeq, at = parseDigits(s, at, '.'); at < 0 {
		return ackInfo{}, false
	}
	if ts, at = parseDigits(s, at, '.'); at < 0 {
		return ackInfo{}, false
	}
	if info.pending, at = parseDigits(s, at, 0); at < 0 || at <= len(s) && !modern {
		return ackInfo{}, false
	}
	if info.streamSeq == 0 || info.consumerSeq == 0 || ts > math.MaxInt64 {
		return ackInfo{}, false
	}
	info.unixNano = int64(ts)
	return info, true
}

// parseDigits reads the digits from at on, which a dot must end, or the end of s unless dot is '.'. next is where the
// next token would begin (past len(s) after the last one), and -1 when there are no digits, when something else
// stands there, or when they don't fit.
func parseDigits(s string, at int, dot byte) (v uint64, next int) {
	i := at
	if len(s)-i >= 8 {
		if x, ok := eightDigits(s[i : i+8]); ok {
			v, i = x, i+8
			if len(s)-i >= 8 {
				if x, ok := eightDigits(s[i : i+8]); ok {
					v, i = v*1e8+x, i+8
				}
			}
		}
	}
	for ; i < len(s); i++ {
		d := uint64(s[i] - '0')
		if d > 9 {
			break
		}
		if v >= math.MaxUint64/10 && (v > math.MaxUint64/10 || d > math.MaxUint64%10) {
			return 0, -1
		}
		v = v*10 + d
	}
	if i == at || i == len(s) && dot == '.' || i < len(s) && s[i] != '.' {
		return 0, -1
	}
	return v, i + 1
}

// eightDigits reads s, of 8 bytes, as one number: first all bytes are checked at once, then pairs, fours and eights
// are added up in the lanes of one word.
func eightDigits(s string) (v uint64, ok bool) {
	const high, threes = 0xf0f0f0f0f0f0f0f0, 0x3333333333333333
	_ = s[7]
	x := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
	if x&high|(x+0x0606060606060606)&high>>4 != threes {
		return 0, false
	}
	x -= 0x3030303030303030
	x = x*10 + x>>8
	x = ((x & 0x000000ff000000ff) * (100 + 1000000<<32)) + ((x >> 16 & 0x000000ff000000ff) * (1 + 10000<<32))
	return x >> 32, true
}
