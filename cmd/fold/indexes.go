package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/schema"
	"github.com/typedfold/fold/runtime/store"
)

// indexFacts are what was checked of a store's secondary indexes.
type indexFacts struct {
	Indexes uint64 `json:"indexes"`
	Entries uint64 `json:"entries"`
	// Unmarked are entries of no index that is complete; the next start removes them.
	Unmarked uint64 `json:"unmarked"`
	// Typed: entries were compared with the rows' values, for Tables.
	Typed  bool     `json:"typed"`
	Tables []string `json:"tables,omitempty"`
	Rows   uint64   `json:"rows,omitempty"`
}

func (f indexFacts) print(w io.Writer) {
	if f.Indexes == 0 && f.Unmarked == 0 {
		return
	}
	fmt.Fprintf(w, "\n%d secondary indexes with %d entries", f.Indexes, f.Entries)
	if f.Typed {
		fmt.Fprintf(w, ", compared with the values of %d rows", f.Rows)
	} else {
		fmt.Fprint(w, ", each of a row; with --schema they are compared with the values")
	}
	fmt.Fprintln(w, ".")
	if f.Unmarked > 0 {
		fmt.Fprintf(w, "%d entries of an index that is not complete; the next start of a fold removes them.\n", f.Unmarked)
	}
}

// checkIndexes compares a store's indexes with its keys, and with its values where the tables' descriptors are given.
func checkIndexes(ctx context.Context, path string, tables []protoreflect.MessageDescriptor, told *progress) (f indexFacts, err error) {
	told.now("checking the indexes")
	s, err := openStore(path, storeAuto)
	if err != nil {
		return f, lockedError(err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	r, unmarked, err := fold.CheckIndexes(ctx, s)
	if err != nil {
		return f, err
	}
	f = indexFacts{Indexes: r.Indexes, Entries: r.Entries, Unmarked: unmarked}
	if err := r.Err(); err != nil {
		return f, err
	}
	if tables == nil {
		return f, nil
	}
	var stored []protoreflect.MessageDescriptor
	for _, md := range tables {
		record, err := store.Meta(s, store.MetaSchema+string(md.FullName()))
		if err != nil {
			return f, err
		}
		ok, err := sameSchema(string(record), md)
		if err != nil {
			return f, err
		}
		if ok {
			stored = append(stored, md)
			f.Tables = append(f.Tables, string(md.FullName()))
		}
	}
	if r, err = fold.VerifyIndexesOf(ctx, s, stored...); err != nil {
		return f, err
	}
	f.Typed, f.Rows = true, r.Rows
	return f, r.Err()
}

// sameSchema reports whether the store's indexes are those of the table. A store without the table has none, and neither has
// one whose rows are to be judged again. One that was folded under another schema has others, which is no damage.
func sameSchema(record string, md protoreflect.MessageDescriptor) (bool, error) {
	if record == "" || record == schema.Again(record, schema.AgainUnregistered) {
		return false, nil
	}
	table, problems := schema.Compile(md)
	if len(problems) > 0 {
		return false, usageError(problems[0].Hint, "table %s: %s", md.FullName(), problems[0].Message)
	}
	if v := schema.Classify(record, table.Record()); v.Class != schema.Safe {
		return false, usageError("give the descriptors of the schema under which it was folded last",
			"table %s was folded under another schema than that of --schema:\n%s", md.FullName(), strings.TrimSuffix(v.String(), "\n"))
	}
	return true, nil
}

// tablesOf reads the tables of a file of descriptors, as buf build and protoc --descriptor_set_out write it; nil for none.
func tablesOf(path string) ([]protoreflect.MessageDescriptor, error) {
	if path == "" {
		return nil, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	const hint = "make it with buf build -o FILE, or protoc --include_imports --descriptor_set_out=FILE"
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(b, &set); err != nil {
		return nil, usageError(hint, "%s is no file of descriptors: %v", path, err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		return nil, usageError(hint, "%s is no whole set of descriptors: %v", path, err)
	}
	var tables []protoreflect.MessageDescriptor
	files.RangeFiles(func(fd protoreflect.FileDescriptor) bool {
		tables = append(tables, schema.Tables(fd)...)
		return true
	})
	if len(tables) == 0 {
		return nil, usageError(hint, "%s declares no table", path)
	}
	return tables, nil
}
