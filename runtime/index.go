package fold

import (
	"errors"
	"fmt"
	"slices"

	"github.com/zeebo/blake3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/typedfold/fold/internal/wire"
	"github.com/typedfold/fold/runtime/schema"
	"github.com/typedfold/fold/runtime/store"

	foldv1 "github.com/typedfold/fold/gen/go/fold/v1"
)

// tableIndexes are the secondary indexes of one table: which entries a row has. It is immutable, and safe for
// concurrent use.
//
// An entry stands for the row that reads see, the accepted record of its key. Its store key is SpaceIndex, the table's
// prefix, 16 digits that name the index's key space, the tuple's tokens, and what follows the prefix in the row's key,
// with 0x00 between them; its value is empty. A long token stands there as its hash.
type tableIndexes struct {
	table *schema.Table
	name  string
	list  []tableIndex
	// checker reads the fields of a value that is encoded as a message; nil where values have to be decoded.
	checker *wire.Checker
	codecs  *codecs
	rows    indexedRows
	// cut is how much of a NATS key is the table's prefix.
	cut int
}

// indexedRows is what entries need to know of a table's Go types.
type indexedRows interface {
	// isKey reports whether a NATS key of the table's shape can be read: without that there is no row.
	isKey(key string) bool
	// decodeRow makes a message of a stored value. Fields that the key fills may be left unset.
	decodeRow(*indexedRow) (proto.Message, error)
}

// tableIndex is one index.
type tableIndex struct {
	*schema.Index
	space  string // the 16 digits
	prefix []byte // what the store keys of its entries begin with
	fields []indexField
	// elements is the field that is repeated; -1 for none.
	elements int
}

// newTableIndexes compiles the indexes of a table; nil when it has none.
func newTableIndexes(c *compiled, md protoreflect.MessageDescriptor, rows indexedRows) (*tableIndexes, error) {
	t := c.table
	if len(t.Indexes) == 0 {
		return nil, nil
	}
	x := &tableIndexes{table: t, name: t.GoName, codecs: &c.codecs, rows: rows, cut: len(t.Prefix())}
	var paths keyPaths
	onWire := c.codecs.reads(foldv1.Codec_CODEC_PROTO)
	for i := range t.Indexes {
		ix := tableIndex{Index: &t.Indexes[i], elements: -1}
		for j := range ix.Fields {
			f := newIndexField(t, &ix.Fields[j], &paths)
			if f.Repeated {
				ix.elements, onWire = j, false
			}
			ix.fields = append(ix.fields, f)
		}
		ix.space = indexSpace(string(t.Message), ix.Index)
		ix.prefix = store.AppendKey(nil, store.SpaceIndex, t.Prefix())
		ix.prefix = append(append(ix.prefix, ix.space...), 0)
		x.list = append(x.list, ix)
	}
	if onWire {
		checker, err := wire.Compile(md, paths)
		if err != nil && !errors.Is(err, wire.ErrUncheckable) {
			return nil, fmt.Errorf("indexes of %s: %w", t.Message, err)
		}
		x.checker = checker
	}
	return x, nil
}

// indexSpace names the key space of an index: 16 digits of a hash of its definition, and of the message's name, since two
// tables may share a prefix.
func indexSpace(message string, ix *schema.Index) string {
	sum := blake3.Sum256([]byte(message + "\n" + ix.Definition()))
	return fmt.Sprintf("%016X", sum[:8])
}

// mark is the store key of the record that says that the index is built.
func (x *tableIndexes) mark(ix *tableIndex) []byte {
	return store.MetaKey(store.IndexMark(string(x.table.Message), ix.space))
}

// byName is the index of that name.
func (x *tableIndexes) byName(name string) (*tableIndex, error) {
	if x != nil {
		if i := slices.IndexFunc(x.list, func(ix tableIndex) bool { return ix.Name == name }); i >= 0 {
			return &x.list[i], nil
		}
		return nil, fmt.Errorf("table %s has no index %q", x.name, name)
	}
	return nil, fmt.Errorf("no index %q: the table has none", name)
}

// rowKey is the NATS key of the row that an entry stands for. tuple is the length of what precedes the row's part of the
// key.
func (x *tableIndexes) rowKey(entry []byte, tuple int) string {
	b := make([]byte, 0, x.cut+len(entry)-tuple)
	b = append(b, x.table.Prefix()...)
	for _, c := range entry[tuple:] {
		if c == 0 {
			c = '.'
		}
		b = append(b, c)
	}
	return string(b)
}

// tupleLen is how much of an entry of the index precedes the row's part of the key; false when it is cut short.
func (ix *tableIndex) tupleLen(entry []byte) (int, bool) {
	n := len(ix.prefix)
	for range ix.fields {
		for n < len(entry) && entry[n] != 0 {
			n++
		}
		if n++; n > len(entry) {
			return 0, false
		}
	}
	return n, true
}

// indexScratch is one goroutine's working memory for entries.
type indexScratch struct{ fields []wire.Field }

// indexedRow is what entries are worked out from.
type indexedRow struct {
	key         string
	value       []byte
	contentType string
	// message is the decoded value where somebody has decoded it already.
	message proto.Message
}

// entries fills the set with a row's entries. A value that can't be decoded has none.
func (x *tableIndexes) entries(set *entrySet, s *indexScratch, row *indexedRow) {
	set.reset()
	if codec, _ := x.codecs.chosen(row.contentType); codec == foldv1.Codec_CODEC_PROTO && x.checker != nil {
		if n := x.checker.Keys(); cap(s.fields) < n {
			s.fields = make([]wire.Field, n)
		} else {
			s.fields = s.fields[:n]
		}
		if x.checker.Check(row.value, s.fields) == nil {
			for i := range x.list {
				x.entry(set, &x.list[i], row, valueSource{fields: s.fields}, -1)
			}
			set.sort()
			return
		}
	}
	m := row.message
	if m == nil {
		var err error
		if m, err = x.rows.decodeRow(row); err != nil {
			return
		}
	}
	source := valueSource{message: m.ProtoReflect()}
	for i := range x.list {
		ix := &x.list[i]
		if ix.elements < 0 {
			x.entry(set, ix, row, source, -1)
			continue
		}
		for e := range ix.fields[ix.elements].elements(source.message) {
			x.entry(set, ix, row, source, e)
		}
	}
	set.sort()
}

// entry adds a row's entry of one index, unless a field is unset or has no token. element is the place in the repeated
// field, where the index has one.
func (x *tableIndexes) entry(set *entrySet, ix *tableIndex, row *indexedRow, source valueSource, element int) {
	b := append(set.begin(), ix.prefix...)
	for i := range ix.fields {
		f := &ix.fields[i]
		v, ok := f.read(row.key, source, element)
		if !ok {
			return
		}
		n := len(b)
		if b, ok = f.append(b, v); !ok {
			return
		}
		b = append(shortToken(b, n), 0)
	}
	n := len(b)
	b = append(b, row.key[x.cut:]...)
	store.Ordered(b[n:])
	set.end(b)
}
