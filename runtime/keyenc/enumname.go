package keyenc

import (
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// AppendEnumName appends the name of an enum's value. A number without a name is refused.
func AppendEnumName(dst []byte, e protoreflect.EnumDescriptor, n protoreflect.EnumNumber) ([]byte, error) {
	v := e.Values().ByNumber(n)
	if v == nil {
		return dst, formErr(EncEnumName, fmt.Sprint(n), fmt.Sprintf("%s has no value of this number", e.FullName()))
	}
	return append(dst, v.Name()...), nil
}

// ParseEnumName reads the name of an enum's value. The second name of a number, which an alias gives it, is not
// canonical.
func ParseEnumName(e protoreflect.EnumDescriptor, token string) (protoreflect.EnumNumber, error) {
	v := e.Values().ByName(protoreflect.Name(token))
	if v == nil {
		return 0, formErr(EncEnumName, token, fmt.Sprintf("%s has no value of this name", e.FullName()))
	}
	if first := e.Values().ByNumber(v.Number()); first.Name() != v.Name() {
		return 0, canonErr(EncEnumName, token, fmt.Sprintf("value %d is written %s", v.Number(), first.Name()))
	}
	return v.Number(), nil
}
