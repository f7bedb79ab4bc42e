package fold

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/typedfold/fold/runtime/store"
)

// CheckIndexes compares what a store says of its indexes with its entries and keys, without any type: each entry of an
// index that is marked as built must be of a key that has a row. Whether a row lacks an entry, or has other values, only
// VerifyIndexes and VerifyIndexesOf can tell. Entries of no such index are counted as unmarked; a crash within a rebuild
// leaves some, and the next start removes them.
func CheckIndexes(ctx context.Context, g store.Getter) (r *IndexReport, unmarked uint64, err error) {
	r = &IndexReport{}
	defer func() {
		if err != nil {
			err = fmt.Errorf("check indexes: %w", err)
		}
	}()
	marks, err := markedIndexes(g)
	if err != nil {
		return nil, 0, err
	}
	r.Indexes = uint64(len(marks))
	it, err := g.Iter(store.IterOptions{Lower: []byte{byte(store.SpaceIndex)}, Upper: store.PrefixEnd([]byte{byte(store.SpaceIndex)})})
	if err != nil {
		return nil, 0, err
	}
	for it.Next() {
		if err = ctx.Err(); err != nil {
			break
		}
		m := markOf(marks, it.Key())
		if m == nil {
			unmarked++
			continue
		}
		r.Entries++
		if err = m.check(g, it.Key(), r); err != nil {
			break
		}
	}
	err = cmp.Or(err, it.Err())
	return r, unmarked, cmp.Or(err, it.Close())
}

// markedIndex is an index as the store alone describes it.
type markedIndex struct {
	table, name string
	rows        string // what the NATS keys of its rows begin with
	prefix      string // of its entries
	fields      int
}

// markedIndexes are the indexes that are marked as built.
func markedIndexes(g store.Getter) (marks []markedIndex, err error) {
	prefix := store.MetaKey(store.MetaIndex)
	it, err := g.Iter(store.IterOptions{Lower: prefix, Upper: store.PrefixEnd(prefix)})
	if err != nil {
		return nil, err
	}
	for it.Next() {
		message, space, ok := store.ParseIndexMark(it.Key())
		if !ok {
			err = fmt.Errorf("%w: mark of an index %q", store.ErrCorrupt, it.Key())
			break
		}
		var value, record []byte
		if value, err = it.Value(); err != nil {
			break
		}
		if record, err = store.Meta(g, store.MetaSchema+message); err != nil {
			break
		}
		m := markedIndex{table: message, name: space, fields: strings.Count(string(value), ", ") + 1}
		for line := range strings.Lines(string(record)) {
			name, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			switch index, isIndex := strings.CutPrefix(name, "index "); {
			case name == "key":
				m.rows, _, _ = strings.Cut(text, "{")
			case isIndex && strings.TrimSuffix(text, ", unique") == string(value):
				m.name = index
			}
		}
		m.prefix = string(store.AppendKey(nil, store.SpaceIndex, m.rows)) + space + "\x00"
		marks = append(marks, m)
	}
	err = cmp.Or(err, it.Err())
	return marks, cmp.Or(err, it.Close())
}

func markOf(marks []markedIndex, entry []byte) *markedIndex {
	for i := range marks {
		if strings.HasPrefix(bytesAsString(entry), marks[i].prefix) {
			return &marks[i]
		}
	}
	return nil
}

// check finds the row of an entry.
func (m *markedIndex) check(g store.Getter, entry []byte, r *IndexReport) error {
	rest := entry[len(m.prefix):]
	for range m.fields {
		_, after, ok := strings.Cut(bytesAsString(rest), "\x00")
		if !ok {
			r.found(&IndexError{Table: m.table, Index: m.name, Key: string(entry), Problem: IndexExtra})
			return nil
		}
		rest = rest[len(rest)-len(after):]
	}
	key := m.rows + strings.ReplaceAll(string(rest), "\x00", ".")
	row, err := acceptedRecord(g, key)
	if err == nil && !row.ok {
		r.found(&IndexError{Table: m.table, Index: m.name, Key: key, Problem: IndexExtra})
	}
	return err
}
