package foldgen_test

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"

	"github.com/typedfold/fold/cmd/protoc-gen-fold/internal/foldgen"
)

const root = "../../../.."

// sources are proto files by their import path.
type sources map[string]string

func readSources(t *testing.T, dir string) sources {
	t.Helper()
	files := sources{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		files[filepath.ToSlash(rel)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

var optionsProto = sync.OnceValue(func() string {
	text, err := os.ReadFile(filepath.Join(root, "proto/fold/v1/options.proto"))
	if err != nil {
		panic(err)
	}
	return string(text)
})

// compile makes the request of a compiler for these files, all of them to be generated, with a place for every option
// as buf notes them.
func compile(files sources) (*pluginpb.CodeGeneratorRequest, error) {
	all := maps.Clone(files)
	if _, own := all["fold/v1/options.proto"]; !own {
		all["fold/v1/options.proto"] = optionsProto()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
			Accessor: protocompile.SourceAccessorFromMap(all),
		}),
		SourceInfoMode: protocompile.SourceInfoStandard | protocompile.SourceInfoExtraOptionLocations,
	}
	names := slices.Sorted(maps.Keys(files))
	compiled, err := c.Compile(ctx, names...)
	if err != nil {
		return nil, err
	}
	req := &pluginpb.CodeGeneratorRequest{FileToGenerate: names, Parameter: proto.String("paths=source_relative")}
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(fd protoreflect.FileDescriptor) {
		if seen[fd.Path()] {
			return
		}
		seen[fd.Path()] = true
		for i := range fd.Imports().Len() {
			add(fd.Imports().Get(i).FileDescriptor)
		}
		req.ProtoFile = append(req.ProtoFile, toProto(fd))
	}
	for _, fd := range compiled {
		add(fd)
	}
	// Through the wire, as a plugin gets it.
	wire, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	return foldgen.ReadRequest(wire)
}

func toProto(fd protoreflect.FileDescriptor) *descriptorpb.FileDescriptorProto {
	if r, ok := fd.(interface {
		FileDescriptorProto() *descriptorpb.FileDescriptorProto
	}); ok {
		return r.FileDescriptorProto()
	}
	return protodesc.ToFileDescriptorProto(fd)
}

// generate runs the plugin: file contents by name, or the text of its error.
func generate(req *pluginpb.CodeGeneratorRequest) (map[string]string, string) {
	res := foldgen.Run(req)
	if res.Error != nil {
		return nil, res.GetError()
	}
	out := map[string]string{}
	for _, f := range res.GetFile() {
		out[f.GetName()] = f.GetContent()
	}
	return out, ""
}

// with is the request with parameters added, and only these files to generate.
func with(req *pluginpb.CodeGeneratorRequest, params string, files ...string) *pluginpb.CodeGeneratorRequest {
	req = proto.CloneOf(req)
	if params != "" {
		req.Parameter = proto.String(strings.Trim(req.GetParameter()+","+params, ","))
	}
	if files != nil {
		req.FileToGenerate = files
	}
	return req
}
