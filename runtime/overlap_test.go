package fold_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	foldv1 "github.com/typedfold/fold/gen/go/fold/v1"
	foldtestv1 "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1"
	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	foldtestv2 "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v2"
	ft2 "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v2/foldtestv2fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/store"
)

// strange is the message of a table that was generated where nobody saw the other tables. Each pattern is a type of
// its own, as a Desc reads the descriptor of its type.
type strange[P pattern] struct{ protoreflect.Message }

type pattern interface{ key() string }

type (
	sameShape    struct{}
	otherFirst   struct{}
	underATail   struct{}
	longerLookup struct{}
)

func (sameShape) key() string    { return "route.{x}.{y}" }
func (otherFirst) key() string   { return "routes.{x}.{y}" }
func (underATail) key() string   { return "doc.{x}.fixed" }
func (longerLookup) key() string { return "route.{x}.{y}.other" }

func (s *strange[P]) ProtoReflect() protoreflect.Message {
	if s != nil && s.Message != nil {
		return s.Message
	}
	var p P
	return dynamicpb.NewMessageType(strangeTable(p.key())).Zero()
}

func strangeTable(key string) protoreflect.MessageDescriptor {
	o := &descriptorpb.MessageOptions{}
	proto.SetExtension(o, foldv1.E_Table, &foldv1.Table{Key: key, Bucket: "test"})
	m := &descriptorpb.DescriptorProto{Name: proto.String("Strange"), Options: o}
	for i, name := range []string{"x", "y"} {
		m.Field = append(m.Field, &descriptorpb.FieldDescriptorProto{
			Name: proto.String(name), Number: proto.Int32(int32(i + 1)),
			Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(),
		})
	}
	f, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("strange.proto"), Package: proto.String("strange"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{m}, Dependency: []string{"fold/v1/options.proto"},
	}, protoregistry.GlobalFiles)
	if err != nil {
		panic(err)
	}
	return f.Messages().Get(0)
}

func registerStrange[P pattern](b *fold.Builder) error {
	_, err := fold.Register(b, fold.NewDesc(fold.DescConfig[ft.RouteKey, *strange[P]]{ParseKey: ft.ParseRouteKey}))
	return err
}

func TestRegisterFindsOverlaps(t *testing.T) {
	s := openStore(t, backends[0], t.TempDir())
	defer func() { _ = s.Close() }()
	for _, c := range []struct {
		name     string
		register func(*fold.Builder) error
		with     string
	}{
		{"the same shape", registerStrange[sameShape], "Route"},
		{"a key under a tail", registerStrange[underATail], "Doc"},
		{"another first token", registerStrange[otherFirst], ""},
		{"another last token", registerStrange[longerLookup], ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := fold.NewBuilder(newLog(), s, fold.Options{Logger: quiet})
			for _, err := range []error{second(ft.RegisterRoute(b)), second(ft.RegisterRouteMeta(b)), second(ft.RegisterDoc(b))} {
				if err != nil {
					t.Fatal(err)
				}
			}
			err := c.register(b)
			var overlap *fold.OverlapError
			switch {
			case c.with == "" && err != nil:
				t.Error(err)
			case c.with == "":
			case !errors.As(err, &overlap) || !errors.Is(err, fold.ErrOverlap) || overlap.A != c.with || overlap.B != "Strange" || overlap.PatternA == "" || overlap.PatternB == "":
				t.Errorf("%v", err)
			default:
				for _, parse := range []func(string) error{func(k string) error { return second(ft.ParseRouteKey(k)) }, func(k string) error { return second(ft.ParseDocKey(k)) }} {
					if parse(overlap.Witness) == nil {
						return
					}
				}
				t.Errorf("no table reads the witness %q", overlap.Witness)
			}
		})
	}
}

// TestStoreOfAnotherSchema: a store that was written with another schema of a table is refused, line by line.
func TestStoreOfAnotherSchema(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		dir, log := t.TempDir(), newLog()
		setRoute(t, log, route("t", "a", "1"))
		tb := start(t, log, openStore(t, b, dir), startOptions{})
		tb.hydrated(t)
		tb.close(t)

		s := openStore(t, b, dir)
		defer func() { _ = s.Close() }()
		key := store.MetaKey("schema.foldtest.v1.Route")
		var v store.Value
		if ok, err := s.Get(key, &v); err != nil || !ok {
			t.Fatal("no schema record", err)
		}
		now := string(v.Bytes)
		v.Release()
		old := strings.Replace(now, "key: route.{tenant}.{domain}", "key: route.{domain}.{tenant}", 1)
		old = strings.Replace(old, "on_reject: KEEP_OLD", "on_reject: DROP_ROW", 1)
		if old == now {
			t.Fatalf("record %s", now)
		}
		if err := s.Apply(bounded(t), &store.Batch{Ops: []store.Op{{Key: key, Value: []byte(old)}}}, s.Cursor()); err != nil {
			t.Fatal(err)
		}
		_, err := tryStart(t, log, s, startOptions{})
		var changed *fold.SchemaError
		if !errors.As(err, &changed) || !errors.Is(err, fold.ErrSchemaChanged) || changed.Table != "foldtest.v1.Route" || changed.Stored != old || changed.Now != now || changed.Hint() == "" {
			t.Fatalf("%v", err)
		}
		for _, line := range []string{"- key: route.{domain}.{tenant}", "+ key: route.{tenant}.{domain}", "- on_reject: DROP_ROW", "+ on_reject: KEEP_OLD"} {
			if !strings.Contains(err.Error(), "\n"+line) {
				t.Errorf("%v\nlacks %q", err, line)
			}
		}
		if strings.Contains(err.Error(), "bucket: test") {
			t.Errorf("%v\nshows what did not change", err)
		}
		if s.Cursor().Revision() != 1 {
			t.Errorf("the store is at %v", s.Cursor())
		}
	})
}

// TestTablesOfOneShortName: two packages may name a table alike; what the fold keeps of each is its own.
func TestTablesOfOneShortName(t *testing.T) {
	dir, log := t.TempDir(), newLog()
	for i := range 3 {
		set(t, log, fmt.Sprintf("route2.a%d", i), &foldtestv2.Route{Id: uint32(i)})
	}
	setRoute(t, log, route("t", "a", "1"))
	for life := range 3 {
		b := fold.NewBuilder(log, openStore(t, backends[0], dir), fold.Options{Logger: quiet})
		one, err1 := ft.RegisterRoute(b)
		two, err2 := ft2.RegisterRoute(b)
		f, err3 := b.Start(bounded(t))
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			rev := set(t, log, "nobody", &foldtestv1.Settings{})
			if err := f.WaitApplied(bounded(t), fold.Seq(rev)); err != nil {
				t.Fatal(err)
			}
			n1, err1 := one.Count(bounded(t), ft.RouteAll())
			n2, err2 := two.Count(bounded(t), ft2.RouteAll())
			if err := errors.Join(err1, err2); err != nil || n1 != 1 || n2 != 3 {
				t.Errorf("life %d: %d and %d rows, want 1 and 3: %v", life, n1, n2, err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestScopeOfASingleton: a prefix that is longer than a table's only key holds no row of it.
func TestScopeOfASingleton(t *testing.T) {
	s := openStore(t, backends[0], t.TempDir())
	defer func() { _ = s.Close() }()
	for prefix, admitted := range map[string]bool{"settings": true, "set": true, "settings.x": false, "settingsx": false} {
		scope, err := fold.Prefixes(prefix)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ft.RegisterSettings(fold.NewBuilder(newLog(), s, fold.Options{Scope: scope})); (err == nil) != admitted {
			t.Errorf("scope %s: %v", prefix, err)
		}
	}
}
