package fold

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
)

func TestRequireKeyFields(t *testing.T) {
	m := &descriptorpb.FieldDescriptorProto{Name: proto.String(""), Options: &descriptorpb.FieldOptions{Packed: proto.Bool(false)}}
	if err := RequireKeyFields(m, "name", "options.packed"); err != nil {
		t.Error(err)
	}
	for _, path := range []string{"number", "options.lazy", "options.features.field_presence", "nothing", "name.x", ""} {
		err := RequireKeyFields(m, "name", path)
		var rej *Rejection
		if !errors.As(err, &rej) || rej.Code != KeyFieldUnset || rej.Field != path {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestSetKeyField(t *testing.T) {
	m := new(descriptorpb.FieldDescriptorProto)
	for _, err := range []error{
		SetKeyField(m, "n", 1),
		SetKeyField(m, int32(3), 3),
		SetKeyField(m, descriptorpb.FieldDescriptorProto_TYPE_BOOL, 5),
		SetKeyField(m, true, 8, 3),
		SetKeyField(m, descriptorpb.FeatureSet_IMPLICIT, 8, 21, 1),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	want := &descriptorpb.FieldDescriptorProto{
		Name: proto.String("n"), Number: proto.Int32(3), Type: descriptorpb.FieldDescriptorProto_TYPE_BOOL.Enum(),
		Options: &descriptorpb.FieldOptions{
			Deprecated: proto.Bool(true),
			Features:   &descriptorpb.FeatureSet{FieldPresence: descriptorpb.FeatureSet_IMPLICIT.Enum()},
		},
	}
	if !proto.Equal(m, want) {
		t.Errorf("set %v, want %v", m, want)
	}
	u := new(descriptorpb.UninterpretedOption)
	if err := errors.Join(SetKeyField(u, uint64(4), 4), SetKeyField(u, int64(-5), 5), SetKeyField(u, "\xFF", 7)); err != nil {
		t.Error(err)
	}
	if u.GetPositiveIntValue() != 4 || u.GetNegativeIntValue() != -5 || string(u.GetStringValue()) != "\xFF" {
		t.Errorf("set %v", u)
	}
}

func TestSetKeyFieldRefuses(t *testing.T) {
	m := new(descriptorpb.FieldDescriptorProto)
	for _, err := range []error{
		SetKeyField(m, "n", 99),   // no such field
		SetKeyField(m, "n", 8),    // a message
		SetKeyField(m, "n", 1, 1), // through a string
		SetKeyField(m, "n", 3),    // of another type
		SetKeyField(m, 3, 3),
		SetKeyField(m, uint32(3), 3),
		SetKeyField(m, true, 1),
		SetKeyField(m, true, 8, 999), // repeated
		SetKeyField(m, nil, 1),
	} {
		if err == nil {
			t.Errorf("no error, and the message is %v", m)
		}
	}
}
