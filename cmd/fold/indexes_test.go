package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	indexedv1 "github.com/typedfold/fold/internal/foldtest/gen/indexed/v1"
	"github.com/typedfold/fold/internal/foldtest/gen/indexed/v1/indexedv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/schema"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
)

// indexedFold is a stopped fold with two hosts, after what is written into its store besides.
func indexedFold(t *testing.T, besides ...store.Op) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	log := kvtest.NewLog(kvtest.Options{Bucket: "test", History: 1})
	w := indexedv1fold.NewHostWriter(log)
	var rev indexedv1fold.HostRev
	for _, name := range []string{"a", "b"} {
		var err error
		if rev, err = w.Put(ctx, &indexedv1.Host{Region: "eu", Name: name, NodeId: "n1"}); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "log")
	s, err := logstore.Open(path, logstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := fold.NewBuilder(log, s, fold.Options{Logger: slog.New(slog.DiscardHandler)})
	if _, err := indexedv1fold.RegisterHost(b); err != nil {
		t.Fatal(err)
	}
	f, err := b.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.WaitApplied(ctx, rev), f.Close()); err != nil {
		t.Fatal(err)
	}
	if s, err = logstore.Open(path, logstore.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Apply(ctx, &store.Batch{Ops: besides}, s.Cursor()), s.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// entryOf is the store key of a row's entry in the index by_node.
func entryOf(t *testing.T, path, row string) []byte {
	t.Helper()
	s, err := logstore.Open(path, logstore.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	it, err := s.Iter(store.IterOptions{Lower: []byte{byte(store.SpaceIndex)}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = it.Close() }()
	for it.Next() {
		if strings.HasSuffix(string(it.Key()), "\x00n1\x00"+row) {
			return append([]byte(nil), it.Key()...)
		}
	}
	t.Fatalf("no entry of row %s", row)
	return nil
}

// schemaFile has the descriptors of the message's file and of all that it imports.
func schemaFile(t *testing.T, m proto.Message) string {
	t.Helper()
	set := &descriptorpb.FileDescriptorSet{}
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
		set.File = append(set.File, protodesc.ToFileDescriptorProto(fd))
	}
	add(m.ProtoReflect().Descriptor().ParentFile())
	b, err := proto.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tables.binpb")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestVerifyChecksIndexes: an entry of no row is found in any case, and one of other values with the descriptors.
func TestVerifyChecksIndexes(t *testing.T) {
	file := schemaFile(t, &indexedv1.Host{})
	artifactOf := func(path string) string {
		to := filepath.Join(t.TempDir(), "artifact")
		if r := run(t, nil, "export", path, "--to", to); r.code != exitOK {
			t.Fatalf("export: %s", r.err)
		}
		return to
	}
	whole := indexedFold(t)
	good, entry := artifactOf(whole), entryOf(t, whole, "eu\x00a")

	v := read[verified](t, run(t, nil, "verify", good, "--json")).Indexes
	if v.Indexes != 6 || v.Entries == 0 || v.Unmarked != 0 || v.Typed {
		t.Errorf("without descriptors: %+v", v)
	}
	typed := read[verified](t, run(t, nil, "verify", good, "--json", "--schema", file)).Indexes
	if !typed.Typed || typed.Rows != 2 || typed.Entries != v.Entries || len(typed.Tables) != 1 || typed.Tables[0] != "indexed.v1.Host" {
		t.Errorf("with descriptors: %+v", typed)
	}
	if r := run(t, nil, "verify", good, "--schema", file); r.code != exitOK || !strings.Contains(r.out, "compared with the values of 2 rows") {
		t.Errorf("code %d, %s", r.code, r.out)
	}
	if r := run(t, nil, "verify", good, "--schema", good); r.code == exitOK {
		t.Error("a folder was taken for descriptors")
	}
	if r := run(t, nil, "verify", good, "--schema", schemaFile(t, &descriptorpb.FileDescriptorSet{})); r.code != exitUsage || !strings.Contains(r.err, "no table") {
		t.Errorf("descriptors without a table: code %d, %s", r.code, r.err)
	}

	other := artifactOf(indexedFold(t, store.Op{Key: entry, Delete: true}))
	if r := run(t, nil, "verify", other); r.code != exitOK {
		t.Errorf("an entry lacks, without descriptors: code %d, %s", r.code, r.err)
	}
	if r := run(t, nil, "verify", other, "--schema", file); r.code != exitFailed || !strings.Contains(r.err, `row "host.eu.a" lacks an entry`) {
		t.Errorf("an entry lacks: code %d, %s", r.code, r.err)
	}
	if r := run(t, nil, "verify", artifactOf(indexedFold(t, store.Op{Key: append(entry, 'x')}))); r.code != exitFailed || !strings.Contains(r.err, `row "host.eu.ax"`) {
		t.Errorf("an entry of no row: code %d, %s", r.code, r.err)
	}
	left := artifactOf(indexedFold(t, store.Op{Key: []byte("iold")}))
	if r := run(t, nil, "verify", left); r.code != exitOK || !strings.Contains(r.out, "1 entries of an index that is not complete") {
		t.Errorf("an entry of no index: code %d, %s", r.code, r.out)
	}
}

// TestVerifyOfAnotherSchema: that the schema went on since the artifact was folded is said, and is no damage.
func TestVerifyOfAnotherSchema(t *testing.T) {
	host := &indexedv1.Host{}
	file := schemaFile(t, host)
	table, problems := schema.Compile(host.ProtoReflect().Descriptor())
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	verify := func(record string) result {
		to := filepath.Join(t.TempDir(), "artifact")
		from := indexedFold(t, store.Op{Key: store.MetaKey(store.MetaSchema + "indexed.v1.Host"), Value: []byte(record)})
		if r := run(t, nil, "export", from, "--to", to); r.code != exitOK {
			t.Fatalf("export: %s", r.err)
		}
		return run(t, nil, "verify", to, "--schema", file)
	}
	before := strings.Replace(table.Record(), "index by_node:", "index by_machine:", 1)
	if r := verify(before); r.code != exitUsage || !strings.Contains(r.err, "+ index by_node:") || strings.Contains(r.err, "disagree") {
		t.Errorf("another index: code %d, %s", r.code, r.err)
	}
	for _, why := range []string{schema.AgainUnregistered, schema.AgainRefold} {
		if r := verify(schema.Again(table.Record(), why)); r.code != exitOK || !strings.Contains(r.out, "values of 0 rows") {
			t.Errorf("%s: code %d, %s", why, r.code, r.out)
		}
	}
}
