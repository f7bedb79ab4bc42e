package kv

import (
	"fmt"
	"slices"
	"strings"
)

// Scope is the part of a bucket that is watched or listed: the whole bucket (the zero value), or the keys that begin
// with one of some prefixes. Any string is a prefix; the server filters by whole tokens and Contains does the rest.
type Scope struct {
	prefixes []string // sorted, disjoint, none empty
}

// AllKeys is the whole bucket.
func AllKeys() Scope { return Scope{} }

// Prefixes is the union of the keys that begin with one of the prefixes; an empty prefix is the whole bucket. A
// prefix that no key can have is refused, since a listing under it would show every key as deleted.
func Prefixes(prefixes ...string) (Scope, error) {
	if len(prefixes) == 0 {
		return Scope{}, fmt.Errorf("scope: no prefixes; the zero scope is the whole bucket")
	}
	sorted := slices.Sorted(slices.Values(prefixes))
	if sorted[0] == "" {
		return Scope{}, nil
	}
	var kept []string
	for _, p := range sorted {
		if err := checkPrefix(p); err != nil {
			return Scope{}, err
		}
		if len(kept) > 0 && strings.HasPrefix(p, kept[len(kept)-1]) {
			continue
		}
		kept = append(kept, p)
	}
	return Scope{prefixes: kept}, nil
}

func checkPrefix(p string) error {
	if p[0] == '.' {
		return &KeyError{Key: p, Detail: "a key can't begin with '.', so this prefix matches nothing"}
	}
	if strings.HasPrefix(p, reservedToken+".") {
		return &KeyError{Key: p, Detail: "these keys are kept for fold itself, so this prefix matches nothing"}
	}
	for i := range len(p) {
		if !isKeyByte(p[i]) {
			return &KeyError{Key: p, Detail: fmt.Sprintf("%q can't stand in a key, so this prefix matches nothing", p[i])}
		}
		if p[i] == '.' && i > 0 && p[i-1] == '.' {
			return &KeyError{Key: p, Detail: `a key can't hold "..", so this prefix matches nothing`}
		}
	}
	return nil
}

// IsAll reports whether s is the whole bucket.
func (s Scope) IsAll() bool { return len(s.prefixes) == 0 }

// List is the scope's prefixes: sorted, none of them a prefix of another; nil for the whole bucket. The caller may
// keep the copy.
func (s Scope) List() []string { return slices.Clone(s.prefixes) }

// Contains reports whether key is in scope.
func (s Scope) Contains(key string) bool {
	if len(s.prefixes) == 0 {
		return true
	}
	i, found := slices.BinarySearch(s.prefixes, key)
	return found || i > 0 && strings.HasPrefix(key, s.prefixes[i-1])
}

// Filters is the server-side part of the scope: subject filters over whole tokens, sorted, none overlapping another
// (the server refuses those), that together match at least the scope. exact says that they match nothing else.
func (s Scope) Filters() (filters []string, exact bool) {
	if len(s.prefixes) == 0 {
		return []string{">"}, true
	}
	exact = true
	var tokens []string
	for _, p := range s.prefixes {
		whole := p[:strings.LastIndexByte(p, '.')+1]
		if whole == "" {
			return []string{">"}, false
		}
		exact = exact && whole == p
		tokens = append(tokens, whole)
	}
	slices.Sort(tokens) // cutting a prefix back to its tokens can move it before its neighbours
	last := ""
	for _, t := range tokens {
		if last != "" && strings.HasPrefix(t, last) {
			continue
		}
		last = t
		filters = append(filters, t+">")
	}
	return filters, exact
}

// allText can't be a prefix of a key.
const allText = ">"

// String is the scope's text, which ParseScope reads: ">" for the whole bucket, else the prefixes joined by ",".
func (s Scope) String() string {
	if s.IsAll() {
		return allText
	}
	return strings.Join(s.prefixes, ",")
}

// ParseScope reads what String writes.
func ParseScope(text string) (Scope, error) {
	if text == allText {
		return Scope{}, nil
	}
	return Prefixes(strings.Split(text, ",")...)
}

// Covers reports whether every key in other is in s as well.
func (s Scope) Covers(other Scope) bool {
	if s.IsAll() {
		return true
	}
	if other.IsAll() {
		return false
	}
	for _, p := range other.prefixes {
		if !s.Contains(p) {
			return false
		}
	}
	return true
}

// ValidKey checks a key as NATS does: tokens of [-/_=a-zA-Z0-9] joined by single dots.
func ValidKey(key string) error {
	if key == "" {
		return &KeyError{Key: key, Detail: "a key is not empty"}
	}
	if key[0] == '.' || key[len(key)-1] == '.' {
		return &KeyError{Key: key, Detail: "a key neither begins nor ends with '.'"}
	}
	for i := range len(key) {
		if !isKeyByte(key[i]) {
			return &KeyError{Key: key, Detail: fmt.Sprintf("%q can't stand in a key; allowed: A-Z a-z 0-9 - _ / = .", key[i])}
		}
		if key[i] == '.' && key[i-1] == '.' {
			return &KeyError{Key: key, Detail: `a key can't hold ".."`}
		}
	}
	return nil
}

// WritableKey checks a key as ValidKey does, and that it is not Reserved.
func WritableKey(key string) error {
	if err := ValidKey(key); err != nil {
		return err
	}
	if Reserved(key) {
		return &KeyError{Key: key, Detail: fmt.Sprintf("keys that begin with the token %q are kept for fold itself", reservedToken)}
	}
	return nil
}

func isKeyByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return c == '-' || c == '/' || c == '_' || c == '=' || c == '.'
}
