package schema

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	foldv1 "github.com/typedfold/fold/gen/go/fold/v1"
	"github.com/typedfold/fold/runtime/keyenc"
)

// variable binds one variable of the pattern to its field, or to the part that declares it. What it returns is whole
// only if it added no problem.
func (c *compiler) variable(seg segment, p part) Var {
	v := Var{Name: seg.variable, GoName: fieldGoName(seg.variable), Tail: seg.tail}
	if p.GetGoName() != "" {
		v.GoName = p.GetGoName()
	}
	if c.inKeyOnly(seg, p) {
		c.keyOnly(seg, p, &v)
		return v
	}
	v.Path = c.resolve(seg)
	if v.KeyOnly() {
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

// inKeyOnly reports whether a part declares the type of a variable that is no field of the message.
func (c *compiler) inKeyOnly(seg segment, p part) bool {
	first, _, _ := strings.Cut(seg.variable, ".")
	return p.GetType() != foldv1.KeyType_KEY_TYPE_UNSPECIFIED && c.md.Fields().ByName(protoreflect.Name(first)) == nil
}

// keyOnly takes a variable's type from its part.
func (c *compiler) keyOnly(seg segment, p part, v *Var) {
	if strings.Contains(seg.variable, ".") {
		name := seg.variable[strings.LastIndexByte(seg.variable, '.')+1:]
		c.inKey(seg.offset+1, fmt.Sprintf("write {%s}, and the same name in the part", name),
			"{%s}: a variable that is in the key only has one name, without dots", seg.variable)
		return
	}
	problems := len(c.problems)
	v.Kind = keyenc.Kind(enumOption(c, c.md, p.path(partType), p.GetType(), 0)) // the numbers are the same
	if len(c.problems) > problems {
		return
	}
	c.encoding(seg, p, v)
}

// resolve finds the field of a variable. It returns nil after a problem.
func (c *compiler) resolve(seg segment) []protoreflect.FieldDescriptor {
	path, missing, f := followPath(c.md, seg.variable)
	if missing {
		f.message = fmt.Sprintf("{%s}: %s", seg.variable, f.message)
		if !strings.Contains(seg.variable, ".") && !strings.HasPrefix(f.hint, meant) {
			f.hint = fmt.Sprintf("if it is in the key only, give it a type in a part: {name: %q type: KEY_TYPE_STRING}", seg.variable)
		}
	}
	offset := seg.offset + 1
	for _, fd := range path {
		if o := fd.ContainingOneof(); o != nil && !o.IsSynthetic() {
			c.inKey(offset, "a key is always there; move the field out of the oneof", "field %q is a member of oneof %q", fd.Name(), o.Name())
			return nil
		}
		offset += len(fd.Name()) + 1
	}
	if f != nil {
		c.inKey(seg.offset+1+f.offset, f.hint, "%s", f.message)
		return nil
	}
	return path
}

// followPath walks a dotted path from a message through singular messages to a field. If it can't, it returns why and
// how far it came; missing says that there is no field of some name.
func followPath(md protoreflect.MessageDescriptor, text string) (path []protoreflect.FieldDescriptor, missing bool, f *flaw) {
	offset := 0
	names := strings.Split(text, ".")
	for i, name := range names {
		fd := md.Fields().ByName(protoreflect.Name(name))
		if fd == nil {
			return path, true, &flaw{offset, fmt.Sprintf("%q is not a field of %s", name, md.Name()), fieldHint(md, name)}
		}
		path = append(path, fd)
		if i == len(names)-1 {
			break
		}
		switch {
		case fd.IsMap() || fd.IsList():
			return path, false, &flaw{offset, fmt.Sprintf("path %q crosses %s field %q", text, shape(fd), name), "a path goes through singular messages"}
		case fd.Message() == nil:
			return path, false, &flaw{offset, fmt.Sprintf("path %q crosses field %q, which is %s and not a message", text, name, fd.Kind()),
				fmt.Sprintf("end the path there: %q", strings.Join(names[:i+1], "."))}
		}
		md, offset = fd.Message(), offset+len(name)+1
	}
	return path, false, nil
}

// fieldHint says which field of the message, or of a message in it, was probably meant by a name that it does not have;
// if none is like it, which there are.
func fieldHint(md protoreflect.MessageDescriptor, name string) string {
	var names []string
	var all []protoreflect.FieldDescriptor
	inner := ""
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		names, all = append(names, string(fd.Name())), append(all, fd)
		if in := fd.Message(); in != nil && inner == "" && !fd.IsMap() && !fd.IsList() && in.Fields().ByName(protoreflect.Name(name)) != nil {
			inner = fmt.Sprintf(meant+"%q?", string(fd.Name())+"."+name)
		}
	}
	if inner != "" {
		return inner
	}
	if o := md.Oneofs().ByName(protoreflect.Name(name)); o != nil && !o.IsSynthetic() {
		return fmt.Sprintf("it is a oneof; name a member, such as %q", o.Fields().Get(0).Name())
	}
	if hint := didYouMean(name, names); hint != "" || len(all) == 0 {
		return hint
	}
	return fmt.Sprintf("the fields of %s: %s", md.Name(), namesOf(all))
}

func shape(fd protoreflect.FieldDescriptor) string {
	if fd.IsMap() {
		return "map"
	}
	return "repeated"
}

const keyTypesHint = "a key takes singular string, bytes, bool, integer, enum, Timestamp and Duration fields"

// kind is the variable kind of a field.
func (c *compiler) kind(seg segment, fd protoreflect.FieldDescriptor) (keyenc.Kind, bool) {
	if fd.IsMap() || fd.IsList() {
		c.inKey(seg.offset, keyTypesHint, "field %q is %s and cannot be in a key", fd.Name(), shape(fd))
		return 0, false
	}
	kind := kindOf(fd)
	switch {
	case kind != 0:
		return kind, true
	case isFloat(fd):
		c.inKey(seg.offset, "use an integer or a string", "field %q is %s; floating point cannot be in a key (NaN, -0)", fd.Name(), fd.Kind())
	case fd.Kind() == protoreflect.GroupKind:
		c.inKey(seg.offset, keyTypesHint, "field %q is a group and cannot be in a key", fd.Name())
	default:
		c.inKey(seg.offset, keyTypesHint, "field %q is message %s and cannot be in a key", fd.Name(), fd.Message().FullName())
	}
	return 0, false
}

func isFloat(fd protoreflect.FieldDescriptor) bool {
	return fd.Kind() == protoreflect.FloatKind || fd.Kind() == protoreflect.DoubleKind
}

// kindOf is the kind of a field, or of the elements of a repeated one; 0 for one that no encoding fits.
func kindOf(fd protoreflect.FieldDescriptor) keyenc.Kind {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return keyenc.KindString
	case protoreflect.BytesKind:
		return keyenc.KindBytes
	case protoreflect.BoolKind:
		return keyenc.KindBool
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return keyenc.KindInt32
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return keyenc.KindInt64
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return keyenc.KindUint32
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return keyenc.KindUint64
	case protoreflect.EnumKind:
		return keyenc.KindEnum
	case protoreflect.MessageKind:
		switch fd.Message().FullName() {
		case "google.protobuf.Timestamp":
			return keyenc.KindTimestamp
		case "google.protobuf.Duration":
			return keyenc.KindDuration
		}
	}
	return 0
}

// partType checks a part's type against the field that the variable is bound to.
func (c *compiler) partType(p part, v *Var) {
	if p.GetType() == foldv1.KeyType_KEY_TYPE_UNSPECIFIED {
		return
	}
	typ := enumOption(c, c.md, p.path(partType), p.GetType(), 0)
	switch {
	case keyenc.Kind(typ) == v.Kind: // the numbers are the same
	case typ == foldv1.KeyType_KEY_TYPE_UUID && v.isText():
		v.Kind = keyenc.KindUUID
	default:
		c.add(p.path(partType), "leave the type out; it is the field's", "part %q says %s, but field %s is %s",
			p.GetName(), typ, v.Field().FullName(), typeName(v.Field()))
	}
}

func (v *Var) isText() bool { return v.Kind == keyenc.KindString || v.Kind == keyenc.KindBytes }

// typeName is a field's type as it is written in a proto file.
func typeName(fd protoreflect.FieldDescriptor) string {
	if fd.Message() != nil {
		return string(fd.Message().FullName())
	}
	return fd.Kind().String()
}

// what names the variable in a message: its type, and the field that holds it.
func (v *Var) what() string {
	switch {
	case v.KeyOnly():
		return fmt.Sprintf("%s variable {%s}", v.Kind, v.Name)
	case v.Kind == keyenc.KindUUID:
		return fmt.Sprintf("uuid field %q", v.Field().Name())
	}
	return fmt.Sprintf("%s field %q", typeName(v.Field()), v.Field().Name())
}

// encoding chooses the variable's encoding: the part's, else the field's, else its kind's default.
func (c *compiler) encoding(seg segment, p part, v *Var) {
	at, sub, enc, ok := c.chosen(p, v)
	if !ok {
		return
	}
	if v.Tail && v.Kind != keyenc.KindString {
		c.inKey(seg.offset, "only a string is split at '/' into tokens", "{%s...} is a tail, but it is %s", v.Name, v.what())
		return
	}
	problems := len(c.problems)
	if enc = enumOption(c, at, sub, enc, foldv1.Encoding(v.Kind.Default())); len(c.problems) > problems {
		return
	}
	v.Enc = keyenc.Encoding(enc) // the numbers are the same
	maybeUUID := v.isText() && !v.Tail && !v.KeyOnly() && p.GetType() == foldv1.KeyType_KEY_TYPE_UNSPECIFIED
	if v.Enc == keyenc.EncUUID && maybeUUID {
		v.Kind = keyenc.KindUUID
	}
	switch {
	case v.Tail && v.Enc != keyenc.EncESC:
		c.addAt(at, sub, "the tokens of a tail are always ENCODING_ESC", "%s does not apply to tail {%s...}", enc, v.Name)
	case !v.Enc.Fits(v.Kind):
		c.addAt(at, sub, "allowed: "+encodingsOf(v.Kind, maybeUUID), "%s does not apply to %s", enc, v.what())
	case v.Enc == keyenc.EncEnumName:
		c.enumNames(at, sub, v)
	}
}

// chosen is the encoding that the part or the field asks for, and where it does; unspecified when neither does.
func (c *compiler) chosen(p part, v *Var) (at protoreflect.Descriptor, sub []int32, enc foldv1.Encoding, ok bool) {
	if v.KeyOnly() || p.GetEnc() != foldv1.Encoding_ENCODING_UNSPECIFIED {
		return c.md, p.path(partEnc), p.GetEnc(), true
	}
	enc, ok = c.fieldEncoding(v.Field())
	return v.Field(), []int32{fieldEnc}, enc, ok
}

// fieldEncoding is what the field's own option asks for.
func (c *compiler) fieldEncoding(fd protoreflect.FieldDescriptor) (foldv1.Encoding, bool) {
	option, _, err := fieldOption(fd)
	if err != nil {
		c.addOnce(fd, nil, numberHint, "the (fold.v1.field) option of %q cannot be read: it is no fold.v1.Field", fd.Name())
		return 0, false
	}
	if path := unknownField(option.ProtoReflect()); path != nil {
		c.addOnce(fd, path, newerHint, "the (fold.v1.field) option of %q has unknown field %d", fd.Name(), path[len(path)-1])
		return 0, false
	}
	return option.GetEnc(), true
}

// enumNames refuses an enum whose names don't say which of two is written.
func (c *compiler) enumNames(at protoreflect.Descriptor, sub []int32, v *Var) {
	values := v.Field().Enum().Values()
	for i := range values.Len() {
		value := values.Get(i)
		if first := values.ByNumber(value.Number()); first.Name() != value.Name() {
			c.addAt(at, sub, "remove the alias, or leave the encoding at INT",
				"%s does not apply to %s: value %d of %s has the names %s and %s", foldv1.Encoding(v.Enc), v.what(), value.Number(),
				v.Field().Enum().FullName(), first.Name(), value.Name())
			return
		}
	}
}

// encodingsOf names the encodings that can be chosen for a kind.
func encodingsOf(k keyenc.Kind, maybeUUID bool) string {
	var names []string
	for e := keyenc.EncESC; e <= keyenc.EncEnumName; e++ {
		if e.Fits(k) || e == keyenc.EncUUID && maybeUUID {
			names = append(names, foldv1.Encoding(e).String())
		}
	}
	return strings.Join(names, ", ")
}
