package schema

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	foldv1 "github.com/typedfold/fold/gen/go/fold/v1"
	"github.com/typedfold/fold/runtime/keyenc"
)

// variable binds one variable of the pattern to its field. What it returns is whole only if it added no problem.
func (c *compiler) variable(seg segment, p part) Var {
	v := Var{Name: seg.variable, GoName: fieldGoName(seg.variable), Tail: seg.tail}
	if p.GetGoName() != "" {
		v.GoName = p.GetGoName()
	}
	v.Path = c.resolve(seg, p)
	if len(v.Path) == 0 {
		return v
	}
	for _, fd := range v.Path {
		v.Presence = v.Presence || fd.HasPresence()
	}
	var ok bool
	if v.Kind, ok = c.kind(seg, v.Field()); !ok {
		return v
	}
	c.partType(p, &v)
	c.encoding(seg, p, &v)
	if fd := v.Field(); c.table.Bind == foldv1.Bind_BIND_FILL && fd.Cardinality() == protoreflect.Required {
		c.add([]int32{tableBind}, "make the field optional, or leave bind at MATCH",
			"bind: BIND_FILL clears required field %q on the wire", fd.Name())
	}
	return v
}

// resolve walks a dotted path from the message to a field. It returns nil after a problem.
func (c *compiler) resolve(seg segment, p part) []protoreflect.FieldDescriptor {
	var path []protoreflect.FieldDescriptor
	md, offset := c.md, seg.offset+1
	names := strings.Split(seg.variable, ".")
	for i, name := range names {
		fd := md.Fields().ByName(protoreflect.Name(name))
		if fd == nil {
			c.unknownField(seg, p, md, name, offset)
			return nil
		}
		if o := fd.ContainingOneof(); o != nil && !o.IsSynthetic() {
			c.inKey(offset, "a key is always there; move the field out of the oneof", "field %q is a member of oneof %q", name, o.Name())
			return nil
		}
		path = append(path, fd)
		if i == len(names)-1 {
			return path
		}
		switch {
		case fd.IsMap() || fd.IsList():
			c.inKey(offset, "", "path %q crosses %s field %q", seg.variable, shape(fd), name)
			return nil
		case fd.Message() == nil:
			c.inKey(offset, "", "path %q crosses field %q, which is %s and not a message", seg.variable, name, fd.Kind())
			return nil
		}
		md, offset = fd.Message(), offset+len(name)+1
	}
	return nil
}

func (c *compiler) unknownField(seg segment, p part, md protoreflect.MessageDescriptor, name string, offset int) {
	if p.Part != nil && p.GetType() != foldv1.KeyType_KEY_TYPE_UNSPECIFIED && !strings.Contains(seg.variable, ".") {
		c.unsupported(p.path(partType), fmt.Sprintf("part %q: a variable that is in the key only is", seg.variable))
		return
	}
	var names []string
	for i := range md.Fields().Len() {
		names = append(names, string(md.Fields().Get(i).Name()))
	}
	c.inKey(offset, c.didYouMean(name, names), "{%s}: %q is not a field of %s", seg.variable, name, md.Name())
}

func shape(fd protoreflect.FieldDescriptor) string {
	if fd.IsMap() {
		return "map"
	}
	return "repeated"
}

const keyTypesHint = "a key takes singular string, bytes, bool, integer and enum fields"

// kind is the variable kind of a field.
func (c *compiler) kind(seg segment, fd protoreflect.FieldDescriptor) (keyenc.Kind, bool) {
	if fd.IsMap() || fd.IsList() {
		c.inKey(seg.offset, keyTypesHint, "field %q is %s and cannot be in a key", fd.Name(), shape(fd))
		return 0, false
	}
	switch fd.Kind() {
	case protoreflect.StringKind:
		return keyenc.KindString, true
	case protoreflect.BytesKind:
		return keyenc.KindBytes, true
	case protoreflect.BoolKind:
		return keyenc.KindBool, true
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return keyenc.KindInt32, true
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return keyenc.KindInt64, true
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return keyenc.KindUint32, true
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return keyenc.KindUint64, true
	case protoreflect.EnumKind:
		return keyenc.KindEnum, true
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		c.inKey(seg.offset, "use an integer or a string", "field %q is %s; floating point cannot be in a key (NaN, -0)", fd.Name(), fd.Kind())
	case protoreflect.GroupKind:
		c.inKey(seg.offset, keyTypesHint, "field %q is a group and cannot be in a key", fd.Name())
	default:
		switch name := fd.Message().FullName(); name {
		case "google.protobuf.Timestamp", "google.protobuf.Duration":
			c.inKey(seg.offset, "", "field %q: %s keys are not supported by this version of protoc-gen-fold yet", fd.Name(), name.Name())
		default:
			c.inKey(seg.offset, keyTypesHint, "field %q is message %s and cannot be in a key", fd.Name(), name)
		}
	}
	return 0, false
}

// partType checks a part's type against the field that the variable is bound to.
func (c *compiler) partType(p part, v *Var) {
	if p.Part == nil || p.GetType() == foldv1.KeyType_KEY_TYPE_UNSPECIFIED {
		return
	}
	typ := enumOption(c, c.md, p.path(partType), p.GetType(), 0)
	switch {
	case keyenc.Kind(typ) == v.Kind: // the numbers are the same
	case typ == foldv1.KeyType_KEY_TYPE_UUID && (v.Kind == keyenc.KindString || v.Kind == keyenc.KindBytes):
		c.unsupported(p.path(partType), fmt.Sprintf("part %q: %s is", p.GetName(), typ))
	default:
		c.add(p.path(partType), "leave the type out; it is the field's", "part %q says %s, but field %s is %s",
			p.GetName(), typ, v.Field().FullName(), v.Field().Kind())
	}
}

// encoding chooses the variable's encoding: the part's, else the field's, else its kind's default.
func (c *compiler) encoding(seg segment, p part, v *Var) {
	at, sub, enc := protoreflect.Descriptor(c.md), p.path(partEnc), p.GetEnc()
	if enc == foldv1.Encoding_ENCODING_UNSPECIFIED {
		field, _, err := fieldOption(v.Field())
		if err != nil {
			c.addAt(v.Field(), nil, numberHint, "cannot read the (fold.v1.field) option of %q: %v", v.Field().Name(), err)
			return
		}
		at, sub, enc = v.Field(), []int32{fieldEnc}, field.GetEnc()
	}
	if v.Tail && v.Kind != keyenc.KindString {
		c.inKey(seg.offset, "only a string is split at '/' into tokens", "{%s...} is a tail, but field %q is %s", v.Name, v.Field().Name(), v.Field().Kind())
		return
	}
	v.Enc = v.Kind.Default()
	problems := len(c.problems)
	if enc = enumOption(c, at, sub, enc, foldv1.Encoding(v.Enc)); len(c.problems) > problems {
		return
	}
	v.Enc = keyenc.Encoding(enc) // the numbers are the same
	uuid := v.Enc == keyenc.EncUUID && (v.Kind == keyenc.KindString || v.Kind == keyenc.KindBytes)
	switch {
	case v.Tail && v.Enc != keyenc.EncESC:
		c.addAt(at, sub, "the tokens of a tail are always ENCODING_ESC", "%s does not apply to tail {%s...}", enc, v.Name)
	case !v.Enc.Fits(v.Kind) && !uuid:
		c.addAt(at, sub, "allowed: "+encodingsOf(v.Kind), "%s does not apply to %s field %q", enc, v.Field().Kind(), v.Field().Name())
	case !supported(v.Enc):
		c.addAt(at, sub, "", "%s is not supported by this version of protoc-gen-fold yet", enc)
	}
}

func supported(e keyenc.Encoding) bool {
	switch e {
	case keyenc.EncESC, keyenc.EncVerbatim, keyenc.EncInt, keyenc.EncHex, keyenc.EncBool:
		return true
	}
	return false
}

// encodingsOf names the encodings that can be chosen for a kind.
func encodingsOf(k keyenc.Kind) string {
	var names []string
	for e := keyenc.EncESC; e <= keyenc.EncEnumName; e++ {
		if e.Fits(k) && supported(e) {
			names = append(names, foldv1.Encoding(e).String())
		}
	}
	return strings.Join(names, ", ")
}
