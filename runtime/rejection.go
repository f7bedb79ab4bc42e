package fold

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/typedfold/fold/runtime/store"
)

// RejectCode is why a key or a value was refused. The numbers are stored and never change.
type RejectCode uint8

const (
	// KeyNoPattern: a literal or the number of tokens is not the pattern's; the key is of no such table.
	KeyNoPattern RejectCode = iota + 1
	// KeySegment: a token, or on write a field, is not of its encoding's form or range.
	KeySegment
	// KeyNotCanonical: a token can be read, but would be written otherwise.
	KeyNotCanonical
	// KeyFieldUnset: a key field with presence is not set.
	KeyFieldUnset
	// KeyTooLong: the key is longer than the server's limit for a subject.
	KeyTooLong
	// KeyValueMismatch: the value's key fields are not those of its key.
	KeyValueMismatch
	// ValueDecode: the value is not one of its codec and type.
	ValueDecode
	// ValueTooLarge: the value is longer than the table allows.
	ValueTooLarge
	// Validation: the registered validator refused the value.
	Validation
	// Hook: a hook refused the value.
	Hook
)

var rejectNames = [...]string{
	KeyNoPattern: "KEY_NO_PATTERN", KeySegment: "KEY_SEGMENT", KeyNotCanonical: "KEY_NOT_CANONICAL",
	KeyFieldUnset: "KEY_FIELD_UNSET", KeyTooLong: "KEY_TOO_LONG", KeyValueMismatch: "KEY_VALUE_MISMATCH",
	ValueDecode: "VALUE_DECODE", ValueTooLarge: "VALUE_TOO_LARGE", Validation: "VALIDATION", Hook: "HOOK",
}

func (c RejectCode) known() bool { return c != 0 && int(c) < len(rejectNames) }

func (c RejectCode) String() string {
	if !c.known() {
		return fmt.Sprintf("REJECT_CODE(%d)", uint8(c))
	}
	return rejectNames[c]
}

// MarshalText is the code's name.
func (c RejectCode) MarshalText() ([]byte, error) {
	if !c.known() {
		return nil, fmt.Errorf("marshal reject code: no code has the number %d", uint8(c))
	}
	return []byte(rejectNames[c]), nil
}

// UnmarshalText reads a code's name.
func (c *RejectCode) UnmarshalText(text []byte) error {
	for i, name := range rejectNames {
		if name != "" && name == string(text) {
			*c = RejectCode(i)
			return nil
		}
	}
	return fmt.Errorf("unmarshal reject code: no code has the name %q", text)
}

// Rejection is a key or a value that a table refused, and why. It is an error. Fields that are not known where it
// arose are empty: an encoder knows no table, a reader of keys no revision.
type Rejection struct {
	Code     RejectCode
	Table    string
	Key      string // the NATS key
	Field    string // the key variable or field that decided
	Revision uint64
	Err      error
}

func (r *Rejection) Error() string {
	var b strings.Builder
	if r.Table != "" {
		fmt.Fprintf(&b, "table %s: ", r.Table)
	}
	if r.Key != "" {
		fmt.Fprintf(&b, "key %q: ", r.Key)
	}
	if r.Revision != 0 {
		fmt.Fprintf(&b, "revision %d: ", r.Revision)
	}
	if r.Field != "" {
		fmt.Fprintf(&b, "field %s: ", r.Field)
	}
	b.WriteString(r.Code.String())
	if r.Err != nil {
		fmt.Fprintf(&b, ": %v", r.Err)
	}
	return b.String()
}

func (r *Rejection) Unwrap() error { return r.Err }

const (
	rejectionFormat = 1
	// maxRejectionText bounds what is stored of Err's text, in bytes.
	maxRejectionText = 4096
)

// AppendBinary appends the stored form: [format][code][uvarint revision], then table, key, field and the text of Err,
// each as [uvarint length][bytes]. Of Err only the text is kept, up to 4096 bytes.
func (r *Rejection) AppendBinary(dst []byte) ([]byte, error) {
	if !r.Code.known() {
		return dst, fmt.Errorf("encode rejection: no code has the number %d", uint8(r.Code))
	}
	dst = append(dst, rejectionFormat, byte(r.Code))
	dst = binary.AppendUvarint(dst, r.Revision)
	text := ""
	if r.Err != nil {
		text = clip(r.Err.Error(), maxRejectionText)
	}
	for _, s := range [...]string{r.Table, r.Key, r.Field, text} {
		dst = binary.AppendUvarint(dst, uint64(len(s)))
		dst = append(dst, s...)
	}
	return dst, nil
}

// parseRejection reads the stored form. It keeps nothing of b. Err is nil or has the text of the one that was stored.
func parseRejection(b []byte) (*Rejection, error) {
	if len(b) < 2 || b[0] != rejectionFormat || !RejectCode(b[1]).known() {
		return nil, fmt.Errorf("%w: rejection head %x in %d bytes", store.ErrCorrupt, b[:min(len(b), 2)], len(b))
	}
	r := &Rejection{Code: RejectCode(b[1])}
	b = b[2:]
	rev, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, fmt.Errorf("%w: rejection revision", store.ErrCorrupt)
	}
	r.Revision, b = rev, b[n:]
	var text string
	for _, s := range [...]*string{&r.Table, &r.Key, &r.Field, &text} {
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return nil, fmt.Errorf("%w: rejection text", store.ErrCorrupt)
		}
		*s, b = string(b[n:n+int(size)]), b[n+int(size):]
	}
	if len(b) != 0 {
		return nil, fmt.Errorf("%w: %d bytes after a rejection", store.ErrCorrupt, len(b))
	}
	if text != "" {
		r.Err = errors.New(text)
	}
	return r, nil
}

// clip is s cut to at most n bytes, not within a character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
