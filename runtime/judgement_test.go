package fold_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	judgev1 "github.com/typedfold/fold/internal/foldtest/gen/judge/v1"
	jd "github.com/typedfold/fold/internal/foldtest/gen/judge/v1/judgev1fold"
	fold "github.com/typedfold/fold/runtime"
)

// judged is one table that is judged in both ways.
type judged interface {
	// random is a message of the bucket: right, nearly right or garbage.
	random(r *rand.Rand) (key, value string)
	// register adds the table to a fold and gives what the fold makes of it, as text.
	register(*fold.Builder, ...fold.TableOption) (func(context.Context) (string, error), error)
}

type judgedTable[K fold.Key, V proto.Message] struct {
	desc  *fold.Desc[K, V]
	keyOf func(V) (K, error)
	all   func() fold.Prefix[K]
}

func (j judgedTable[K, V]) message(r *rand.Rand) V {
	var v V
	m := v.ProtoReflect().Type().New()
	randomMessage(r, m, 3)
	return m.Interface().(V)
}

func (j judgedTable[K, V]) random(r *rand.Rand) (key, value string) {
	v := j.message(r)
	for i := 0; key == "" && i < 100; i++ {
		if k, err := j.keyOf(v); err == nil {
			if b, err := k.AppendKey(nil); err == nil {
				key = string(b)
			}
		}
		if key == "" || r.IntN(12) == 0 {
			v = j.message(r)
		}
	}
	wire, _ := proto.MarshalOptions{AllowPartial: true}.Marshal(v)
	switch r.IntN(6) {
	case 0: // what comes later in a value wins, or adds to what is there
		more, _ := proto.MarshalOptions{AllowPartial: true}.Marshal(j.message(r))
		wire = append(wire, more...)
	case 1:
		for range 1 + r.IntN(3) {
			if len(wire) > 0 {
				wire[r.IntN(len(wire))] = byte(r.Uint32() >> r.IntN(8))
			}
		}
	case 2:
		wire = wire[:r.IntN(len(wire)+1)]
	case 3:
		wire = protowire.AppendTag(wire, protowire.Number(1+r.IntN(12)), protowire.Type(r.IntN(6)))
		wire = append(wire, "\x04abc\xff"[:r.IntN(6)]...)
	}
	return randomKey(r, key), string(wire)
}

// randomKey changes some keys a little.
func randomKey(r *rand.Rand, key string) string {
	if key == "" || r.IntN(4) > 0 {
		return key
	}
	tokens := strings.Split(key, ".")
	at := r.IntN(len(tokens))
	wrong := []string{"-", "a", "FF", "C3A9", "C3", "zFF", "zC3zA9", "/2F", "/2f", "a0", "b05", "pa0", "nz0", "nz8", "0", "1", "80000000", "7FFFFFFF", "_0", "z-", "é"}
	tokens[at] = wrong[r.IntN(len(wrong))]
	if r.IntN(6) == 0 {
		tokens = append(tokens, "more")
	}
	return strings.Join(tokens, ".")
}

// randomMessage sets some of the fields, those of small numbers mostly.
func randomMessage(r *rand.Rand, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		switch {
		case r.IntN(12) == 0 || fd.ContainingOneof() != nil && r.IntN(2) == 0:
		case fd.IsMap():
			m.Mutable(fd).Map().Set(protoreflect.ValueOfString("k").MapKey(), protoreflect.ValueOfInt32(r.Int32N(3)))
		case fd.Message() != nil && depth == 0:
		case fd.IsList():
			randomMessage(r, m.Mutable(fd).List().AppendMutable().Message(), depth-1)
		case fd.Message() != nil:
			randomMessage(r, m.Mutable(fd).Message(), depth-1)
		default:
			m.Set(fd, randomScalar(r, fd))
		}
	}
}

func randomScalar(r *rand.Rand, fd protoreflect.FieldDescriptor) protoreflect.Value {
	texts := []string{"", "a", "B9", "a.b", "x/y", "é", "-", "\x00"}
	n := []int64{0, 1, -1, 7, 42, 1 << 40, -1 << 63}[r.IntN(7)]
	switch fd.Kind() {
	case protoreflect.StringKind:
		if r.IntN(2) == 0 {
			return protoreflect.ValueOfString(texts[1+r.IntN(2)])
		}
		return protoreflect.ValueOfString(texts[r.IntN(len(texts))])
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(texts[r.IntN(len(texts))] + "\xff"[:r.IntN(2)]))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(n != 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(n))
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

func (j judgedTable[K, V]) register(b *fold.Builder, opts ...fold.TableOption) (func(context.Context) (string, error), error) {
	t, err := fold.Register(b, j.desc, opts...)
	return func(ctx context.Context) (string, error) {
		var text strings.Builder
		rows := 0
		for row, err := range t.List(ctx, j.all()) {
			if err != nil {
				return "", fmt.Errorf("list: %w", err)
			}
			wire, err := proto.MarshalOptions{AllowPartial: true, Deterministic: true}.Marshal(row.Value)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&text, "row %v: revision %d, stale %v, %x\n", row.Key, row.Rev.Seq(), row.Stale, wire)
			if len(opts) > 0 {
				if v, ok := t.Peek(row.Key); !ok || !proto.Equal(v, row.Value) {
					return "", fmt.Errorf("row %v: peek says %v, %v", row.Key, v, ok)
				}
			}
			rows++
		}
		if n, err := t.Count(ctx, j.all()); err != nil || n != uint64(rows) {
			return "", fmt.Errorf("%d rows are counted, and %d are there: %w", n, rows, err)
		}
		for rej, err := range t.Rejected(ctx) {
			if err != nil {
				return "", fmt.Errorf("rejected: %w", err)
			}
			fmt.Fprintln(&text, "rejected", rej.Code, rej.Key, rej.Field, rej.Revision)
		}
		return text.String(), nil
	}, err
}

// TestBothJudgementsAgree: a table that decodes what comes, since it keeps its rows in memory, accepts and refuses the
// same updates as one that checks them on the wire.
func TestBothJudgementsAgree(t *testing.T) {
	for name, j := range map[string]judged{
		"Texts":        judgedTable[jd.TextsKey, *judgev1.Texts]{jd.TextsDesc, jd.TextsKeyOf, jd.TextsAll},
		"FilledTexts":  judgedTable[jd.FilledTextsKey, *judgev1.FilledTexts]{jd.FilledTextsDesc, jd.FilledTextsKeyOf, jd.FilledTextsAll},
		"FilledHex":    judgedTable[jd.FilledHexKey, *judgev1.FilledHex]{jd.FilledHexDesc, jd.FilledHexKeyOf, jd.FilledHexAll},
		"Numbers":      judgedTable[jd.NumbersKey, *judgev1.Numbers]{jd.NumbersDesc, jd.NumbersKeyOf, jd.NumbersAll},
		"Legacy":       judgedTable[jd.LegacyKey, *judgev1.Legacy]{jd.LegacyDesc, jd.LegacyKeyOf, jd.LegacyAll},
		"LegacyFilled": judgedTable[jd.LegacyFilledKey, *judgev1.LegacyFilled]{jd.LegacyFilledDesc, jd.LegacyFilledKeyOf, jd.LegacyFilledAll},
		"Lazy":         judgedTable[jd.LazyKey, *judgev1.Lazy]{jd.LazyDesc, jd.LazyKeyOf, jd.LazyAll},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(3) {
				bothJudge(t, j, rand.New(rand.NewPCG(seed, 77)))
			}
		})
	}
}

func bothJudge(t *testing.T, j judged, r *rand.Rand) {
	t.Helper()
	log := newLog()
	var keys []string
	for range 1500 {
		key, value := j.random(r)
		switch {
		case len(keys) > 0 && r.IntN(3) == 0: // another value for a key that is there
			key = keys[r.IntN(len(keys))]
		case len(keys) < 400:
			keys = append(keys, key)
		}
		if key != "" {
			log.Set(key, value)
		}
	}
	info, err := log.Info(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	var seen [2]string
	for i, opts := range [][]fold.TableOption{nil, {fold.Resident()}} {
		b := fold.NewBuilder(resumeFromStart{log}, openStore(t, backends[0], t.TempDir()), fold.Options{Logger: quiet})
		read, err := j.register(b, opts...)
		if err != nil {
			t.Fatal(err)
		}
		f, err := b.Start(bounded(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.WaitApplied(bounded(t), fold.Seq(info.Last)); err != nil {
			t.Fatal(err)
		}
		if seen[i], err = read(bounded(t)); err != nil {
			t.Errorf("resident %v: %v", i == 1, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if seen[0] != seen[1] {
		t.Errorf("checked on the wire:\n%s\ndecoded:\n%s", seen[0], seen[1])
	}
	if n := strings.Count(seen[0], "row "); n < 3 {
		t.Errorf("%d rows: the test says too little", n)
	}
	if n := strings.Count(seen[0], "rejected "); n < 3 {
		t.Errorf("%d rejections: the test says too little", n)
	}
}
