// protoc-gen-fold is a plugin for buf and protoc that generates typed tables over a NATS JetStream KV bucket from
// messages with the (fold.v1.table) option. For a file routes/v1/routes.proto that has tables it writes
// routesv1fold/routes.fold.go beside the code of protoc-gen-go.
//
// With buf, a buf.gen.yaml like this one calls it after protoc-gen-go, with the same out and opt:
//
//	version: v2
//	plugins:
//	  - local: protoc-gen-go
//	    out: gen
//	    opt: paths=source_relative
//	  - local: protoc-gen-fold
//	    out: gen
//	    opt: paths=source_relative
//	    strategy: all
//
// strategy: all shows the plugin all directories at once, so that it can compare the keys of all tables.
//
// Options:
//
//	package_suffix  appended to the Go package's name; the code goes into a package and folder of that name.
//	                Default "fold". Empty: the code goes into the message's own package.
//	paths, module, M…  as for protoc-gen-go.
package main

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"google.golang.org/protobuf/proto"

	"github.com/typedfold/fold/cmd/protoc-gen-fold/internal/foldgen"
)

const usage = `protoc-gen-fold is a plugin: buf and protoc run it, and talk to it over standard input and output.
See https://github.com/typedfold/fold for the options of a schema.

  -h, --help     print this text
  --version      print the version
`

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "protoc-gen-fold:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	if len(args) == 1 {
		switch args[0] {
		case "-h", "--help", "-help":
			_, err := io.WriteString(out, usage)
			return err
		case "--version", "-version":
			_, err := fmt.Fprintln(out, "protoc-gen-fold", version())
			return err
		}
	}
	if len(args) > 0 {
		return fmt.Errorf("unknown argument %q; options are given by the caller, as opt in buf.gen.yaml", args[0])
	}
	wire, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	req, err := foldgen.ReadRequest(wire)
	if err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	wire, err = proto.Marshal(foldgen.Run(req))
	if err != nil {
		return fmt.Errorf("write response: %w", err)
	}
	_, err = out.Write(wire)
	return err
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
