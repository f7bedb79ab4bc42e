package schema

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	foldv1 "github.com/typedfold/fold/gen/go/fold/v1"
)

// codecs compiles also_read, and checks that a message which is read or written as RAW fits it.
func (c *compiler) codecs() {
	if c.table.Codec == foldv1.Codec_CODEC_RAW {
		c.raw([]int32{tableValue}, "value: CODEC_RAW")
	}
	for i, codec := range c.option.GetAlsoRead() {
		sub := []int32{tableAlsoRead, int32(i)}
		problems := len(c.problems)
		enumOption(c, c.md, sub, codec, foldv1.Codec_CODEC_PROTO)
		switch {
		case len(c.problems) > problems:
		case codec == foldv1.Codec_CODEC_UNSPECIFIED:
			c.add(sub, "name CODEC_PROTO, CODEC_PROTOJSON or CODEC_RAW", "also_read: %s is no codec", codec)
		case codec == c.table.Codec:
			c.add(sub, "leave it out; what is written is always read", "also_read: %s is how the table writes its values", codec)
		case slices.Contains(c.option.GetAlsoRead()[:i], codec):
			c.add(sub, "leave one out", "also_read: %s is there twice", codec)
		case codec == foldv1.Codec_CODEC_RAW:
			c.raw(sub, "also_read: CODEC_RAW")
			fallthrough
		default:
			c.table.AlsoRead = append(c.table.AlsoRead, codec)
		}
	}
}

// raw checks that the bytes of one field can be the whole value: all else of the message is in the key.
func (c *compiler) raw(sub []int32, what string) {
	var payload []protoreflect.FieldDescriptor
	inKey := false
	fields := c.md.Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if c.isKeyField(fd) {
			inKey = true
			continue
		}
		payload = append(payload, fd)
	}
	switch {
	case fields.Len() == 0 || c.table.Pattern == nil: // said already; without a key, any field can be the value
		return
	case len(payload) == 0:
		c.add(sub, "add a bytes field", "%s needs a field for the value; every field of %s is in the key", what, c.md.Name())
	case len(payload) > 1:
		c.add(sub, "leave one bytes or string field outside the key, or choose CODEC_PROTO or CODEC_PROTOJSON",
			"%s needs exactly one field that is not in the key; %s has %d: %s", what, c.md.Name(), len(payload), namesOf(payload))
	default:
		c.payload(sub, what, payload[0])
	}
	if c.md.ExtensionRanges().Len() > 0 {
		c.add(sub, "remove the extension range, or choose another codec", "%s would lose the extensions of %s", what, c.md.Name())
	}
	if inKey && c.table.Bind != foldv1.Bind_BIND_FILL {
		c.add(sub, "add bind: BIND_FILL", "%s needs bind: BIND_FILL, since the value has no room for the key fields of %s", what, c.md.Name())
	}
}

func (c *compiler) payload(sub []int32, what string, fd protoreflect.FieldDescriptor) {
	const hint = "the field that holds the value is a singular bytes or string, outside of any oneof"
	o := fd.ContainingOneof()
	switch {
	case fd.IsMap():
		c.add(sub, hint, "%s: field %q is a map", what, fd.Name())
	case fd.IsList():
		c.add(sub, hint, "%s: field %q is repeated", what, fd.Name())
	case fd.Kind() != protoreflect.BytesKind && fd.Kind() != protoreflect.StringKind:
		c.add(sub, hint, "%s: field %q is %s", what, fd.Name(), typeName(fd))
	case o != nil && !o.IsSynthetic():
		c.add(sub, hint, "%s: field %q is a member of oneof %q", what, fd.Name(), o.Name())
	}
}

// isKeyField reports whether a field of the message is a variable of the key. A message of which the key has some fields
// is none.
func (c *compiler) isKeyField(fd protoreflect.FieldDescriptor) bool {
	return slices.ContainsFunc(c.table.Vars, func(v Var) bool { return v.Name == string(fd.Name()) })
}

// namesOf lists the names of fields, the first few if there are many.
func namesOf(fields []protoreflect.FieldDescriptor) string {
	const most = 5
	names := ""
	for i, fd := range fields {
		switch {
		case i == most:
			return names + fmt.Sprintf(" and %d more", len(fields)-most)
		case i > 0:
			names += ", "
		}
		names += string(fd.Name())
	}
	return names
}
