package keyenc

import (
	"fmt"
	"strings"
)

const upperHex = "0123456789ABCDEF"

// escSelf holds the bytes that stand for themselves in ESC: 0-9, A-Z, a-y.
var escSelf = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'y'
	}
	return
}()

// AppendESC appends the ESC token of s, which may hold any bytes.
func AppendESC(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, '-')
	}
	run := 0
	for i := 0; i < len(s); i++ {
		if escSelf[s[i]] {
			continue
		}
		dst = append(dst, s[run:i]...)
		dst = appendEscaped(dst, s[i])
		run = i + 1
	}
	return append(dst, s[run:]...)
}

func appendEscaped(dst []byte, c byte) []byte {
	switch {
	case c < '0':
		return append(dst, '/', upperHex[c>>4], upperHex[c&15])
	case c < 'A':
		return append(dst, '=', upperHex[c>>4], upperHex[c&15])
	case c <= '^':
		return append(dst, '_', c-'['+'0')
	case c == '_':
		return append(dst, '_', '_')
	case c == '`':
		return append(dst, '_', 'a')
	case c == 'z':
		return append(dst, 'z', '-')
	}
	return append(dst, 'z', upperHex[c>>4], upperHex[c&15])
}

// ParseESC reads an ESC token. Without an escape in it the result is the token itself.
func ParseESC(token string) (string, error) {
	i := escRun(token)
	if i == len(token) && i > 0 {
		return token, nil
	}
	if token == "-" {
		return "", nil
	}
	var b strings.Builder
	b.Grow(len(token))
	if err := unescape(&b, token, i); err != nil {
		return "", err
	}
	return b.String(), nil
}

// escRun is the number of leading bytes that stand for themselves.
func escRun(token string) int {
	for i := 0; i < len(token); i++ {
		if !escSelf[token[i]] {
			return i
		}
	}
	return len(token)
}

// unescape writes the bytes of a token, of which the first plain bytes stand for themselves.
func unescape(b *strings.Builder, token string, plain int) error {
	if token == "" {
		return formErr(EncESC, token, "empty token")
	}
	for at := 0; ; {
		b.WriteString(token[at : at+plain])
		at += plain
		if at == len(token) {
			return nil
		}
		c, n, err := escapeAt(token, at)
		if err != nil {
			return err
		}
		b.WriteByte(c)
		at += n
		plain = escRun(token[at:])
	}
}

// escapeAt reads the escape that begins at token[at]: its byte and its length.
func escapeAt(token string, at int) (c byte, n int, err error) {
	lead, rest := token[at], token[at+1:]
	switch {
	case lead == '_' && rest != "":
		switch d := rest[0]; {
		case d >= '0' && d <= '3':
			return d - '0' + '[', 2, nil
		case d == '_':
			return '_', 2, nil
		case d == 'a':
			return '`', 2, nil
		}
	case lead == 'z' && rest != "" && rest[0] == '-':
		return 'z', 2, nil
	case (lead == '/' || lead == '=' || lead == 'z') && len(rest) >= 2:
		hi, okHi := hexDigit(rest[0])
		lo, okLo := hexDigit(rest[1])
		if !okHi || !okLo {
			break
		}
		c = hi<<4 | lo
		var buf [3]byte
		if escSelf[c] || string(appendEscaped(buf[:0], c)) != token[at:at+3] {
			return 0, 0, canonErr(EncESC, token, fmt.Sprintf("byte 0x%02X is not written as %q", c, token[at:at+3]))
		}
		return c, 3, nil
	}
	return 0, 0, formErr(EncESC, token, fmt.Sprintf("no escape at offset %d", at))
}

// hexDigit reads a hexadecimal digit of either case.
func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	}
	return 0, false
}

// AppendVerbatim appends s as it is. The error says which byte can't be in a token.
func AppendVerbatim(dst []byte, s string) ([]byte, error) {
	if _, err := ParseVerbatim(s); err != nil {
		return dst, err
	}
	return append(dst, s...), nil
}

// ParseVerbatim returns the token itself, if it is one.
func ParseVerbatim(token string) (string, error) {
	if token == "" {
		return "", formErr(EncVerbatim, token, "empty")
	}
	for i := 0; i < len(token); i++ {
		if !tokenByte(token[i]) {
			return "", formErr(EncVerbatim, token, fmt.Sprintf("byte 0x%02X at offset %d is not one of [-/_=a-zA-Z0-9]", token[i], i))
		}
	}
	return token, nil
}

// IsToken says whether s can be one token of a key, as a pattern's literal is.
func IsToken(s string) bool {
	_, err := ParseVerbatim(s)
	return err == nil
}

func tokenByte(c byte) bool {
	return escSelf[c] || c == 'z' || c == '-' || c == '/' || c == '_' || c == '='
}

// AppendTail appends the tokens of s, joined by dots: s split at '/', each part in ESC, so an empty part is "-".
// Tails are ordered as the tuples of their parts.
func AppendTail(dst []byte, s string) []byte {
	for {
		part, rest, more := strings.Cut(s, "/")
		dst = AppendESC(dst, part)
		if !more {
			return dst
		}
		dst, s = append(dst, '.'), rest
	}
}

// ParseTail reads the tokens of a tail, all that is left of a key. A tail of one token without an escape is the token
// itself.
func ParseTail(tokens string) (string, error) {
	if escRun(tokens) == len(tokens) && tokens != "" {
		return tokens, nil
	}
	if tokens == "-" {
		return "", nil
	}
	var b strings.Builder
	b.Grow(len(tokens))
	for {
		token, rest, more := strings.Cut(tokens, ".")
		if token != "-" {
			start := b.Len()
			if err := unescape(&b, token, escRun(token)); err != nil {
				return "", err
			}
			if strings.IndexByte(b.String()[start:], '/') >= 0 {
				return "", canonErr(EncESC, token, "a '/' in a tail ends its token")
			}
		}
		if !more {
			return b.String(), nil
		}
		b.WriteByte('/')
		tokens = rest
	}
}
