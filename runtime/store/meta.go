package store

import (
	"bytes"
	"fmt"

	"github.com/typedfold/fold/runtime/kv"
)

// Names of a fold's own records (MetaKey), which a repair and an artifact read too.
const (
	// MetaBucket is the bucket's name, MetaScope the scope's text (kv.Scope.String).
	MetaBucket = "bucket"
	MetaScope  = "scope"
	// MetaLog is the log's identity (kv.Incarnation), MetaOwed the audit that is owed (kv.Owed).
	MetaLog  = "log"
	MetaOwed = "owed"
	// MetaSchema, and the full name of a table's message, is the schema that the table's rows were judged by.
	MetaSchema = "schema."
	// MetaIndex, the full name of a table's message, a dot and the index's key space say that the index is built: it has
	// the entries of all rows. The value is the index's definition. See IndexMark.
	MetaIndex = "index."
)

// indexSpaceLen is the length of an index's key space: upper-case hexadecimal digits.
const indexSpaceLen = 16

// IndexMark is the name of the record that says that an index is built.
func IndexMark(message, space string) string { return MetaIndex + message + "." + space }

// ParseIndexMark takes the store key of such a record apart; false for any other key.
func ParseIndexMark(key []byte) (message, space string, ok bool) {
	rest, ok := bytes.CutPrefix(key, MetaKey(MetaIndex))
	dot := len(rest) - indexSpaceLen - 1
	if !ok || dot < 1 || rest[dot] != '.' || bytes.IndexByte(rest[dot+1:], '.') >= 0 {
		return "", "", false
	}
	return string(rest[:dot]), string(rest[dot+1:]), true
}

// Meta is a copy of one of the fold's own records; nil when there is none.
func Meta(g Getter, name string) ([]byte, error) {
	var v Value
	ok, err := g.Get(MetaKey(name), &v)
	if err != nil || !ok {
		return nil, err
	}
	defer v.Release()
	return append([]byte{}, v.Bytes...), nil
}

// LogOf is the identity of the log that the store was folded from; the zero value when none was noted.
func LogOf(g Getter) (kv.Incarnation, error) {
	b, err := Meta(g, MetaLog)
	if err != nil || b == nil {
		return kv.Incarnation{}, err
	}
	i, err := kv.ParseIncarnation(b)
	if err != nil {
		return i, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return i, nil
}

// OwedOf is the audit that the store owes.
func OwedOf(g Getter) (kv.Owed, error) {
	b, err := Meta(g, MetaOwed)
	if err != nil || b == nil {
		return kv.Owed{}, err
	}
	o, err := kv.ParseOwed(b)
	if err != nil {
		return o, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return o, nil
}
