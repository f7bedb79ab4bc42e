package wire

import (
	"fmt"
	"sort"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Compile builds the checker of a message type. Each key path leads from md
// through singular message fields to a singular field; the last may itself be a
// message, of which only the presence is reported. No two paths may be equal.
//
// It returns an error that wraps [ErrPath] for a path it refuses and one that
// wraps [ErrUncheckable] for a type that must be decoded: a message set, a
// placeholder, more than 64 required fields, or a map whose UTF-8 validation is
// ambiguous. A checkable type may hold values that are not; see
// [Checker.Check].
func Compile(md protoreflect.MessageDescriptor, keyPaths [][]protoreflect.FieldDescriptor) (*Checker, error) {
	if protoLegacy {
		return nil, fmt.Errorf("compile checker of %s: %w: built with the protolegacy tag", md.FullName(), ErrUncheckable)
	}
	c := &Checker{name: md.FullName()}
	tree := &pathNode{}
	for i, path := range keyPaths {
		s, err := tree.add(md, path, i)
		if err != nil {
			return nil, fmt.Errorf("compile checker of %s: key path %d (%s): %w", md.FullName(), i, pathString(path), err)
		}
		c.classes = append(c.classes, s.class)
	}
	cc := compiler{shared: make(map[protoreflect.MessageDescriptor]*program)}
	root, err := cc.program(md, tree)
	if err != nil {
		return nil, fmt.Errorf("compile checker of %s: %w", md.FullName(), err)
	}
	if root.required != 0 {
		// The type may also be nested in itself, where the rule is another.
		top := *root
		top.root = true
		root = &top
	}
	c.root = root
	return c, nil
}

// Path resolves a dotted path of field names, such as "spec.id", for [Compile].
func Path(md protoreflect.MessageDescriptor, path string) ([]protoreflect.FieldDescriptor, error) {
	var fields []protoreflect.FieldDescriptor
	for name := range strings.SplitSeq(path, ".") {
		var fd protoreflect.FieldDescriptor
		if md != nil {
			fd = md.Fields().ByName(protoreflect.Name(name))
		}
		if fd == nil {
			return nil, fmt.Errorf("key path %q: %w: no field %q", path, ErrPath, name)
		}
		fields = append(fields, fd)
		md = fd.Message()
	}
	return fields, nil
}

// pathNode is a node of the tree of key paths: a message, and below it the
// fields that are keys or lead to some.
type pathNode struct {
	key  *slot
	next map[protowire.Number]*pathNode
}

func (n *pathNode) add(md protoreflect.MessageDescriptor, path []protoreflect.FieldDescriptor, index int) (*slot, error) {
	if len(path) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrPath)
	}
	var fd protoreflect.FieldDescriptor
	for _, want := range path {
		if md == nil {
			return nil, fmt.Errorf("%w: %s is not a message", ErrPath, fd.FullName())
		}
		if fd = md.Fields().ByNumber(want.Number()); fd == nil || fd.FullName() != want.FullName() {
			return nil, fmt.Errorf("%w: %s is not a field of %s", ErrPath, want.FullName(), md.FullName())
		}
		if fd.Cardinality() == protoreflect.Repeated {
			return nil, fmt.Errorf("%w: %s is repeated", ErrPath, fd.FullName())
		}
		if n.next == nil {
			n.next = make(map[protowire.Number]*pathNode)
		}
		child := n.next[fd.Number()]
		if child == nil {
			child = &pathNode{}
			n.next[fd.Number()] = child
		}
		n, md = child, fd.Message()
	}
	if n.key != nil {
		return nil, fmt.Errorf("%w: it equals path %d", ErrPath, n.key.index)
	}
	n.key = &slot{index: index, class: classOf(fd.Kind()), scalar: fd.Kind(), explicit: fd.HasPresence()}
	return n.key, nil
}

// slots returns the key slots at and below the node.
func (n *pathNode) slots() []slot {
	var out []slot
	if n.key != nil {
		out = append(out, *n.key)
	}
	for _, child := range n.next {
		out = append(out, child.slots()...)
	}
	return out
}

type compiler struct {
	shared map[protoreflect.MessageDescriptor]*program // of messages with no key below
}

// program compiles md at a node of the path tree, which is nil off all paths.
func (c *compiler) program(md protoreflect.MessageDescriptor, node *pathNode) (*program, error) {
	if node == nil || len(node.next) == 0 {
		node = &pathNode{}
		if p := c.shared[md]; p != nil {
			return p, nil
		}
	}
	if md.IsPlaceholder() {
		return nil, fmt.Errorf("%w: %s is not resolved", ErrUncheckable, md.FullName())
	}
	if set, ok := md.(interface{ IsMessageSet() bool }); ok && set.IsMessageSet() {
		return nil, fmt.Errorf("%w: %s is a message set", ErrUncheckable, md.FullName())
	}
	p := &program{name: md.FullName(), extends: md.ExtensionRanges().Len() > 0}
	if len(node.next) == 0 {
		c.shared[md] = p
	}
	fields := make([]*field, 0, md.Fields().Len())
	required := 0
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		f, err := c.field(fd, node)
		if err != nil {
			return nil, err
		}
		if fd.Cardinality() == protoreflect.Required || entryNeedsValue(fd) {
			if required == 64 {
				return nil, fmt.Errorf("%w: %s has more than 64 required fields", ErrUncheckable, md.FullName())
			}
			f.required = 1 << required
			p.required |= f.required
			required++
		}
		fields = append(fields, f)
	}
	p.index(fields)
	return p, nil
}

// entryNeedsValue reports whether fd is the value of a map entry whose message
// has required fields: an entry without a value stands for an empty message.
func entryNeedsValue(fd protoreflect.FieldDescriptor) bool {
	return fd.ContainingMessage().IsMapEntry() && fd.Number() == 2 &&
		fd.Message() != nil && fd.Message().RequiredNumbers().Len() > 0
}

func (c *compiler) field(fd protoreflect.FieldDescriptor, node *pathNode) (*field, error) {
	f := &field{number: fd.Number()}
	under := node.next[fd.Number()]
	if under != nil {
		f.key = under.key
	}
	if oneof := fd.ContainingOneof(); oneof != nil {
		for i := range oneof.Fields().Len() {
			if other := oneof.Fields().Get(i).Number(); other != fd.Number() && node.next[other] != nil {
				f.clears = append(f.clears, node.next[other].slots()...)
			}
		}
	}
	switch {
	case fd.IsMap():
		if err := mapUTF8(fd); err != nil {
			return nil, err
		}
		f.kind, f.accepts = kindMap, 1<<protowire.BytesType
	case fd.Kind() == protoreflect.MessageKind:
		f.kind, f.accepts = kindMessage, 1<<protowire.BytesType
	case fd.Kind() == protoreflect.GroupKind:
		f.kind, f.accepts = kindGroup, 1<<protowire.StartGroupType
	default:
		f.kind, f.accepts = scalarKind(fd)
		return f, nil
	}
	if fd.ContainingMessage().IsMapEntry() && f.kind != kindMessage {
		return nil, fmt.Errorf("%w: the map value %s is not a plain message", ErrUncheckable, fd.FullName())
	}
	sub, err := c.program(fd.Message(), under)
	f.sub = sub
	return f, err
}

func scalarKind(fd protoreflect.FieldDescriptor) (kind, uint8) {
	list := fd.IsList()
	switch fd.Kind() {
	case protoreflect.StringKind:
		if enforceUTF8(fd) {
			return kindUTF8, 1 << protowire.BytesType
		}
		return kindBytes, 1 << protowire.BytesType
	case protoreflect.BytesKind:
		return kindBytes, 1 << protowire.BytesType
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		if list {
			return kindRepeatedFixed32, 1<<protowire.Fixed32Type | 1<<protowire.BytesType
		}
		return kindFixed32, 1 << protowire.Fixed32Type
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		if list {
			return kindRepeatedFixed64, 1<<protowire.Fixed64Type | 1<<protowire.BytesType
		}
		return kindFixed64, 1 << protowire.Fixed64Type
	default:
		if list {
			return kindRepeatedVarint, 1<<protowire.VarintType | 1<<protowire.BytesType
		}
		return kindVarint, 1 << protowire.VarintType
	}
}

// enforceUTF8 follows the protobuf runtime: proto3 always validates, proto2
// never does, and editions go by the feature.
func enforceUTF8(fd protoreflect.FieldDescriptor) bool {
	if fd.Syntax() == protoreflect.Editions {
		if f, ok := fd.(interface{ EnforceUTF8() bool }); ok {
			return f.EnforceUTF8()
		}
	}
	return fd.Syntax() == protoreflect.Proto3
}

// mapUTF8 refuses a map whose own UTF-8 rule differs from that of its key or
// value: the runtime goes by either, depending on whether it decodes lazily.
func mapUTF8(fd protoreflect.FieldDescriptor) error {
	for _, part := range []protoreflect.FieldDescriptor{fd.MapKey(), fd.MapValue()} {
		if part.Kind() == protoreflect.StringKind && enforceUTF8(part) != enforceUTF8(fd) {
			return fmt.Errorf("%w: utf-8 validation of the map %s differs from its %s", ErrUncheckable, fd.FullName(), part.Name())
		}
	}
	return nil
}

// index lays the fields out for look-up by number and by single-byte tag.
func (p *program) index(fields []*field) {
	sort.Slice(fields, func(i, j int) bool { return fields[i].number < fields[j].number })
	var last protowire.Number
	for _, f := range fields {
		if f.number >= 16 && f.number >= 2*last {
			break
		}
		last = f.number
	}
	p.dense = make([]*field, last+1)
	for _, f := range fields {
		if f.number <= last {
			p.dense[f.number] = f
			continue
		}
		if p.sparse == nil {
			p.sparse = make(map[protowire.Number]*field)
		}
		p.sparse[f.number] = f
	}
	for tag := 8; tag < len(p.fast); tag++ {
		p.fast[tag] = p.fastCode(protowire.Number(tag>>3), protowire.Type(tag&7))
	}
}

func (p *program) fastCode(num protowire.Number, typ protowire.Type) uint8 {
	f := p.field(num)
	if f == nil || f.accepts>>typ&1 == 0 {
		if f == nil && p.extends || f != nil && f.kind == kindMap {
			return fastNone
		}
		return plainCode(typ)
	}
	if f.required != 0 || len(f.clears) > 0 {
		return fastNone
	}
	key := f.key != nil
	switch f.kind {
	case kindVarint:
		if key {
			return fastKeyVarint
		}
		return fastVarint
	case kindBytes:
		if key {
			return fastKeyBytes
		}
		return fastBytes
	case kindUTF8:
		if key {
			return fastKeyUTF8
		}
		return fastUTF8
	case kindMessage, kindMap:
		if key {
			return fastNone
		}
		return fastMessage
	case kindGroup:
		return fastNone
	}
	if key || typ == protowire.BytesType {
		return fastNone
	}
	return plainCode(typ)
}

// plainCode is the code of a value that only has to be passed over.
func plainCode(typ protowire.Type) uint8 {
	switch typ {
	case protowire.VarintType:
		return fastVarint
	case protowire.Fixed32Type:
		return fastFixed32
	case protowire.Fixed64Type:
		return fastFixed64
	case protowire.BytesType:
		return fastBytes
	default:
		return fastNone
	}
}

func pathString(path []protoreflect.FieldDescriptor) string {
	names := make([]string, len(path))
	for i, fd := range path {
		names[i] = string(fd.Name())
	}
	return strings.Join(names, ".")
}
