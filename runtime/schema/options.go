package schema

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/runtime/protoimpl"
	"google.golang.org/protobuf/types/descriptorpb"

	foldv1 "github.com/typedfold/fold/gen/go/fold/v1"
)

// IsTable reports whether the message carries the (fold.v1.table) option.
func IsTable(md protoreflect.MessageDescriptor) bool {
	_, ok, err := tableOption(md)
	return ok || err != nil
}

// Tables are the messages of a file that carry the option, nested ones included, in the file's order.
func Tables(fd protoreflect.FileDescriptor) []protoreflect.MessageDescriptor {
	var all []protoreflect.MessageDescriptor
	var walk func(protoreflect.MessageDescriptors)
	walk = func(mds protoreflect.MessageDescriptors) {
		for i := range mds.Len() {
			if IsTable(mds.Get(i)) {
				all = append(all, mds.Get(i))
			}
			walk(mds.Get(i).Messages())
		}
	}
	walk(fd.Messages())
	return all
}

func tableOption(md protoreflect.MessageDescriptor) (*foldv1.Table, bool, error) {
	return option[*foldv1.Table](md, new(descriptorpb.MessageOptions), foldv1.E_Table)
}

func fileOption(fd protoreflect.FileDescriptor) (*foldv1.File, bool, error) {
	return option[*foldv1.File](fd, new(descriptorpb.FileOptions), foldv1.E_File)
}

func fieldOption(fd protoreflect.FieldDescriptor) (*foldv1.Field, bool, error) {
	return option[*foldv1.Field](fd, new(descriptorpb.FieldOptions), foldv1.E_Field)
}

// option reads an extension by way of the wire: a descriptor's options may hold it typed, as a dynamic message or
// as unknown bytes, depending on who built the descriptor.
func option[T proto.Message](d protoreflect.Descriptor, fresh proto.Message, xt *protoimpl.ExtensionInfo) (v T, ok bool, err error) {
	if d.Options() == nil {
		return v, false, nil
	}
	wire, err := proto.MarshalOptions{AllowPartial: true, Deterministic: true}.Marshal(d.Options())
	if err != nil {
		return v, false, err
	}
	if !hasField(wire, xt.TypeDescriptor().Number()) {
		return v, false, nil
	}
	if err := (proto.UnmarshalOptions{AllowPartial: true}).Unmarshal(wire, fresh); err != nil {
		return v, false, err
	}
	v, ok = proto.GetExtension(fresh, xt).(T)
	return v, ok && proto.HasExtension(fresh, xt), nil
}

func hasField(wire []byte, want protowire.Number) bool {
	for len(wire) > 0 {
		number, _, n := protowire.ConsumeField(wire)
		if n < 0 {
			return false
		}
		if number == want {
			return true
		}
		wire = wire[n:]
	}
	return false
}

// unknownField is the path to some field in m that this build of options.proto does not know; its last element is the
// field's number. It is nil when there is none.
func unknownField(m protoreflect.Message) []int32 {
	if raw := m.GetUnknown(); len(raw) > 0 {
		number, _, _ := protowire.ConsumeField(raw)
		return []int32{max(int32(number), 1)}
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if fd.Message() == nil || !m.Has(fd) {
			continue
		}
		if !fd.IsList() {
			if path := unknownField(m.Get(fd).Message()); path != nil {
				return append([]int32{int32(fd.Number())}, path...)
			}
			continue
		}
		for j := range m.Get(fd).List().Len() {
			if path := unknownField(m.Get(fd).List().Get(j).Message()); path != nil {
				return append([]int32{int32(fd.Number()), int32(j)}, path...)
			}
		}
	}
	return nil
}
