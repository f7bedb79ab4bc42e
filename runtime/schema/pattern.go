package schema

import (
	"fmt"
	"strings"
)

// segment is one parsed token of a pattern: a literal, or a variable's name.
type segment struct {
	literal  string
	variable string
	tail     bool
	offset   int
}

// flaw is something wrong in a pattern's text, at a byte offset.
type flaw struct {
	offset  int
	message string
	hint    string
}

const literalCharset = "A-Z a-z 0-9 - _ / ="

// parsePattern splits a key pattern. Segments are complete only when there is no flaw.
func parsePattern(s string) ([]segment, []flaw) {
	var segs []segment
	var flaws []flaw
	if len(s) > maxPatternLength {
		return nil, []flaw{{0, fmt.Sprintf("key pattern is %d bytes long; the limit is %d", len(s), maxPatternLength), "choose shorter literals and names"}}
	}
	for start := 0; ; {
		end, problem := segmentEnd(s, start)
		if problem != nil {
			return nil, append(flaws, *problem)
		}
		seg, problem := parseSegment(s[start:end], start, len(segs)+1)
		if problem != nil {
			flaws = append(flaws, *problem)
		}
		segs = append(segs, seg)
		if end == len(s) {
			break
		}
		start = end + 1
	}
	if len(segs) > maxPatternTokens {
		flaws = append(flaws, flaw{0, fmt.Sprintf("key pattern has %d segments; the limit is %d", len(segs), maxPatternTokens), "end it with a tail, {name...}, which stands for any number of them"})
	}
	return segs, append(flaws, checkSegments(segs)...)
}

// segmentEnd is where the segment beginning at start ends: at a dot outside braces, or at the end.
func segmentEnd(s string, start int) (int, *flaw) {
	open := -1
	for i := start; i < len(s); i++ {
		switch {
		case s[i] == '{' && open >= 0:
			return 0, &flaw{i, fmt.Sprintf("key pattern: '{' at offset %d is inside the variable that begins at offset %d", i, open), "write a variable as {name}"}
		case s[i] == '{':
			open = i
		case s[i] == '}' && open < 0:
			return 0, &flaw{i, fmt.Sprintf("key pattern: '}' at offset %d closes nothing", i), "write a variable as {name}"}
		case s[i] == '}':
			open = -1
		case s[i] == '.' && open < 0:
			return i, nil
		}
	}
	if open >= 0 {
		return 0, &flaw{open, fmt.Sprintf("key pattern: '{' at offset %d is never closed", open), "write a variable as {name}"}
	}
	return len(s), nil
}

func parseSegment(text string, offset, number int) (segment, *flaw) {
	seg := segment{offset: offset}
	if text == "" {
		return seg, &flaw{offset, fmt.Sprintf("key pattern: segment %d is empty", number),
			`NATS keys neither begin nor end with '.', nor contain ".."`}
	}
	brace := strings.IndexByte(text, '{')
	if brace < 0 {
		seg.literal = text
		for i, r := range text {
			if !strings.ContainsRune("-_/=", r) && (r > 'z' || !isLower(byte(r)) && !isUpper(byte(r)) && !isDigit(byte(r))) {
				hint := "allowed are " + literalCharset
				if r == '*' || r == '>' {
					hint = "a variable has a name, {name}, and so has a tail, {name...}"
				}
				return seg, &flaw{offset + i, fmt.Sprintf("key pattern: literal %q has %q", text, r), hint}
			}
		}
		return seg, nil
	}
	closing := strings.IndexByte(text, '}')
	if brace > 0 || closing != len(text)-1 {
		whole := strings.Trim(text[:brace]+"."+text[brace:closing+1]+"."+strings.ReplaceAll(text[closing+1:], "{", ".{"), ".")
		return seg, &flaw{offset, fmt.Sprintf("key pattern: segment %q mixes a variable with something else", text),
			fmt.Sprintf("a segment is one literal or one variable; write %q", strings.ReplaceAll(whole, "..{", ".{"))}
	}
	name := text[1:closing]
	seg.variable, seg.tail = strings.CutSuffix(name, "...")
	if seg.variable == "" {
		return seg, &flaw{offset, fmt.Sprintf("key pattern: the variable at offset %d has no name", offset), "write {name}, or {name...} for a tail"}
	}
	for part := range strings.SplitSeq(seg.variable, ".") {
		if !isFieldName(part) {
			seg.variable = "" // so that it is not looked for
			return seg, &flaw{offset + 1, fmt.Sprintf("key pattern: variable %q is not a field name or a dotted path of them", name), "write the name of a field, {name}, or of one in an inner message, {spec.name}"}
		}
	}
	return seg, nil
}

func isFieldName(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isLower(c) && !isUpper(c) && c != '_' && (i == 0 || !isDigit(c)) {
			return false
		}
	}
	return s != ""
}

// checkSegments finds what is wrong between segments that are each well-formed.
func checkSegments(segs []segment) []flaw {
	var flaws []flaw
	first := segs[0]
	switch {
	case first.variable != "":
		flaws = append(flaws, flaw{0, "key pattern begins with a variable",
			"begin it with a literal, which is the filter on the server: " + fmt.Sprintf("%q", "name.{"+first.variable+"}")})
	case strings.HasPrefix(first.literal, reservedKVPrefix) || strings.HasPrefix(first.literal, reservedFoldPrefix):
		flaws = append(flaws, flaw{0, fmt.Sprintf("key pattern: the first literal %q begins with a reserved word", first.literal),
			fmt.Sprintf("%q and %q are kept for NATS and for fold itself", reservedKVPrefix, reservedFoldPrefix)})
	}
	seen := map[string]int{}
	for i, seg := range segs {
		if seg.variable == "" {
			continue
		}
		if j, ok := seen[seg.variable]; ok {
			flaws = append(flaws, flaw{seg.offset, fmt.Sprintf("key pattern: {%s} appears twice (segments %d and %d)", seg.variable, j+1, i+1),
				"remove one of them, or name another field"})
		}
		seen[seg.variable] = i
		if seg.tail && i < len(segs)-1 {
			flaws = append(flaws, flaw{seg.offset, fmt.Sprintf("key pattern: {%s...} is not the last segment", seg.variable), "only the last variable can be a tail"})
		}
	}
	return flaws
}
