package wire

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Checker checks values of one message type. It is immutable and safe for
// concurrent use.
type Checker struct {
	name    protoreflect.FullName
	root    *program
	classes []Class
}

// Keys returns the number of key paths, which is the length of the slice that
// Check wants.
func (c *Checker) Keys() int { return len(c.classes) }

// Check returns nil when proto.Unmarshal would accept b, a [*CheckError] that
// wraps [ErrUncheckable] when only decoding can tell, and another [*CheckError]
// when proto.Unmarshal would refuse b.
//
// It writes key i of the paths given to [Compile] to keys[i], whose length must
// be c.Keys(). Their Bytes alias b. After an error they mean nothing.
func (c *Checker) Check(b []byte, keys []Field) error {
	if len(keys) != len(c.classes) {
		return ErrKeys
	}
	for i, class := range c.classes {
		keys[i] = Field{Class: class}
	}
	n, st := c.root.run(b, 0, protowire.DefaultRecursionLimit, keys)
	if st == statusOK {
		return nil
	}
	return c.refuse(b, n, st)
}

func (c *Checker) refuse(b []byte, offset int, st status) error {
	e := statusErrors[st]
	return &CheckError{Message: c.name, Offset: offset, Size: len(b), Err: e.err, Detail: e.detail}
}

// What a single-byte tag asks for. The bytes codes are in order of work.
const (
	fastNone uint8 = iota // the general way: required, in a oneof with keys, or rare
	fastVarint
	fastFixed32
	fastFixed64
	fastKeyVarint
	fastBytes
	fastUTF8
	fastKeyBytes
	fastKeyUTF8
	fastMessage
)

// program checks one message type at one place in the tree of key paths.
// Programs of recursive types refer to each other.
type program struct {
	fast     [128]uint8
	dense    []*field
	sparse   map[protowire.Number]*field
	required uint64 // the bits of all required fields
	name     protoreflect.FullName
	extends  bool // has extension ranges
	root     bool
}

func (p *program) field(num protowire.Number) *field {
	if int(num) < len(p.dense) {
		return p.dense[num]
	}
	return p.sparse[num]
}

// run checks a message that fills b, or that ends with the end of the given
// group inside b. It returns the bytes read, or where it stopped.
func (p *program) run(b []byte, group protowire.Number, depth int, keys []Field) (int, status) {
	if depth--; depth < 0 {
		return 0, statusDepth
	}
	var seen uint64 // bits of required fields
	i := 0
	for i < len(b) {
		at := i
		tag := uint64(b[i])
		i++
		if tag < 0x80 {
			switch code := p.fast[tag]; code {
			case fastVarint:
				if i < len(b) && b[i] < 0x80 {
					i++
					continue
				}
				if i = skipVarint(b, i); i < 0 {
					return at, statusVarint
				}
				continue
			case fastKeyVarint:
				var v uint64
				if v, i = uvarint(b, i); i < 0 {
					return at, statusVarint
				}
				p.dense[tag>>3].key.storeNum(keys, v)
				continue
			case fastFixed32:
				if i += 4; i > len(b) {
					return at, statusTruncated
				}
				continue
			case fastFixed64:
				if i += 8; i > len(b) {
					return at, statusTruncated
				}
				continue
			case fastBytes, fastUTF8, fastKeyBytes, fastKeyUTF8, fastMessage:
				var size uint64
				if i < len(b) && b[i] < 0x80 {
					size = uint64(b[i])
					i++
				} else if size, i = uvarint(b, i); i < 0 {
					return at, statusVarint
				}
				if size > uint64(len(b)-i) {
					return at, statusTruncated
				}
				v := b[i : i+int(size)]
				switch code {
				case fastUTF8:
					if !validUTF8(v) {
						return at, statusUTF8
					}
				case fastKeyBytes:
					p.dense[tag>>3].key.storeBytes(keys, v)
				case fastKeyUTF8:
					if !validUTF8(v) {
						return at, statusUTF8
					}
					p.dense[tag>>3].key.storeBytes(keys, v)
				case fastMessage:
					if n, st := p.dense[tag>>3].sub.run(v, 0, depth, keys); st != statusOK {
						return i + n, st
					}
				}
				i += len(v)
				continue
			}
		}
		next, bit, st := p.general(b, at, group, depth, keys)
		seen |= bit
		switch i = next; st {
		case statusOK:
		case statusEnd:
			return i, p.complete(seen)
		default:
			return i, st
		}
	}
	if group != 0 {
		return i, statusGroup
	}
	return i, p.complete(seen)
}

// general checks the field at b[at:] and returns the index after it with the
// field's required bit, or statusEnd at the end of the group.
func (p *program) general(b []byte, at int, group protowire.Number, depth int, keys []Field) (next int, bit uint64, st status) {
	tag, i := uvarint(b, at)
	if i < 0 {
		return at, 0, statusVarint
	}
	if n := tag >> 3; n == 0 || n > uint64(protowire.MaxValidNumber) {
		return at, 0, statusTag
	}
	num, typ := protowire.Number(tag>>3), protowire.Type(tag&7)
	if typ == protowire.EndGroupType {
		if num != group {
			return at, 0, statusGroup
		}
		return i, 0, statusEnd
	}
	var n int
	f := p.field(num)
	if f == nil || f.accepts>>typ&1 == 0 {
		n, st = p.unknown(f, b[i:], num, typ, depth)
		return i + n, 0, st
	}
	n, st = f.value(b[i:], typ, depth, keys)
	return i + n, f.required, st
}

// complete says whether all required fields were seen. A nested message may be
// completed by a later occurrence, or dropped by another member of its oneof.
func (p *program) complete(seen uint64) status {
	switch {
	case seen == p.required:
		return statusOK
	case p.root:
		return statusRequired
	default:
		return statusUndecided
	}
}

// unknown passes over a field that has no such number (f is nil) or another
// wire type than the schema says.
func (p *program) unknown(f *field, b []byte, num protowire.Number, typ protowire.Type, depth int) (int, status) {
	if f != nil && f.kind == kindMap && depth == 0 {
		// A map counts one level even here, but only outside a lazy field.
		return 0, statusUndecided
	}
	if f == nil && p.extends {
		if _, err := protoregistry.GlobalTypes.FindExtensionByNumber(p.name, num); err != protoregistry.NotFound {
			return 0, statusUndecided
		}
	}
	n := protowire.ConsumeFieldValue(num, typ, b)
	if n < 0 {
		return 0, statusUnknown
	}
	return n, statusOK
}

// value checks the value of a known field at the start of b.
func (f *field) value(b []byte, typ protowire.Type, depth int, keys []Field) (int, status) {
	for i := range f.clears {
		f.clears[i].reset(keys)
	}
	switch typ {
	case protowire.VarintType:
		v, n := uvarint(b, 0)
		if n < 0 {
			return 0, statusVarint
		}
		if f.key != nil {
			f.key.storeNum(keys, v)
		}
		return n, statusOK
	case protowire.Fixed32Type:
		if len(b) < 4 {
			return 0, statusTruncated
		}
		if f.key != nil {
			f.key.storeNum(keys, uint64(binary.LittleEndian.Uint32(b)))
		}
		return 4, statusOK
	case protowire.Fixed64Type:
		if len(b) < 8 {
			return 0, statusTruncated
		}
		if f.key != nil {
			f.key.storeNum(keys, binary.LittleEndian.Uint64(b))
		}
		return 8, statusOK
	case protowire.StartGroupType:
		if f.key != nil {
			keys[f.key.index].Present = true
		}
		return f.sub.run(b, f.number, depth, keys)
	default:
		return f.bytes(b, depth, keys)
	}
}

// bytes checks a length-prefixed value at the start of b.
func (f *field) bytes(b []byte, depth int, keys []Field) (int, status) {
	start, end := span(b, 0)
	if start < 0 {
		return 0, statusTruncated
	}
	v := b[start:end]
	switch f.kind {
	case kindUTF8:
		if !validUTF8(v) {
			return 0, statusUTF8
		}
	case kindMessage, kindMap:
		if n, st := f.sub.run(v, 0, depth, keys); st != statusOK {
			return start + n, st
		}
		if f.key != nil {
			keys[f.key.index].Present = true
		}
		return end, statusOK
	case kindRepeatedVarint:
		if !validVarints(v) {
			return 0, statusPacked
		}
	case kindRepeatedFixed32:
		if len(v)%4 != 0 {
			return 0, statusPacked
		}
	case kindRepeatedFixed64:
		if len(v)%8 != 0 {
			return 0, statusPacked
		}
	}
	if f.key != nil {
		f.key.storeBytes(keys, v)
	}
	return end, statusOK
}
