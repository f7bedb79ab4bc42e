// Package golden compiles the generated code in testdata, which no build does by itself, and runs it.
package golden

import (
	"context"
	"errors"
	"iter"
	"testing"

	"google.golang.org/protobuf/proto"

	basicv1 "github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/basic/gen/basic/v1"
	"github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/basic/gen/basic/v1/basicv1fold"
	"github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/collide/gen/collide/any/anyfold"
	"github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/collide/gen/collide/context/contextfold"
	foldpb "github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/collide/gen/collide/fold"
	"github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/collide/gen/collide/fold/foldfold"
	keywordspb "github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/collide/gen/collide/keywords"
	"github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/collide/gen/collide/keywords/errfold"
	fillv1 "github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/fill/gen/fill/v1"
	"github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/fill/gen/fill/v1/fillv1fold"
	presencev1 "github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/presence/gen/presence/v1"
	"github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/presence/gen/presence/v1/presencev1fold"
	samepkgv1 "github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/samepkg/gen/samepkg/v1"
	shapesv1 "github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/shapes/gen/shapes/v1"
	"github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/shapes/gen/shapes/v1/shapesv1tables"
	palettev1 "github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/types/gen/palette/v1"
	typesv1 "github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/types/gen/types/v1"
	"github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/types/gen/types/v1/typesv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
)

// put is a message of the bucket that sets key to the value.
func put(t *testing.T, key string, value proto.Message) fold.RawEntry {
	t.Helper()
	wire, err := proto.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return fold.RawEntry{Key: key, Value: wire, Op: fold.OpPut, Reason: fold.ReasonUser, Version: kv.Revision(7)}
}

// checkTable takes a value through the table's generated functions: its key is want, reads back, and a message of the
// bucket with both is an event with them.
func checkTable[K fold.Key, V proto.Message](t *testing.T, value V, want string, keyOf func(V) (K, error),
	parseKey func(string) (K, error), parse func(fold.RawEntry) (fold.Event[K, V], *fold.Rejection)) {
	t.Helper()
	k, err := keyOf(value)
	if err != nil {
		t.Errorf("%s: key of %v: %v", want, value, err)
		return
	}
	if got := fold.KeyString(k); got != want {
		t.Errorf("key of %v is %q, want %q", value, got, want)
	}
	if back, err := parseKey(want); err != nil || back != k {
		t.Errorf("parse %q: %v %v, want %v", want, back, err, k)
	}
	ev, rej := parse(put(t, want, value))
	if rej != nil || ev.Key != k || !proto.Equal(ev.New, value) || ev.Rev.Seq() != 7 {
		t.Errorf("entry %q: %v %v", want, ev, rej)
	}
	if _, err := parseKey(want + ".more"); err == nil && want[len(want)-1] != 'T' {
		t.Errorf("parse %q with a token more: no error", want)
	}
}

func TestKeys(t *testing.T) {
	checkTable(t, &basicv1.Host{Region: "eu-1", HostId: "a.b"}, "host.eu/2D1.a/2Eb",
		basicv1fold.HostKeyOf, basicv1fold.ParseHostKey, basicv1fold.ParseHost)
	checkTable(t, &basicv1.Host_Slot{HostId: "h", Index: 42}, "slot.h.b42",
		basicv1fold.Host_SlotKeyOf, basicv1fold.ParseHost_SlotKey, basicv1fold.ParseHost_Slot)
	checkTable(t, &basicv1.HttpOrigin{Name: ""}, "origin.-",
		basicv1fold.OriginKeyOf, basicv1fold.ParseOriginKey, basicv1fold.ParseOrigin)
	checkTable(t, &basicv1.User{UserId: 1<<64 - 1}, "user.t18446744073709551615",
		basicv1fold.UserKeyOf, basicv1fold.ParseUserKey, basicv1fold.ParseUser)
	checkTable(t, &typesv1.Text{Esc: "my_zone", Verbatim: "eu-west-1", Hex: "az", Digest: []byte{0, 255}, Raw: []byte{'a', 0xFF}},
		"text.my__z-one.eu-west-1.617A.00FF.azFF", typesv1fold.TextKeyOf, typesv1fold.ParseTextKey, typesv1fold.ParseText)
	checkTable(t, &typesv1.Number{I32: -1 << 31, S32: 7, F32: -42, I64: -1 << 63, S64: 0, F64: -1, U32: 1<<32 - 1, X32: 5, U64: 10, X64: 0},
		"number.nq7852516351.pa7.ny57.nh0776627963145224191.pa0.nz8.j4294967295.a5.b10.a0",
		typesv1fold.NumberKeyOf, typesv1fold.ParseNumberKey, typesv1fold.ParseNumber)
	checkTable(t, &typesv1.Wide{I32: -1, I64: 1, U32: 0xAB, U64: 0xCD}, "wide.7FFFFFFF.8000000000000001.000000AB.00000000000000CD",
		typesv1fold.WideKeyOf, typesv1fold.ParseWideKey, typesv1fold.ParseWide)
	checkTable(t, &typesv1.Choice{On: true, Color: palettev1.Color_COLOR_DARK, Size: 99, Hue: palettev1.Color_COLOR_RED}, "choice.1.nz2.pb99.80000001",
		typesv1fold.ChoiceKeyOf, typesv1fold.ParseChoiceKey, typesv1fold.ParseChoice)
	checkTable(t, &samepkgv1.Thing{Name: "x"}, "thing.pa0.x", samepkgv1.ThingKeyOf, samepkgv1.ParseThingKey, samepkgv1.ParseThing)
	checkTable(t, &foldpb.Item{Mode: foldpb.Mode_MODE_ON, Name: "n"}, "fold.pa1.n", foldfold.ItemKeyOf, foldfold.ParseItemKey, foldfold.ParseItem)
	checkTable(t, &keywordspb.Get{Reset_: "r", Descriptor_: "d"}, "get.r.d", errfold.GetKeyOf, errfold.ParseGetKey, errfold.ParseGet)
	checkTable(t, &keywordspb.Word{Type: "t", Range: "r", Func: "f", Err: "e", Dst: "d"}, "word.t.r.f.e.d",
		errfold.WordKeyOf, errfold.ParseWordKey, errfold.ParseWord)
	checkTable(t, &keywordspb.Name{Id: "i", ID: "j", X_1: "x", UrlPath: "/"}, "name.i.j.x./2F",
		errfold.NameKeyOf, errfold.ParseNameKey, errfold.ParseName)
	checkTable(t, &keywordspb.Import{Fold: 1, Last: "l"}, "import.pa1.pa0.pa0.l",
		errfold.ImportKeyOf, errfold.ParseImportKey, errfold.ParseImport)
}

func TestShapes(t *testing.T) {
	checkTable(t, &shapesv1.Settings{Motd: "hi"}, "settings.global",
		shapesv1tables.SettingsKeyOf, shapesv1tables.ParseSettingsKey, shapesv1tables.ParseSettings)
	checkTable(t, &shapesv1.Meta{Owner: "o", Kind: "k", Name: "n"}, "meta.x.o.k.v1.n.end",
		shapesv1tables.MetaKeyOf, shapesv1tables.ParseMetaKey, shapesv1tables.ParseMeta)
	checkTable(t, &shapesv1.Leaf{Spec: &shapesv1.Leaf_Spec{Url: "u", Target: &shapesv1.Leaf_Spec_Target{HostId: 3}}}, "leaf.a3.u",
		shapesv1tables.LeafKeyOf, shapesv1tables.ParseLeafKey, shapesv1tables.ParseLeaf)
	// A tail takes further tokens, so these keys end in 'T'.
	checkTable(t, &shapesv1.Blob{Owner: "o", Path: "a//b.c/T"}, "blob.o.files.a.-.b/2Ec.T",
		shapesv1tables.BlobKeyOf, shapesv1tables.ParseBlobKey, shapesv1tables.ParseBlob)
	checkTable(t, &shapesv1.Tree{Path: "T"}, "tree.T", shapesv1tables.TreeKeyOf, shapesv1tables.ParseTreeKey, shapesv1tables.ParseTree)
	if k, err := shapesv1tables.ParseTreeKey("tree"); err == nil {
		t.Errorf("a tail of no token is read as %v", k)
	}
}

func TestPrefixes(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{basicv1fold.HostAll().String(), "host."},
		{basicv1fold.HostByRegion("eu.1").String(), "host.eu/2E1."},
		{basicv1fold.OriginAll().String(), "origin."},
		{shapesv1tables.SettingsAll().String(), "settings.global"},
		{shapesv1tables.BlobByOwner("o").String(), "blob.o.files."},
		{shapesv1tables.TreeAll().String(), "tree."},
		{shapesv1tables.MetaAll().String(), "meta.x."},
		{shapesv1tables.MetaByOwner("o").String(), "meta.x.o."},
		{shapesv1tables.MetaByOwnerKind("o", "k").String(), "meta.x.o.k.v1."},
		{typesv1fold.TextByEscVerbatim("e", "v").String(), "text.e.v."},
		{typesv1fold.ChoiceByOnColor(true, palettev1.Color_COLOR_RED).String(), "choice.1.pa1."},
		{anyfold.ItemByMode(1).String(), "any.pa1."},
		{contextfold.ItemByMode(1).String(), "context.pa1."},
	} {
		if c.got != c.want {
			t.Errorf("prefix %q, want %q", c.got, c.want)
		}
	}
}

func TestPresence(t *testing.T) {
	two := &presencev1.Two{Need: proto.String("n"), Opt: proto.Int32(0), Kind: presencev1.Two_KIND_B.Enum()}
	checkTable(t, two, "two.n.pa0.pa2", presencev1fold.TwoKeyOf, presencev1fold.ParseTwoKey, presencev1fold.ParseTwo)
	checkTable(t, &presencev1.Three{Opt: []byte{}}, "three.-.-", presencev1fold.ThreeKeyOf, presencev1fold.ParseThreeKey, presencev1fold.ParseThree)
	edition := &presencev1.Edition{Explicit: proto.String("e"), Inner: &presencev1.Edition_Inner{Id: proto.Uint64(1)}}
	checkTable(t, edition, "edition.e.-.a1", presencev1fold.EditionKeyOf, presencev1fold.ParseEditionKey, presencev1fold.ParseEdition)

	two.Opt = nil
	_, err := presencev1fold.TwoKeyOf(two)
	wantUnset(t, err, "opt")
	_, err = presencev1fold.ThreeKeyOf(&presencev1.Three{})
	wantUnset(t, err, "opt")
	edition.Inner = nil
	_, err = presencev1fold.EditionKeyOf(edition)
	wantUnset(t, err, "inner.id")
	_, err = shapesv1tables.LeafKeyOf(&shapesv1.Leaf{Spec: &shapesv1.Leaf_Spec{Url: "u"}})
	wantUnset(t, err, "spec.target.host_id")
}

func wantUnset(t *testing.T, err error, field string) {
	t.Helper()
	var rej *fold.Rejection
	if !errors.As(err, &rej) || rej.Code != fold.KeyFieldUnset || rej.Field != field {
		t.Errorf("error %v, want %v of %s", err, fold.KeyFieldUnset, field)
	}
}

func TestFill(t *testing.T) {
	ev, rej := fillv1fold.ParseEntry(put(t, "entry.n.pa1.00FF.a8.1.nz8", &fillv1.Entry{Payload: "p", Spec: &fillv1.Entry_Spec{Note: "kept"}}))
	want := &fillv1.Entry{
		Name: "n", State: fillv1.Entry_STATE_UP, Live: true, Opt: proto.Int64(-1), Payload: "p",
		Spec: &fillv1.Entry_Spec{Digest: []byte{0, 255}, Port: 8, Note: "kept"},
	}
	if rej != nil || !proto.Equal(ev.New, want) {
		t.Errorf("filled %v %v, want %v", ev.New, rej, want)
	}
	opaque, rej := presencev1fold.ParseOpaque(put(t, "opaque.n.a9", presencev1.Opaque_builder{Payload: proto.String("p")}.Build()))
	if rej != nil || opaque.New.GetName() != "n" || opaque.New.GetInner().GetId() != 9 || opaque.New.GetPayload() != "p" {
		t.Errorf("filled %v %v", opaque.New, rej)
	}
	// ESC can say any bytes, but a proto3 string can't hold them.
	if ev, rej := fillv1fold.ParseEntry(put(t, "entry.zFF.pa1.00FF.a8.1.nz8", &fillv1.Entry{})); rej == nil || rej.Field != "name" {
		t.Errorf("a name that is not UTF-8 is accepted: %v %v", ev.New, rej)
	}
}

func TestRejections(t *testing.T) {
	for _, c := range []struct {
		key  string
		code fold.RejectCode
	}{
		{"host.a", fold.KeyNoPattern},
		{"hosts.a.b", fold.KeyNoPattern},
		{"host.a.b.c", fold.KeyNoPattern},
		{"host.a./41", fold.KeyNotCanonical},
		{"host.a.b_", fold.KeySegment},
		{"host.a.other", fold.KeyValueMismatch},
	} {
		_, rej := basicv1fold.ParseHost(put(t, c.key, &basicv1.Host{Region: "a", HostId: "b"}))
		if rej == nil || rej.Code != c.code || rej.Table != "Host" || rej.Revision != 7 {
			t.Errorf("%s: %v, want %v", c.key, rej, c.code)
		}
	}
	if _, rej := basicv1fold.ParseHost(fold.RawEntry{Key: "host.a.b", Value: []byte{0xFF}, Op: fold.OpPut, Version: kv.Revision(7)}); rej == nil || rej.Code != fold.ValueDecode {
		t.Errorf("broken value: %v", rej)
	}
	large := &basicv1.Host_Slot{HostId: string(make([]byte, 600)), Index: 1}
	key, err := basicv1fold.Host_SlotKeyOf(large)
	if err != nil {
		t.Fatal(err)
	}
	if _, rej := basicv1fold.ParseHost_Slot(put(t, key.String(), large)); rej == nil || rej.Code != fold.ValueTooLarge {
		t.Errorf("value over max_value_bytes: %v", rej)
	}
	_, err = typesv1fold.TextKey{Verbatim: "not a token"}.AppendKey(nil)
	var rej *fold.Rejection
	if !errors.As(err, &rej) || rej.Code != fold.KeySegment || rej.Field != "verbatim" {
		t.Errorf("a VERBATIM value with spaces: %v", err)
	}
}

// hooks has only one of the two, and the embedded rest.
type hooks struct {
	basicv1fold.UnimplementedHostHooks
	applied int
}

func (h *hooks) ApplyHost(_ context.Context, events []basicv1fold.HostEvent) error {
	h.applied += len(events)
	return nil
}

func TestHooks(t *testing.T) {
	none := func(func(basicv1fold.HostRow, error) bool) {}
	var loaded, applied int
	for _, h := range []basicv1fold.HostHooks{
		&hooks{},
		basicv1fold.HostHookFuncs{},
		basicv1fold.HostHookFuncs{
			Load:  func(context.Context, iter.Seq2[basicv1fold.HostRow, error]) error { loaded++; return nil },
			Apply: func(context.Context, []basicv1fold.HostEvent) error { applied++; return nil },
		},
	} {
		if err := errors.Join(h.LoadHost(t.Context(), none), h.ApplyHost(t.Context(), make([]basicv1fold.HostEvent, 2))); err != nil {
			t.Error(err)
		}
		if basicv1fold.WithHostHooks(h) == nil {
			t.Errorf("WithHostHooks(%T) is nil", h)
		}
		if h, ok := h.(*hooks); ok && h.applied != 2 {
			t.Errorf("ApplyHost saw %d events", h.applied)
		}
	}
	if loaded != 1 || applied != 1 {
		t.Errorf("hook functions ran %d and %d times", loaded, applied)
	}
	if basicv1fold.WithHostHooks(nil) == nil {
		t.Error("WithHostHooks(nil) is nil")
	}
}
