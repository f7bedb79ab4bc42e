package fold_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/keyenc"
	"github.com/typedfold/fold/runtime/schema"
)

// item is a message of a type that was compiled while the test ran: one message may have another schema in each life of a
// store. Beside that it is an ordinary message.
type item struct{ of itemMessage }

func (m *item) ProtoReflect() protoreflect.Message {
	if m == nil { // a table asks the zero value for its type
		return itemMessage{Message: nextItem.Load().Zero(), typ: nextItem.Load()}
	}
	return m.of
}

// itemMessage gives back items where a message is asked for.
type itemMessage struct {
	protoreflect.Message
	typ  protoreflect.MessageType
	self *item
}

func (m itemMessage) Type() protoreflect.MessageType       { return itemType{m.typ} }
func (m itemMessage) New() protoreflect.Message            { return itemType{m.typ}.New() }
func (m itemMessage) Interface() protoreflect.ProtoMessage { return m.self }

type itemType struct{ protoreflect.MessageType }

func (t itemType) New() protoreflect.Message {
	m := &item{}
	m.of = itemMessage{Message: t.MessageType.New(), typ: t.MessageType, self: m}
	return m.of
}

// nextItem is the type that the next table takes its messages from.
var nextItem itemTypeHolder

type itemTypeHolder struct {
	mu  sync.Mutex
	typ protoreflect.MessageType
}

func (h *itemTypeHolder) Load() protoreflect.MessageType {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.typ
}

func (h *itemTypeHolder) store(t protoreflect.MessageType) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.typ = t
}

func (m *item) get(name string) protoreflect.Value {
	return m.of.Get(m.of.Descriptor().Fields().ByName(protoreflect.Name(name)))
}

// itemKey is the key of every version of the table: "item.{id}", or "item.{id}.{kind}" with an enum's name.
type itemKey struct{ id, kind string }

func (k itemKey) AppendKey(dst []byte) ([]byte, error) {
	dst = keyenc.AppendESC(append(dst, "item."...), k.id)
	if k.kind != "" {
		dst = append(append(dst, '.'), k.kind...)
	}
	return dst, nil
}

// itemSchema is one version of the table's schema.
type itemSchema struct {
	name    string
	table   *schema.Table
	message protoreflect.MessageType
	kinds   map[string]bool // the enum's names, where a key has one
	once    sync.Once
	of      *fold.Desc[itemKey, *item]
}

// itemOption is the table option of a version; %s takes more of it.
const (
	itemFields = "  string id = 1;\n  uint32 n = 2;\n  string text = 3;\n"
	itemTable  = "message Item {\n  option (fold.v1.table) = {key: \"item.{id}\" %s};\n" + itemFields + "}\n"
	kindTable  = "message Item {\n  option (fold.v1.table) = {key: \"item.{id}.{kind}\" part: {name: \"kind\" enc: ENCODING_ENUM_NAME} %s};\n" +
		itemFields + "  Kind kind = 4;\n}\n"
)

var itemSchemas sync.Map // of texts

// itemOf compiles a version: the first message of the text, in package item.v1, which is Item but for tests of names.
func itemOf(t testing.TB, name, text string) *itemSchema {
	t.Helper()
	if s, ok := itemSchemas.Load(text); ok {
		return s.(*itemSchema)
	}
	options, err := os.ReadFile("../proto/fold/v1/options.proto")
	if err != nil {
		t.Fatal(err)
	}
	c := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
		Accessor: protocompile.SourceAccessorFromMap(map[string]string{
			"fold/v1/options.proto": string(options),
			"item.proto": "syntax = \"proto3\";\npackage item.v1;\nimport \"fold/v1/options.proto\";\n" +
				"option (fold.v1.file) = {bucket: \"test\"};\n" + text,
		}),
	})}
	files, err := c.Compile(context.Background(), "item.proto")
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	md := files[0].Messages().Get(0)
	table, problems := schema.Compile(md)
	for _, p := range problems {
		t.Fatalf("%s: %v", name, p)
	}
	s := &itemSchema{name: name, table: table, message: dynamicpb.NewMessageType(md)}
	if kind := files[0].Enums().ByName("Kind"); kind != nil {
		s.kinds = map[string]bool{}
		for i := range kind.Values().Len() {
			s.kinds[string(kind.Values().Get(i).Name())] = true
		}
	}
	itemSchemas.Store(text, s)
	return s
}

func (s *itemSchema) parseKey(key string) (itemKey, error) {
	bad := func(field string) error { return &fold.Rejection{Code: fold.KeySegment, Field: field} }
	tokens := strings.Split(key, ".")
	id, err := keyenc.ParseESC(tokens[1])
	if err != nil {
		return itemKey{}, bad("id")
	}
	k := itemKey{id: id}
	if s.kinds != nil {
		if k.kind = tokens[2]; !s.kinds[k.kind] {
			return itemKey{}, bad("kind")
		}
	}
	return k, nil
}

func (s *itemSchema) keyOf(m *item) (itemKey, error) {
	k := itemKey{id: m.get("id").String()}
	if s.kinds != nil {
		fd := m.of.Descriptor().Fields().ByName("kind")
		v := fd.Enum().Values().ByNumber(m.of.Get(fd).Enum())
		if v == nil {
			return k, &fold.Rejection{Code: fold.KeySegment, Field: "kind"}
		}
		k.kind = string(v.Name())
	}
	return k, nil
}

// registering guards nextItem between its setting and the first use of a table's description.
var registering sync.Mutex

// desc is the table as generated code would describe it.
func (s *itemSchema) desc() *fold.Desc[itemKey, *item] {
	s.once.Do(func() {
		registering.Lock()
		defer registering.Unlock()
		nextItem.store(s.message)
		s.of = fold.NewDesc(fold.DescConfig[itemKey, *item]{
			ParseKey: s.parseKey, KeyOf: s.keyOf,
			Fill: func(m *item, k itemKey) error {
				m.of.Set(m.of.Descriptor().Fields().ByName("id"), protoreflect.ValueOfString(k.id))
				return nil
			},
		})
		fold.ParseEvent(s.of, fold.RawEntry{Key: "item.x.y", Op: fold.OpDelete})
	})
	return s.of
}

func (s *itemSchema) register(b *fold.Builder, opts ...fold.TableOption) (*fold.Table[itemKey, *item], error) {
	return fold.Register(b, s.desc(), opts...)
}

// parse is the judgement of one entry by the version.
func (s *itemSchema) parse(e fold.RawEntry) (fold.Event[itemKey, *item], *fold.Rejection) {
	return fold.ParseEvent(s.desc(), e)
}

func (s *itemSchema) String() string {
	if s == nil {
		return "without the table"
	}
	return fmt.Sprintf("version %q", s.name)
}

// itemProto and itemJSON are an Item in the two codecs. An absent key field is "".
func itemProto(id string, n uint32, text string, kind int32) string {
	var b []byte
	if id != "" {
		b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), id)
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), uint64(n))
	b = protowire.AppendString(protowire.AppendTag(b, 3, protowire.BytesType), text)
	if kind != 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, 4, protowire.VarintType), uint64(kind))
	}
	return string(b)
}

func itemJSON(id string, n uint32, text string) string {
	return fmt.Sprintf(`{"id":%q,"n":%d,"text":%q}`, id, n, text)
}
