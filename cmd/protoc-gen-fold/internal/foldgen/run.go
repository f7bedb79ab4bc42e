// Package foldgen turns a code generator request into Go code for the tables in it. It is a pure function of the
// request: no clock, environment, file or network has a part in it.
package foldgen

import (
	"errors"
	"flag"
	"fmt"
	"strings"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// Run answers a request. What is wrong with it, schema or parameter, is in the response's error; Run never panics.
func Run(req *pluginpb.CodeGeneratorRequest) (res *pluginpb.CodeGeneratorResponse) {
	defer func() {
		if v := recover(); v != nil {
			res = refuse(fmt.Errorf("internal error in protoc-gen-fold, please report it: %v", v))
		}
	}()
	var flags flag.FlagSet
	suffix := flags.String("package_suffix", "fold", "")
	opts := protogen.Options{ParamFunc: func(name, value string) error {
		if flags.Lookup(name) == nil {
			return fmt.Errorf("unknown option %q; known are package_suffix, paths, module and M<file>", name)
		}
		return flags.Set(name, value)
	}}
	plugin, err := opts.New(req)
	if err != nil {
		return refuse(err)
	}
	if err := generate(plugin, *suffix); err != nil {
		return refuse(err)
	}
	res = plugin.Response()
	if res.Error == nil {
		declareFeatures(res)
	}
	return res
}

func declareFeatures(res *pluginpb.CodeGeneratorResponse) {
	res.SupportedFeatures = proto.Uint64(uint64(
		pluginpb.CodeGeneratorResponse_FEATURE_PROTO3_OPTIONAL | pluginpb.CodeGeneratorResponse_FEATURE_SUPPORTS_EDITIONS))
	res.MinimumEdition = proto.Int32(int32(descriptorpb.Edition_EDITION_PROTO2))
	res.MaximumEdition = proto.Int32(int32(descriptorpb.Edition_EDITION_2024))
}

func refuse(err error) *pluginpb.CodeGeneratorResponse {
	res := &pluginpb.CodeGeneratorResponse{Error: proto.String(strings.ToValidUTF8(err.Error(), "\uFFFD"))}
	declareFeatures(res)
	return res
}

// generate adds the files of all tables to the plugin, or returns all that is wrong with them.
func generate(plugin *protogen.Plugin, suffix string) error {
	if err := checkSuffix(suffix); err != nil {
		return err
	}
	var d diagnostics
	m := newModel(plugin, suffix, &d)
	m.check(&d)
	if err := d.err(); err != nil {
		return err
	}
	for _, f := range m.files {
		if err := emitFile(plugin, f); err != nil {
			return err
		}
	}
	return nil
}

func checkSuffix(suffix string) error {
	for _, r := range suffix {
		if r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return fmt.Errorf("package_suffix %q is not part of a Go package name: it has %q", suffix, r)
		}
	}
	if strings.HasSuffix(suffix, "_test") {
		return errors.New(`package_suffix ends in "_test", which is kept for Go's external tests`)
	}
	return nil
}
