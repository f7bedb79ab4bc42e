package fold_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	judgev1 "github.com/typedfold/fold/internal/foldtest/gen/judge/v1"
	jd "github.com/typedfold/fold/internal/foldtest/gen/judge/v1/judgev1fold"
	fold "github.com/typedfold/fold/runtime"
)

// keyJudged is a table whose messages are mostly right in what random ones are mostly wrong in.
type keyJudged[K fold.Key, V proto.Message] struct{ judgedTable[K, V] }

func (j keyJudged[K, V]) random(r *rand.Rand) (key, value string) {
	right := j
	right.keyOf = func(v V) (K, error) {
		if r.IntN(8) > 0 {
			rightFields(r, v.ProtoReflect())
		}
		return j.keyOf(v)
	}
	return right.judgedTable.random(r)
}

// rightFields makes UUIDs, enum values and times ones that a key takes.
func rightFields(r *rand.Rand, m protoreflect.Message) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if fd.Message() != nil {
			rightFields(r, v.Message())
		}
		return true
	})
	fields := m.Descriptor().Fields()
	id := [16]byte{0: byte(r.IntN(9)), 7: 0xAB, 15: byte(r.IntN(20))}
	for i := range fields.Len() {
		switch fd := fields.Get(i); fd.Name() {
		case "uuid_text":
			m.Set(fd, protoreflect.ValueOfString(string(fold.AppendUUID(nil, id))))
		case "uuid_bytes":
			m.Set(fd, protoreflect.ValueOfBytes(id[:]))
		case "mode":
			m.Set(fd, protoreflect.ValueOfEnum([]protoreflect.EnumNumber{0, 1, 7}[r.IntN(3)]))
		case "nanos":
			nanos := int32(r.IntN(1_000_000_000))
			if seconds := m.Get(fields.ByName("seconds")).Int(); m.Descriptor().Name() == "Duration" && (seconds < 0 || seconds == 0 && r.IntN(2) == 0) {
				nanos = -nanos
			}
			m.Set(fd, protoreflect.ValueOfInt32(nanos))
		}
	}
}

// TestBothJudgementsAgreeOnKeyTypes is TestBothJudgementsAgree for the tables of keys.proto.
func TestBothJudgementsAgreeOnKeyTypes(t *testing.T) {
	text := func(r *rand.Rand) string { return []string{"a", "", "é", "\xff", "x.y", "B9"}[r.IntN(6)] }
	r := rand.New(rand.NewPCG(5, 6))
	for name, j := range map[string]judged{
		"Times":      keyJudged[jd.TimesKey, *judgev1.Times]{judgedTable[jd.TimesKey, *judgev1.Times]{jd.TimesDesc, jd.TimesKeyOf, jd.TimesAll}},
		"Uuids":      keyJudged[jd.UuidsKey, *judgev1.Uuids]{judgedTable[jd.UuidsKey, *judgev1.Uuids]{jd.UuidsDesc, jd.UuidsKeyOf, jd.UuidsAll}},
		"Plain":      keyJudged[jd.PlainKey, *judgev1.Plain]{judgedTable[jd.PlainKey, *judgev1.Plain]{jd.PlainDesc, jd.PlainKeyOf, jd.PlainAll}},
		"FilledKeys": keyJudged[jd.FilledKeysKey, *judgev1.FilledKeys]{judgedTable[jd.FilledKeysKey, *judgev1.FilledKeys]{jd.FilledKeysDesc, jd.FilledKeysKeyOf, jd.FilledKeysAll}},
		"Leases": judgedTable[jd.LeasesKey, *judgev1.Leases]{jd.LeasesDesc, func(m *judgev1.Leases) (jd.LeasesKey, error) {
			return jd.LeasesKey{Region: text(r), Tenant: m.GetTenant(), Since: fold.Time{Seconds: int64(r.IntN(3) - 1), Nanos: r.Int32N(9)}, N: m.GetN()}, nil
		}, jd.LeasesAll},
		"FilledLeases": judgedTable[jd.FilledLeasesKey, *judgev1.FilledLeases]{jd.FilledLeasesDesc, func(m *judgev1.FilledLeases) (jd.FilledLeasesKey, error) {
			return jd.FilledLeasesKey{Region: text(r), Tenant: text(r)}, nil
		}, jd.FilledLeasesAll},
		"KeyOnly": judgedTable[jd.KeyOnlyKey, *judgev1.KeyOnly]{jd.KeyOnlyDesc, func(m *judgev1.KeyOnly) (jd.KeyOnlyKey, error) {
			return jd.KeyOnlyKey{Region: text(r), Path: text(r) + "/" + text(r)}, nil
		}, jd.KeyOnlyAll},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(2) {
				bothJudge(t, j, rand.New(rand.NewPCG(seed, 78)))
			}
		})
	}
}

// The wire check by itself takes what is right, so that decoding is the exception.
func TestWireCheckTakesEveryKeyType(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	taken := func(name string, c interface {
		random(*rand.Rand) (string, string)
	}, check func(key, value string) (onWire, accepted bool)) {
		t.Helper()
		both := 0
		for range 400 {
			key, value := c.random(r)
			onWire, accepted := check(key, value)
			if onWire && !accepted {
				t.Fatalf("%s: %q with %x is taken on the wire, and refused when decoded", name, key, value)
			}
			if onWire {
				both++
			}
		}
		if both < 40 {
			t.Errorf("%s: %d of 400 are taken on the wire", name, both)
		}
	}
	taken("Times", keyJudged[jd.TimesKey, *judgev1.Times]{judgedTable[jd.TimesKey, *judgev1.Times]{jd.TimesDesc, jd.TimesKeyOf, jd.TimesAll}}, checkBoth(jd.TimesDesc))
	taken("Uuids", keyJudged[jd.UuidsKey, *judgev1.Uuids]{judgedTable[jd.UuidsKey, *judgev1.Uuids]{jd.UuidsDesc, jd.UuidsKeyOf, jd.UuidsAll}}, checkBoth(jd.UuidsDesc))
	taken("Plain", keyJudged[jd.PlainKey, *judgev1.Plain]{judgedTable[jd.PlainKey, *judgev1.Plain]{jd.PlainDesc, jd.PlainKeyOf, jd.PlainAll}}, checkBoth(jd.PlainDesc))
}

func checkBoth[K fold.Key, V proto.Message](d *fold.Desc[K, V]) func(key, value string) (onWire, accepted bool) {
	return func(key, value string) (bool, bool) { return fold.JudgeBoth(d, key, []byte(value)) }
}

// A second occurrence of the instant adds to the first, on the wire as when decoded.
func TestWireCheckMergesTimes(t *testing.T) {
	wire := func(number protowire.Number, fields ...uint64) []byte {
		var inner []byte
		for i, v := range fields {
			if v != 0 {
				inner = protowire.AppendVarint(protowire.AppendTag(inner, protowire.Number(i+1), protowire.VarintType), v)
			}
		}
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), inner)
	}
	took := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), wire(1, 0, 0))
	value := append(append(wire(1, 5, 0), took...), wire(1, 0, 7)...)
	if onWire, accepted := fold.JudgeBoth(jd.TimesDesc, "times.pa5000000007.pa0000000000.pa5", value); !onWire || !accepted {
		t.Errorf("merged: on the wire %v, decoded %v", onWire, accepted)
	}
	for _, c := range []struct{ name, key string }{
		{"no length of time", "times.pa5000000000.pa0000000000.pa5"},
		{"another instant", "times.pa6000000000.pa0000000000.pa5"},
	} {
		value := wire(1, 5, 0)
		if strings.HasPrefix(c.name, "another") {
			value = append(value, took...)
		}
		if onWire, accepted := fold.JudgeBoth(jd.TimesDesc, c.key, value); onWire || accepted {
			t.Errorf("%s: on the wire %v, decoded %v", c.name, onWire, accepted)
		}
	}
}

// What only the value says wrong is refused on the wire too, though the key has the same bytes.
func TestWireCheckRefusesOtherForms(t *testing.T) {
	const upper = "0123456A-0000-0000-0000-000000000000"
	id := make([]byte, 16)
	uuid, err := proto.Marshal(&judgev1.Uuids{UuidText: upper, UuidBytes: id})
	if err != nil {
		t.Fatal(err)
	}
	if onWire, accepted := fold.JudgeBoth(jd.UuidsDesc, "uuids."+upper+".00000000-0000-0000-0000-000000000000", uuid); onWire || accepted {
		t.Errorf("an upper-case uuid: on the wire %v, decoded %v", onWire, accepted)
	}
	signs, err := proto.Marshal(&judgev1.Times{
		At: &timestamppb.Timestamp{}, Inner: &judgev1.Times_Inner{Took: &durationpb.Duration{Seconds: 1, Nanos: -1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if onWire, accepted := fold.JudgeBoth(jd.TimesDesc, "times.pa0000000000.pa0999999999.pa0", signs); onWire || accepted {
		t.Errorf("a Duration of two signs: on the wire %v, decoded %v", onWire, accepted)
	}
}
