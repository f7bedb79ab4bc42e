package foldgen

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/pluginpb"
)

// ReadRequest reads the bytes of a request. An option of someone else with the number of a fold option can't be read as
// one; then all options stay as bytes, and Run says which of them it is.
func ReadRequest(wire []byte) (*pluginpb.CodeGeneratorRequest, error) {
	req := new(pluginpb.CodeGeneratorRequest)
	err := proto.Unmarshal(wire, req)
	if err == nil {
		return req, nil
	}
	opaque := new(pluginpb.CodeGeneratorRequest)
	if (proto.UnmarshalOptions{Resolver: new(protoregistry.Types)}).Unmarshal(wire, opaque) == nil {
		return opaque, nil
	}
	return nil, err
}
