package objects

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of keys, in bytes: what every store takes, with room for a prefix.
const (
	MaxKey = 900
	// MaxSegment is the longest part between slashes: a file name of 255 bytes with room for a mark of the store's own.
	MaxSegment = 200
)

// Reserved begins the file names that a local directory keeps for itself; no part of a key may begin with it.
const Reserved = ".fold-"

const escaped = `\ " # % ?`

// CheckKey returns ErrBadKey, with the reason, for a key that some store would take for another one, or not at all:
// parts between slashes must not be empty, "." or too long, nor end in ".." before a slash; and there are no control
// characters, none of \ " # % ?, and no "__0x". Go CDK escapes those for some stores, which then list in another order.
func CheckKey(key string) error {
	reason := badText(key)
	for part := range strings.SplitSeq(key, "/") {
		if reason == "" {
			reason = badPart(part)
		}
	}
	if reason != "" {
		return fmt.Errorf("%w %.80q: %s", ErrBadKey, key, reason)
	}
	return nil
}

func badText(key string) string {
	switch {
	case key == "":
		return "it is empty"
	case len(key) > MaxKey:
		return fmt.Sprintf("it has %d bytes, the limit is %d", len(key), MaxKey)
	case !utf8.ValidString(key):
		return "it is not UTF-8"
	case strings.ContainsFunc(key, unicode.IsControl):
		return "it has a control character"
	case strings.ContainsAny(key, strings.ReplaceAll(escaped, " ", "")):
		return "it has one of " + escaped
	case strings.Contains(key, "../"):
		return "a part before a slash ends in .."
	case strings.Contains(key, "__0x"):
		return "it has an escape, __0x"
	}
	return ""
}

func badPart(part string) string {
	switch {
	case part == "":
		return "a part between slashes is empty"
	case part == "." || part == "..":
		return "a part between slashes is . or .."
	case len(part) > MaxSegment:
		return fmt.Sprintf("a part between slashes has %d bytes, the limit is %d", len(part), MaxSegment)
	case strings.HasPrefix(part, Reserved):
		return "a part between slashes begins with " + Reserved
	}
	return ""
}
