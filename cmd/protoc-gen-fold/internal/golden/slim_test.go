package golden

import (
	"context"
	"errors"
	"testing"

	"github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/basic/gen/basic/v1/basicv1fold"
	keysv1 "github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/keys/gen/keys/v1"
	"github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/keys/gen/keys/v1/keysv1fold"
	"github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/shapes/gen/shapes/v1/shapesv1tables"
	palettev1 "github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/types/gen/palette/v1"
	"github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/types/gen/types/v1/typesv1fold"
	fold "github.com/typedfold/fold/runtime"
)

// allocates has one key written into a buffer, which allocates nothing; from nothing into a prefix, which allocates its
// bytes; and read, which allocates the strings in which something was escaped.
func allocates[K fold.Key](t *testing.T, k K, tokens int, strings float64, parse func(string) (K, error)) {
	t.Helper()
	buf, err := k.AppendKey(make([]byte, 0, 512))
	if err != nil {
		t.Errorf("%#v: %v", k, err)
		return
	}
	key := string(buf)
	if back, err := parse(key); err != nil || back != k {
		t.Errorf("%s: read as %#v, %v", key, back, err)
	}
	appendKey := k.AppendKey
	var prefix fold.Prefix[K]
	for _, c := range []struct {
		what string
		want float64
		f    func()
	}{
		{"append", 0, func() { buf, err = appendKey(buf[:0]) }},
		{"prefix", 1, func() { prefix = fold.PrefixOf(k, tokens) }},
		{"parse", strings, func() { k, err = parse(key) }},
	} {
		if got := testing.AllocsPerRun(200, c.f); got > c.want || err != nil {
			t.Errorf("%s %s: %v allocations, at most %v; %v", c.what, key, got, c.want, err)
		}
	}
	if prefix.String() == "" || len(prefix.String()) >= len(key) {
		t.Errorf("prefix of %d tokens of %s is %q", tokens, key, prefix)
	}
}

func TestAllocationsOfEveryKind(t *testing.T) {
	allocates(t, typesv1fold.TextKey{Esc: "plain", Verbatim: "eu-1", Hex: "", Digest: "", Raw: "b"}, 2, 2, typesv1fold.ParseTextKey)
	allocates(t, typesv1fold.TextKey{Esc: "a.b", Verbatim: "eu-1", Hex: "az", Digest: "\x00\xFF", Raw: "\xFF"}, 2, 4, typesv1fold.ParseTextKey)
	allocates(t, typesv1fold.NumberKey{I32: -1 << 31, S32: 300, F32: -42, I64: -1 << 63, S64: 1 << 40, F64: -1, U32: 1<<32 - 1, X32: 5000, U64: 1 << 60, X64: 10}, 2, 0, typesv1fold.ParseNumberKey)
	allocates(t, typesv1fold.WideKey{I32: -1, I64: 1 << 40, U32: 0xABCDEF, U64: 1 << 63}, 2, 0, typesv1fold.ParseWideKey)
	allocates(t, typesv1fold.ChoiceKey{On: true, Color: palettev1.Color_COLOR_DARK, Size: 999, Hue: -77777}, 2, 0, typesv1fold.ParseChoiceKey)
	allocates(t, keysv1fold.PlainKey{I32: -777, I64: 1 << 40, U32: 999, U64: 1 << 63, Color: 1234, Name: keysv1.Color_COLOR_RED}, 2, 0, keysv1fold.ParsePlainKey)
	allocates(t, keysv1fold.MomentKey{ID: uuidBytes, Raw: uuidBytes, At: fold.Time{Seconds: 1 << 30, Nanos: 7}, InnerTook: fold.Span{Seconds: -5}}, 1, 0, keysv1fold.ParseMomentKey)
	allocates(t, shapesv1tables.BlobKey{Owner: "o", Path: "p"}, 3, 1, shapesv1tables.ParseBlobKey)
}

// A prefix is refused for what is in it, and not for what comes after.
func TestPrefixOfWhatCanNotBeWritten(t *testing.T) {
	ok := typesv1fold.TextByEsc("e") // an empty VERBATIM follows
	if ok.String() != "text.e." {
		t.Errorf("prefix %q", ok)
	}
	bad := typesv1fold.TextByEscVerbatim("e", "no token")
	if bad.String() != "" {
		t.Errorf("prefix %q", bad)
	}
	var table typesv1fold.TextTable
	for _, err := range table.List(t.Context(), bad) {
		var rej *fold.Rejection
		if !errors.As(err, &rej) || rej.Code != fold.KeySegment || rej.Field != "verbatim" {
			t.Errorf("List: %v", err)
		}
		return
	}
	t.Error("List yields nothing")
}

// Literals stand where the pattern has them, at the end too, and what a key lacks or has too much goes before the rest.
func TestLiterals(t *testing.T) {
	for key, ok := range map[string]bool{
		"meta.x.o.k.v1.n.end": true, "meta.x.o.k.v1.n": false, "meta.x.o.k.v1.n.end.more": false, "meta.x.o.k.v2.n.end": false,
		"meta.y.o.k.v1.n.end": false, "meta.x.o.k.v1.n.END": false, "meta": false, "": false,
	} {
		k, err := shapesv1tables.ParseMetaKey(key)
		if (err == nil) != ok || !ok && k != (shapesv1tables.MetaKey{}) {
			t.Errorf("%s: %#v %v", key, k, err)
		}
		var rej *fold.Rejection
		if !ok && (!errors.As(err, &rej) || rej.Code != fold.KeyNoPattern) {
			t.Errorf("%s: %v, want %v", key, err, fold.KeyNoPattern)
		}
	}
}

// other implements hooks, and tells that its methods were called.
type other struct {
	basicv1fold.UnimplementedHostHooks
	err error
}

func (o other) LoadHost(context.Context, basicv1fold.HostRows) error { return o.err }

// A builder takes the hooks of a table; functions that are nil are none.
func TestHookOptions(t *testing.T) {
	want := errors.New("called")
	if err := (other{err: want}).LoadHost(t.Context(), nil); err != want {
		t.Error(err)
	}
	var none basicv1fold.HostHooks
	for _, h := range []basicv1fold.HostHooks{none, basicv1fold.HostHookFuncs{}, &basicv1fold.HostHookFuncs{}, other{}, &other{}} {
		if basicv1fold.WithHostHooks(h) == nil {
			t.Errorf("no option for %T", h)
		}
	}
	calls := basicv1fold.HostHookFuncs{Apply: func(context.Context, []basicv1fold.HostEvent) error { return want }}
	if err := errors.Join(calls.LoadHost(t.Context(), nil)); err != nil {
		t.Errorf("a nil Load: %v", err)
	}
	if err := calls.ApplyHost(t.Context(), nil); err != want {
		t.Errorf("Apply: %v", err)
	}
}
