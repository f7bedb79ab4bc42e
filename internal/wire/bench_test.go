package wire_test

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/typedfold/fold/internal/wire"
	"github.com/typedfold/fold/internal/wire/internal/wiretest"
)

// sampleRoute encodes to about 200 bytes and has keys tenant and domain.
func sampleRoute() (*wiretest.Route, []string) {
	return &wiretest.Route{
		Tenant:    "tenant-000417",
		Domain:    "api.customer-000417.example.com",
		Upstream:  "http://10.42.17.203:8080/v1/ingress",
		Weight:    100,
		UpdatedAt: 1_790_000_000_000,
		Enabled:   true,
		Etag:      []byte("0123456789abcdef0123456789abcdef"),
		Note:      "moved from the old cluster; watch the error rate until the certificate is renewed",
	}, []string{"tenant", "domain"}
}

func sampleDeployment() (*wiretest.Deployment, []string) {
	replica := func(node string) *wiretest.Deployment_Replica {
		return &wiretest.Deployment_Replica{
			Node:   node,
			Ports:  []uint32{80, 443, 8080, 50051},
			Labels: map[string]string{"zone": "eu-central-1a", "tier": "edge"},
		}
	}
	return &wiretest.Deployment{
		Meta:     &wiretest.Deployment_Meta{Id: "deployment-000417", Shard: -17, Zone: proto.Int32(3)},
		Replicas: []*wiretest.Deployment_Replica{replica("node-a"), replica("node-b"), replica("node-c")},
		Spares:   map[string]*wiretest.Deployment_Replica{"first": replica("node-d")},
		Tags:     []string{"blue", "canary"},
	}, []string{"meta.id", "meta.shard"}
}

func compile(tb testing.TB, m proto.Message, names ...string) *wire.Checker {
	tb.Helper()
	var paths [][]protoreflect.FieldDescriptor
	for _, name := range names {
		path, err := wire.Path(m.ProtoReflect().Descriptor(), name)
		if err != nil {
			tb.Fatal(err)
		}
		paths = append(paths, path)
	}
	c, err := wire.Compile(m.ProtoReflect().Descriptor(), paths)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func compileSample(tb testing.TB, m proto.Message, names []string) (*wire.Checker, []byte, []wire.Field) {
	tb.Helper()
	c := compile(tb, m, names...)
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return c, b, make([]wire.Field, c.Keys())
}

func benchmark(b *testing.B, m proto.Message, names []string) {
	c, value, keys := compileSample(b, m, names)
	b.Run("check", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(value)))
		for b.Loop() {
			if err := c.Check(value, keys); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("unmarshal", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(value)))
		for b.Loop() {
			if err := proto.Unmarshal(value, m.ProtoReflect().New().Interface()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkFlat(b *testing.B) {
	m, names := sampleRoute()
	benchmark(b, m, names)
}

func BenchmarkNested(b *testing.B) {
	m, names := sampleDeployment()
	benchmark(b, m, names)
}
