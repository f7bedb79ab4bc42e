package schema

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// initialisms are the words that Go style writes in one case. The list is closed: a word added to it renames
// generated fields.
var initialisms = map[string]bool{
	"acl": true, "api": true, "ascii": true, "cpu": true, "css": true, "dns": true, "eof": true, "guid": true,
	"html": true, "http": true, "https": true, "id": true, "ip": true, "json": true, "qps": true, "ram": true,
	"rpc": true, "sla": true, "smtp": true, "sql": true, "ssh": true, "tcp": true, "tls": true, "ttl": true,
	"udp": true, "ui": true, "uid": true, "uri": true, "url": true, "utf8": true, "uuid": true, "vm": true,
	"xml": true,
}

// fieldGoName turns node_id into NodeID and spec.host into SpecHost.
func fieldGoName(name string) string {
	var b strings.Builder
	for word := range strings.FieldsFuncSeq(name, func(r rune) bool { return r == '_' || r == '.' }) {
		if initialisms[word] {
			b.WriteString(strings.ToUpper(word))
			continue
		}
		if b.Len() > 0 && isDigit(word[0]) && isDigit(b.String()[b.Len()-1]) {
			b.WriteByte('_') // a_1_2 and a_12 stay two names
		}
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	if s := b.String(); s != "" && !isDigit(s[0]) {
		return s
	}
	return "X" + b.String()
}

// messageGoName is the name that protoc-gen-go gives the message: Outer_Inner for a nested one.
func messageGoName(md protoreflect.MessageDescriptor) string {
	name := string(md.FullName())
	if pkg := string(md.ParentFile().Package()); pkg != "" {
		name = strings.TrimPrefix(name, pkg+".")
	}
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		beforeLower := i+1 < len(name) && isLower(name[i+1])
		switch {
		case c == '.' && beforeLower:
		case c == '.':
			b.WriteByte('_')
		case c == '_' && (i == 0 || name[i-1] == '.'):
			b.WriteByte('X')
		case c == '_' && beforeLower:
		case isLower(c) && (i == 0 || !isLower(name[i-1]) && !isUpper(name[i-1])):
			b.WriteByte(c - 'a' + 'A')
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func isExportedName(s string) bool {
	if s == "" || !isUpper(s[0]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isLower(c) && !isDigit(c) && !isUpper(c) && c != '_' {
			return false
		}
	}
	return true
}

func isLower(c byte) bool { return c >= 'a' && c <= 'z' }
func isUpper(c byte) bool { return c >= 'A' && c <= 'Z' }
func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// nearest is the candidate that word was probably meant to be, or "": one that differs in a letter, the only one that is
// the same but for words before or behind it, as node_id is for node, or one that differs in some letters.
func nearest(word string, candidates []string) string {
	best, bestDistance := "", min(len(word)/3+1, len(word)-1)
	for _, c := range candidates {
		if d := editDistance(word, c); d > 0 && d <= min(bestDistance, len(c)/3+1) && (best == "" || d < bestDistance) {
			best, bestDistance = c, d
		}
	}
	if best != "" && bestDistance == 1 {
		return best
	}
	if c := sameWords(word, candidates); c != "" {
		return c
	}
	return best
}

// sameWords is the only candidate that has all words of word, or only words of it; "" if there are more or none.
func sameWords(word string, candidates []string) string {
	only := ""
	for _, c := range candidates {
		if word == "" || c == "" || c == word || !strings.Contains("_"+c+"_", "_"+word+"_") && !strings.Contains("_"+word+"_", "_"+c+"_") {
			continue
		}
		if only != "" {
			return ""
		}
		only = c
	}
	return only
}

// editDistance counts insertions, deletions, substitutions and swaps of neighbours.
func editDistance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
