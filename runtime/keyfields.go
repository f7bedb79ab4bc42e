package fold

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

var errKeyFieldUnset = errors.New("not set, and it is in the key")

// RequireKeyFields checks that key fields with presence are set, and the messages on the way to them; for generated
// code. A path is field names joined by dots. The error is a *Rejection KEY_FIELD_UNSET that names the first path.
func RequireKeyFields(m proto.Message, paths ...string) error {
	for _, path := range paths {
		if !hasPath(m.ProtoReflect(), path) {
			return &Rejection{Code: KeyFieldUnset, Field: path, Err: errKeyFieldUnset}
		}
	}
	return nil
}

func hasPath(m protoreflect.Message, path string) bool {
	for {
		name, rest, more := strings.Cut(path, ".")
		fd := m.Descriptor().Fields().ByName(protoreflect.Name(name))
		if fd == nil || fd.HasPresence() && !m.Has(fd) || more && fd.Message() == nil {
			return false
		}
		if !more {
			return true
		}
		m, path = m.Get(fd).Message(), rest
	}
}

// SetKeyField sets the field that the field numbers lead to, creating the messages on the way; for generated code.
// Value is what key structs hold: a string also for a bytes field, an enum as its Go type, [16]byte for a UUID in a
// string or bytes field, and Time or Span for a Timestamp or Duration. The error is a
// *Rejection KEY_SEGMENT when the field can't hold the value.
func SetKeyField(m proto.Message, value any, path ...int32) error {
	msg := m.ProtoReflect()
	for i, number := range path {
		fd := msg.Descriptor().Fields().ByNumber(protoreflect.FieldNumber(number))
		if fd == nil || fd.Cardinality() == protoreflect.Repeated {
			return fmt.Errorf("set key field: %s has no singular field %d", msg.Descriptor().FullName(), number)
		}
		if i < len(path)-1 {
			if fd.Message() == nil {
				return fmt.Errorf("set key field: %s is no message", fd.FullName())
			}
			msg = msg.Mutable(fd).Message()
			continue
		}
		if setMessageField(msg, fd, value) {
			return nil
		}
		v, err := keyFieldValue(fd, value)
		if err != nil {
			return &Rejection{Code: KeySegment, Field: string(fd.Name()), Err: err}
		}
		msg.Set(fd, v)
	}
	return nil
}

// setMessageField sets a field whose value is a message, if it is such a field's.
func setMessageField(m protoreflect.Message, fd protoreflect.FieldDescriptor, value any) bool {
	switch v := value.(type) {
	case Time:
		return setSeconds(m, fd, "google.protobuf.Timestamp", v.Seconds, v.Nanos)
	case Span:
		seconds, nanos := v.parts()
		return setSeconds(m, fd, "google.protobuf.Duration", seconds, nanos)
	}
	return false
}

// keyFieldValue is the value as the field's kind wants it.
func keyFieldValue(fd protoreflect.FieldDescriptor, value any) (protoreflect.Value, error) {
	switch v := value.(type) {
	case string:
		switch {
		case fd.Kind() == protoreflect.BytesKind:
			return protoreflect.ValueOfBytes([]byte(v)), nil
		case fd.Kind() == protoreflect.StringKind && !utf8.ValidString(v):
			return protoreflect.Value{}, errors.New("not valid UTF-8")
		case fd.Kind() == protoreflect.StringKind:
			// v may alias a key, which may alias a whole message of the log.
			return protoreflect.ValueOfString(strings.Clone(v)), nil
		}
	case [16]byte:
		if v, ok := uuidFieldValue(fd, v); ok {
			return v, nil
		}
	case protoreflect.Enum:
		if fd.Kind() == protoreflect.EnumKind {
			return protoreflect.ValueOfEnum(v.Number()), nil
		}
	case bool:
		if fd.Kind() == protoreflect.BoolKind {
			return protoreflect.ValueOfBool(v), nil
		}
	case int32:
		switch fd.Kind() {
		case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
			return protoreflect.ValueOfInt32(v), nil
		}
	case int64:
		switch fd.Kind() {
		case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
			return protoreflect.ValueOfInt64(v), nil
		}
	case uint32:
		switch fd.Kind() {
		case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
			return protoreflect.ValueOfUint32(v), nil
		}
	case uint64:
		switch fd.Kind() {
		case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
			return protoreflect.ValueOfUint64(v), nil
		}
	}
	return protoreflect.Value{}, fmt.Errorf("a %T does not go into %s field %s", value, fd.Kind(), fd.Name())
}
