package fold_test

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	codecv1 "github.com/typedfold/fold/internal/foldtest/gen/codec/v1"
	cd "github.com/typedfold/fold/internal/foldtest/gen/codec/v1/codecv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
)

// randomRich sets random fields of every kind, to edge values mostly.
func randomRich(r *rand.Rand, depth int) *codecv1.Rich {
	m := &codecv1.Rich{}
	fields := m.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if fd := fields.Get(i); r.IntN(3) == 0 {
			setRandom(r, m.ProtoReflect(), fd, depth)
		}
	}
	return m
}

func setRandom(r *rand.Rand, m protoreflect.Message, fd protoreflect.FieldDescriptor, depth int) {
	if fd.Message() != nil && !fd.IsMap() && depth == 0 {
		return
	}
	switch {
	case fd.IsMap():
		entries := m.Mutable(fd).Map()
		for range r.IntN(4) {
			if v := fd.MapValue(); v.Message() == nil {
				entries.Set(richScalar(r, fd.MapKey()).MapKey(), richScalar(r, v))
			} else if depth > 0 {
				entries.Set(richScalar(r, fd.MapKey()).MapKey(), protoreflect.ValueOfMessage(randomRich(r, depth-1).ProtoReflect()))
			}
		}
	case fd.IsList():
		list := m.Mutable(fd).List()
		for range r.IntN(4) {
			if fd.Message() == nil {
				list.Append(richScalar(r, fd))
			} else {
				list.Append(protoreflect.ValueOfMessage(randomRich(r, depth-1).ProtoReflect()))
			}
		}
	case fd.Message() != nil:
		if v := randomInner(r, fd.Message().FullName(), depth); v != nil {
			m.Set(fd, protoreflect.ValueOfMessage(v.ProtoReflect()))
		}
	default:
		m.Set(fd, richScalar(r, fd))
	}
}

func randomInner(r *rand.Rand, name protoreflect.FullName, depth int) proto.Message {
	switch name {
	case "codec.v1.Rich":
		return randomRich(r, depth-1)
	case "google.protobuf.Timestamp":
		return &timestamppb.Timestamp{Seconds: r.Int64N(1 << 35), Nanos: r.Int32N(1e9)}
	case "google.protobuf.Duration":
		return &durationpb.Duration{Seconds: r.Int64N(1 << 38), Nanos: r.Int32N(1e9)}
	case "google.protobuf.Struct":
		return &structpb.Struct{Fields: map[string]*structpb.Value{
			"a": structpb.NewNumberValue(1.5), "": structpb.NewNullValue(),
			"b": structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{structpb.NewBoolValue(true), structpb.NewStringValue("\n")}}),
		}}
	}
	return nil // the wrapper's fields are set by nobody: its zero value is a value too
}

func richScalar(r *rand.Rand, fd protoreflect.FieldDescriptor) protoreflect.Value {
	texts := []string{"", "a", "a.b", "é\u2028", "<&>", "\x00\x1f", "\"\\", "{}", "\U0001F600"}
	n := []int64{0, 1, -1, 42, math.MaxInt32, math.MaxInt64, math.MinInt64, r.Int64()}[r.IntN(8)]
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(texts[r.IntN(len(texts))])
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(texts[r.IntN(len(texts))] + "\xff\xfe"[:r.IntN(3)]))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(n&1 != 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(r.Int32N(4)))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64([]float64{0, 1.5, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64, r.NormFloat64()}[r.IntN(8)])
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32([]float32{0, 1.5, float32(math.NaN()), float32(math.Inf(1)), math.MaxFloat32, math.SmallestNonzeroFloat32, r.Float32()}[r.IntN(7)])
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(n)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	default:
		return protoreflect.ValueOfUint64(uint64(n))
	}
}

// codecCase is one table, with random rows of it.
type codecCase[K fold.Key, V proto.Message] struct {
	desc   *fold.Desc[K, V]
	put    func(context.Context, fold.Bucket, V) (fold.Rev[K], error)
	key    func(V) (K, error)
	random func(r *rand.Rand, i int) V
}

func (c codecCase[K, V]) run(t *testing.T) {
	t.Parallel()
	log, ctx := newLog(), bounded(t)
	stored, resident := startCodec(t, log, c.desc, fold.Options{}), startCodec(t, log, c.desc, fold.Options{}, fold.Resident())
	want := map[K]V{}
	r := rand.New(rand.NewPCG(11, 12))
	for i := range 300 {
		m := c.random(r, i)
		before := proto.Clone(m)
		rev, err := c.put(ctx, log, m)
		if err != nil {
			t.Fatalf("%v: %v", m, err)
		}
		k := must[K](t)(c.key(m))
		if !proto.Equal(m, before) || rev.Seq() == 0 {
			t.Fatalf("the caller's message was changed: %v", m)
		}
		want[k] = before.(V)
	}
	stored.upToDate(t)
	resident.upToDate(t)
	for k, m := range want {
		stored.want(t, k, m)
		resident.want(t, k, m)
		if v, ok := resident.Peek(k); !ok || !proto.Equal(v, m) {
			t.Errorf("peek of %v: %v %v, want %v", k, v, ok, m)
		}
	}
	if st := stored.f.Status(); st.Rejections != 0 {
		t.Errorf("%d rejections", st.Rejections)
	}
}

// TestEachCodecRoundTrips: what a writer of each codec sends is what a fold reads.
func TestEachCodecRoundTrips(t *testing.T) {
	t.Run("proto", codecCase[cd.BinaryKey, *codecv1.Binary]{cd.BinaryDesc, func(ctx context.Context, b fold.Bucket, m *codecv1.Binary) (cd.BinaryRev, error) {
		return cd.NewBinaryWriter(b).Put(ctx, m)
	}, cd.BinaryKeyOf, func(r *rand.Rand, _ int) *codecv1.Binary {
		return &codecv1.Binary{Id: text(r), Rich: randomRich(r, 3)}
	}}.run)
	t.Run("json", codecCase[cd.JsonKey, *codecv1.Json]{cd.JsonDesc, func(ctx context.Context, b fold.Bucket, m *codecv1.Json) (cd.JsonRev, error) {
		return cd.NewJsonWriter(b).Put(ctx, m)
	}, cd.JsonKeyOf, func(r *rand.Rand, _ int) *codecv1.Json {
		return &codecv1.Json{Id: text(r), N: r.Int64N(5) - 2, Rich: randomRich(r, 3)}
	}}.run)
	t.Run("json filled", codecCase[cd.JsonFilledKey, *codecv1.JsonFilled]{cd.JsonFilledDesc, func(ctx context.Context, b fold.Bucket, m *codecv1.JsonFilled) (cd.JsonFilledRev, error) {
		return cd.NewJsonFilledWriter(b).Put(ctx, m)
	}, cd.JsonFilledKeyOf, func(r *rand.Rand, _ int) *codecv1.JsonFilled {
		return &codecv1.JsonFilled{Id: text(r), At: &timestamppb.Timestamp{Seconds: r.Int64N(3), Nanos: r.Int32N(2)}, Rich: randomRich(r, 3)}
	}}.run)
	t.Run("raw", codecCase[cd.RawBytesKey, *codecv1.RawBytes]{cd.RawBytesDesc, func(ctx context.Context, b fold.Bucket, m *codecv1.RawBytes) (cd.RawBytesRev, error) {
		return cd.NewRawBytesWriter(b).Put(ctx, m)
	}, cd.RawBytesKeyOf, func(r *rand.Rand, i int) *codecv1.RawBytes {
		data := make([]byte, i%65)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		return &codecv1.RawBytes{Id: text(r), Part: r.Uint32N(40), Data: data}
	}}.run)
	t.Run("json among others", codecCase[cd.AnyJsonKey, *codecv1.AnyJson]{cd.AnyJsonDesc, func(ctx context.Context, b fold.Bucket, m *codecv1.AnyJson) (cd.AnyJsonRev, error) {
		return cd.NewAnyJsonWriter(b).Put(ctx, m)
	}, cd.AnyJsonKeyOf, func(r *rand.Rand, _ int) *codecv1.AnyJson {
		return &codecv1.AnyJson{Id: text(r), Rich: randomRich(r, 2)}
	}}.run)
}

func text(r *rand.Rand) string {
	return []string{"a", "B9", "x.y", "é", "", "{}\n\n\n\n\n\n\n\n", "\"", "\x00"}[r.IntN(8)]
}

// typedCase judges values of one table under each header.
type typedCase struct {
	name  string
	key   string
	row   proto.Message // decodes into this type
	judge func(key string, value []byte, contentType string) (passes, accepted bool)
}

func typed[K fold.Key, V proto.Message](key string, d *fold.Desc[K, V]) typedCase {
	var v V
	return typedCase{name: string(v.ProtoReflect().Descriptor().Name()), key: key, row: v,
		judge: func(key string, value []byte, contentType string) (bool, bool) {
			return fold.JudgeTyped(d, key, value, contentType)
		}}
}

var typedCases = []typedCase{
	typed("binary.a", cd.BinaryDesc), typed("json.a.pa1", cd.JsonDesc), typed("jsonfilled.a.pa1000000000", cd.JsonFilledDesc),
	typed("raw.a.a1", cd.RawBytesDesc), typed("text.a", cd.RawTextDesc), typed("rawone", cd.RawOneDesc),
	typed("anyraw.a", cd.AnyRawDesc), typed("anyjson.a", cd.AnyJsonDesc), typed("anybinary.a", cd.AnyBinaryDesc),
	typed("checked.a", cd.CheckedDesc),
}

var headers = []string{"", typeProto, typeJSON, typeRaw, "text/plain", "a/b", "APPLICATION/x-protobuf; q=1"}

// mutated is a value of the case's table in some codec, changed a little.
func (c typedCase) mutated(r *rand.Rand) []byte {
	m := c.row.ProtoReflect().Type().New()
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		switch fd := fields.Get(i); fd.Name() {
		case "id":
			m.Set(fd, protoreflect.ValueOfString("a"))
		case "n":
			m.Set(fd, protoreflect.ValueOfInt64(1))
		default:
			if r.IntN(2) == 0 {
				setRandom(r, m, fd, 2)
			}
		}
	}
	var b []byte
	switch r.IntN(3) {
	case 0:
		b, _ = protojson.Marshal(m.Interface())
	case 1:
		b = []byte(text(r) + "plain")
	default:
		b, _ = proto.Marshal(m.Interface())
	}
	for range []int{0, 0, 1, 2}[r.IntN(4)] {
		if len(b) > 0 {
			b[r.IntN(len(b))] ^= byte(1 << r.IntN(8))
		}
	}
	if r.IntN(8) == 0 {
		b = b[:r.IntN(len(b)+1)]
	}
	return b
}

// TestFastPathAgreesUnderEachCodec: what is accepted without decoding is what decoding accepts, whatever the header.
func TestFastPathAgreesUnderEachCodec(t *testing.T) {
	for _, c := range typedCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(3, 4))
			passed, accepted := 0, 0
			for range 4000 {
				value, header := c.mutated(r), headers[r.IntN(len(headers))]
				p, a := c.judge(c.key, value, header)
				if p && !a {
					t.Fatalf("%q as %q passes, and is refused when decoded", value, header)
				}
				if p {
					passed++
				}
				if a {
					accepted++
				}
			}
			json := c.name == "Json" || c.name == "JsonFilled"
			if accepted < 400 || json == (passed > 0) || !json && passed < 200 {
				t.Errorf("%d pass, %d are accepted: the test says too little", passed, accepted)
			}
		})
	}
}

func FuzzCodecJudgement(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, c := range typedCases {
		for i := range headers {
			f.Add(c.mutated(r), uint8(i))
		}
	}
	f.Fuzz(func(t *testing.T, value []byte, header uint8) {
		for _, c := range typedCases {
			h := headers[int(header)%len(headers)]
			if p, a := c.judge(c.key, value, h); p && !a {
				t.Errorf("%s: %q as %q passes, and is refused when decoded", c.name, value, h)
			}
		}
	})
}

// TestTypedUpdatesThroughBothFolds: a fold that only stores and one that decodes make the same of values of all codecs,
// and of headers that lie.
func TestTypedUpdatesThroughBothFolds(t *testing.T) {
	log, r := newLog(), rand.New(rand.NewPCG(7, 8))
	stored := startCodec(t, log, cd.AnyBinaryDesc, fold.Options{})
	resident := startCodec(t, log, cd.AnyBinaryDesc, fold.Options{}, fold.Resident())
	c := typed("anybinary.a", cd.AnyBinaryDesc)
	rows, rejections := 0, 0
	for range 300 {
		if _, err := log.Put(bounded(t), c.key, c.mutated(r), kv.PutOptions{ContentType: headers[r.IntN(len(headers))]}); err != nil {
			t.Fatal(err)
		}
		k := cd.AnyBinaryKey{ID: "a"}
		a, okA, _ := stored.row(t, k)
		b, okB, _ := resident.row(t, k)
		if okA != okB || okA && !proto.Equal(a, b) {
			t.Fatalf("stored %v %v, decoded %v %v", a, okA, b, okB)
		}
		v, ok := resident.Peek(k)
		if ok != okA || ok && !proto.Equal(v, a) {
			t.Fatalf("in memory %v %v, stored %v %v", v, ok, a, okA)
		}
		if okA {
			rows++
		} else {
			rejections++
		}
	}
	if rows < 50 || rejections < 50 {
		t.Errorf("%d rows and %d rejections: the test says too little", rows, rejections)
	}
}
