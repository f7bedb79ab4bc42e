package lint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"

	// The examples' messages, to be found by name.
	_ "github.com/typedfold/fold/examples/hashring/gen/ring/v1"
	_ "github.com/typedfold/fold/examples/routes/gen/routes/v1"
)

const (
	blockFile   = "block.proto"
	optionsFile = "fold/v1/options.proto"
)

// compileProto compiles a schema. It returns the request that a compiler sends to a plugin, and the file's messages.
func compileProto(text string) (req []byte, messages []protoreflect.MessageDescriptor, err error) {
	options, err := os.ReadFile(filepath.Join(root, "proto", optionsFile))
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := protocompile.Compiler{
		SourceInfoMode: protocompile.SourceInfoStandard,
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
			Accessor: protocompile.SourceAccessorFromMap(map[string]string{blockFile: text, optionsFile: string(options)}),
		}),
	}
	files, err := c.Compile(ctx, blockFile)
	if err != nil {
		return nil, nil, err
	}
	r := &pluginpb.CodeGeneratorRequest{FileToGenerate: []string{blockFile}, Parameter: proto.String("paths=source_relative")}
	added := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(fd protoreflect.FileDescriptor) {
		if added[fd.Path()] {
			return
		}
		added[fd.Path()] = true
		for i := range fd.Imports().Len() {
			add(fd.Imports().Get(i).FileDescriptor)
		}
		r.ProtoFile = append(r.ProtoFile, fileProto(fd))
	}
	add(files[0])
	for i := range files[0].Messages().Len() {
		messages = append(messages, files[0].Messages().Get(i))
	}
	req, err = proto.Marshal(r)
	return req, messages, err
}

func fileProto(fd protoreflect.FileDescriptor) *descriptorpb.FileDescriptorProto {
	if r, ok := fd.(interface {
		FileDescriptorProto() *descriptorpb.FileDescriptorProto
	}); ok {
		return r.FileDescriptorProto()
	}
	return protodesc.ToFileDescriptorProto(fd)
}

// generated reads a plugin's answer.
func generated(wire []byte) error {
	res := new(pluginpb.CodeGeneratorResponse)
	if err := proto.Unmarshal(wire, res); err != nil {
		return err
	}
	if res.Error != nil {
		return errors.New(res.GetError())
	}
	if len(res.File) == 0 {
		return errors.New("the plugin generates nothing from it")
	}
	return nil
}

// unlike tells where a message that a document shows is not the example's one of that name.
func unlike(at string, m protoreflect.MessageDescriptor) (problems []string) {
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(m.FullName())
	if err != nil {
		return []string{fmt.Sprintf("%s: message %s is no example's: %v", at, m.FullName(), err)}
	}
	have := d.(protoreflect.MessageDescriptor)
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		h := have.Fields().ByName(f.Name())
		if h == nil || h.Number() != f.Number() || h.Kind() != f.Kind() || h.Cardinality() != f.Cardinality() {
			problems = append(problems, fmt.Sprintf("%s: field %s is not the example's", at, f.FullName()))
		}
	}
	if a, b := tableOption(have), tableOption(m); a != b {
		problems = append(problems, fmt.Sprintf("%s: the table of %s is %s; the example's is %s", at, m.FullName(), b, a))
	}
	return problems
}

// tableOption is a message's options in a form that two compilers' results share.
func tableOption(m protoreflect.MessageDescriptor) string {
	wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(m.Options())
	if err != nil {
		return err.Error()
	}
	o := new(descriptorpb.MessageOptions)
	if err := proto.Unmarshal(wire, o); err != nil {
		return err.Error()
	}
	out, err := proto.MarshalOptions{Deterministic: true}.Marshal(o)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%q", out)
}

func TestUnlikeMessagesAreFound(t *testing.T) {
	const schema = `syntax = "proto3"; package routes.v1; import "fold/v1/options.proto";
option go_package = "example.com/x;x"; option (fold.v1.file) = {bucket: "edge"};
message Route { option (fold.v1.table) = {key: "other.{tenant}"}; string tenant = 1; uint32 origin = 2; }
message Stranger {}`
	_, messages, err := compileProto(schema)
	if err != nil || len(messages) != 2 {
		t.Fatal(messages, err)
	}
	if got := unlike("x", messages[0]); len(got) != 2 {
		t.Errorf("found %q, not a field and an option", got)
	}
	if got := unlike("x", messages[1]); len(got) != 1 {
		t.Errorf("found %q, not an unknown message", got)
	}
	if _, _, err := compileProto("syntax = "); err == nil {
		t.Error("half a file compiles")
	}
}
