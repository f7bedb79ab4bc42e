package fold_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	codecv1 "github.com/typedfold/fold/internal/foldtest/gen/codec/v1"
	cd "github.com/typedfold/fold/internal/foldtest/gen/codec/v1/codecv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/store"
)

const (
	typeProto = "application/protobuf"
	typeJSON  = "application/json"
	typeRaw   = "application/octet-stream"
)

// codecFold is a fold of one table over a log.
type codecFold[K fold.Key, V proto.Message] struct {
	*fold.Table[K, V]
	f   *fold.Fold
	log fold.Bucket
	// of judges as the table does.
	of *fold.Desc[K, V]
}

func startCodec[K fold.Key, V proto.Message](t testing.TB, log fold.Bucket, d *fold.Desc[K, V], o fold.Options, opts ...fold.TableOption) codecFold[K, V] {
	t.Helper()
	return startCodecOn(t, log, openStore(t, backends[0], t.TempDir()), d, o, opts...)
}

func startCodecOn[K fold.Key, V proto.Message](t testing.TB, log fold.Bucket, s store.Store, d *fold.Desc[K, V], o fold.Options, opts ...fold.TableOption) codecFold[K, V] {
	t.Helper()
	o.Logger = quiet
	b := fold.NewBuilder(log, s, o)
	table, err := fold.Register(b, d, opts...)
	if err != nil {
		t.Fatal(err)
	}
	f, err := b.Start(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return codecFold[K, V]{Table: table, f: f, log: log, of: d}
}

func (f codecFold[K, V]) upToDate(t testing.TB) {
	t.Helper()
	info, err := f.log.Info(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.f.WaitApplied(bounded(t), fold.Seq(info.Last)); err != nil {
		t.Fatal(err)
	}
}

// row is the row's value, nil when there is none.
func (f codecFold[K, V]) row(t testing.TB, k K) (v V, ok bool, stale *fold.Rejection) {
	t.Helper()
	f.upToDate(t)
	row, ok := get(t, f.Table, k)
	return row.Value, ok, row.Stale
}

func (f codecFold[K, V]) want(t testing.TB, k K, want V) {
	t.Helper()
	if got, ok, stale := f.row(t, k); !ok || stale != nil || !proto.Equal(got, want) {
		t.Errorf("key %v: %v (%v, stale %v), want %v", k, got, ok, stale, want)
	}
}

// wantCode has the newest message of the key refused with a code.
func (f codecFold[K, V]) wantCode(t testing.TB, key string, want fold.RejectCode) *fold.Rejection {
	t.Helper()
	f.upToDate(t)
	for _, rej := range collect(t, f.Rejected(bounded(t))) {
		if rej.Key == key {
			if rej.Code != want {
				t.Errorf("key %s is refused with %v, want %v", key, rej, want)
			}
			return rej
		}
	}
	t.Errorf("key %s is not refused", key)
	return &fold.Rejection{}
}

func putTyped(t testing.TB, log kv.Writer, key, value, contentType string) {
	t.Helper()
	if _, err := log.Put(bounded(t), key, []byte(value), kv.PutOptions{ContentType: contentType}); err != nil {
		t.Fatal(err)
	}
}

// lastOf is the key's last message.
func lastOf(t testing.TB, log kv.Reader, key string) kv.Entry {
	t.Helper()
	e, err := log.Entry(bounded(t), key)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func wantMessage(t testing.TB, log kv.Reader, key, value, contentType string) {
	t.Helper()
	if e := lastOf(t, log, key); string(e.Value) != value || e.ContentType != contentType {
		t.Errorf("message of %s: %q as %q, want %q as %q", key, e.Value, e.ContentType, value, contentType)
	}
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func wantRejected(t testing.TB, what string, err error, code fold.RejectCode) *fold.Rejection {
	t.Helper()
	var rej *fold.Rejection
	if !errors.As(err, &rej) || rej.Code != code {
		t.Errorf("%s: %v, want %v", what, err, code)
		return &fold.Rejection{}
	}
	return rej
}

func TestJSONValues(t *testing.T) {
	log := newLog()
	f := startCodec(t, log, cd.JsonDesc, fold.Options{})
	w, ctx, k := cd.NewJsonWriter(log), bounded(t), cd.JsonKey{ID: "a b", N: -7}
	m := &codecv1.Json{Id: k.ID, N: k.N, Rich: &codecv1.Rich{Texts: []string{"x", "<y>", "\u2028"}, U64: 1 << 63, Counts: map[string]int64{"b": 2, "a": 1}, Mode: 9, Blob: []byte{0xFF}}}
	must[cd.JsonRev](t)(w.Create(ctx, m))
	wantMessage(t, log, k.String(), `{"id":"a b","n":"-7","rich":{"u64":"9223372036854775808","blob":"/w==","mode":9,"texts":["x","<y>","`+"\u2028"+`"],"counts":{"a":"1","b":"2"}}}`, typeJSON)
	f.want(t, k, m)
	for range 20 { // the bytes are the same each time, for each order of a map
		before := lastOf(t, log, k.String())
		must[cd.JsonRev](t)(w.Put(ctx, proto.Clone(m).(*codecv1.Json)))
		wantMessage(t, log, k.String(), string(before.Value), typeJSON)
	}

	// What a newer writer adds is no reason to refuse, names of the schema are read too, and no header decides anything.
	for _, header := range []string{"", typeProto, typeRaw, "text/html"} {
		putTyped(t, log, k.String(), ` { "rich": {"maybe_number": 3, "newer": [1]}, "n": -7, "id": "a b", "added": {"x": null} } `, header)
		f.want(t, k, &codecv1.Json{Id: k.ID, N: k.N, Rich: &codecv1.Rich{MaybeNumber: proto.Int64(3)}})
	}
	for value, code := range map[string]fold.RejectCode{
		`{"id": "other", "n": -7}`:          fold.KeyValueMismatch,
		`{"n": -7}`:                         fold.KeyValueMismatch,
		`{"id": "a b", "n": -7, "n": -7}`:   fold.ValueDecode,
		`{"id": "a b", "n": "seven"}`:       fold.ValueDecode,
		`{"id": "a b", "n": -7} x`:          fold.ValueDecode,
		"{\"id\": \"a b\xff\", \"n\": -7}":  fold.ValueDecode,
		``:                                  fold.ValueDecode,
		string(wireOf(t, m)):                fold.ValueDecode,
		strings.Repeat(" ", 200001-2) + "{": fold.ValueDecode,
		strings.Repeat(" ", 200001-1) + "{": fold.ValueDecode,
		strings.Repeat(" ", 200001) + "{":   fold.ValueTooLarge,
	} {
		putTyped(t, log, k.String(), value, typeJSON)
		if len(value) > 200000 {
			code = fold.ValueTooLarge
		}
		f.wantCode(t, k.String(), code)
	}
	if _, ok, stale := f.row(t, k); !ok || stale == nil {
		t.Errorf("the last good row is gone: %v, stale %v", ok, stale)
	}
	must[cd.JsonRev](t)(w.Put(ctx, m)) // a good value ends it
	f.want(t, k, m)

	_, err := w.Put(ctx, &codecv1.Json{Rich: &codecv1.Rich{Text: "\xff"}})
	wantRejected(t, "invalid text", err, fold.ValueDecode)
	_, err = w.Put(ctx, &codecv1.Json{Rich: &codecv1.Rich{At: &timestamppb.Timestamp{Nanos: -1}}})
	wantRejected(t, "a time that JSON can't have", err, fold.ValueDecode)
	// The limit is on the bytes that are sent: 2 more for each value of JSON's quotes.
	_, err = w.Put(ctx, &codecv1.Json{Rich: &codecv1.Rich{Text: strings.Repeat("x", 199_999)}})
	wantRejected(t, "too long in JSON only", err, fold.ValueTooLarge)
}

func wireOf(t testing.TB, m proto.Message) []byte {
	return must[[]byte](t)(proto.Marshal(m))
}

func TestJSONIsFilled(t *testing.T) {
	log := newLog()
	f := startCodec(t, log, cd.JsonFilledDesc, fold.Options{})
	w, ctx := cd.NewJsonFilledWriter(log), bounded(t)
	k := cd.JsonFilledKey{ID: "a", At: fold.Time{Seconds: 5}}
	m := &codecv1.JsonFilled{Id: "a", At: &timestamppb.Timestamp{Seconds: 5}, Rich: &codecv1.Rich{On: true}}
	rev := must[cd.JsonFilledRev](t)(w.Create(ctx, m))
	wantMessage(t, log, k.String(), `{"rich":{"on":true}}`, typeJSON)
	if m.Id != "a" || m.At == nil {
		t.Errorf("the caller's message was changed: %v", m)
	}
	f.want(t, k, m)
	putTyped(t, log, k.String(), `{"id": "other", "at": "2026-11-30T00:00:00Z", "rich": {"on": true}}`, "")
	f.want(t, k, m)
	if _, err := w.Update(ctx, m, rev); !errors.As(err, new(*fold.ConflictError)) {
		t.Errorf("update of what was written meanwhile: %v", err)
	}
	must[cd.JsonFilledRev](t)(w.Mutate(ctx, k, func(v *codecv1.JsonFilled, ok bool) (*codecv1.JsonFilled, error) {
		if !ok || v.GetId() != "a" || v.GetAt().GetSeconds() != 5 {
			return nil, fmt.Errorf("%v %v", v, ok)
		}
		v.Rich.Text = "more"
		return v, nil
	}))
	wantMessage(t, log, k.String(), `{"rich":{"on":true,"text":"more"}}`, typeJSON)
}

func TestRawValues(t *testing.T) {
	log := newLog()
	f := startCodec(t, log, cd.RawBytesDesc, fold.Options{})
	w, ctx := cd.NewRawBytesWriter(log), bounded(t)
	k := cd.RawBytesKey{ID: "a", Part: 3}
	own := []byte("\x00\xff{}")
	m := &codecv1.RawBytes{Id: "a", Part: 3, Data: own}
	must[cd.RawBytesRev](t)(w.Create(ctx, m))
	copy(own, "????") // what was written is not the caller's
	wantMessage(t, log, k.String(), "\x00\xff{}", typeRaw)
	want := &codecv1.RawBytes{Id: "a", Part: 3, Data: []byte("\x00\xff{}")}
	f.want(t, k, want)
	first, _, _ := f.row(t, k)
	copy(first.Data, "!!!!") // what was read is the caller's
	f.want(t, k, want)
	if got, ok, err := func() (*codecv1.RawBytes, bool, error) {
		dst := &codecv1.RawBytes{Id: "left", Data: []byte("over")}
		ok, err := f.GetInto(ctx, k, dst)
		return dst, ok, err
	}(); err != nil || !ok || !proto.Equal(got, want) {
		t.Errorf("get into: %v %v %v", got, ok, err)
	}
	for _, value := range []string{"", "{}", strings.Repeat("x", 64)} {
		putTyped(t, log, k.String(), value, typeJSON)
		f.want(t, k, &codecv1.RawBytes{Id: "a", Part: 3, Data: []byte(value)})
	}
	putTyped(t, log, k.String(), strings.Repeat("x", 65), "")
	f.wantCode(t, k.String(), fold.ValueTooLarge)
	_, err := w.Put(ctx, &codecv1.RawBytes{Data: make([]byte, 65)})
	wantRejected(t, "65 bytes", err, fold.ValueTooLarge)
	must[cd.RawBytesRev](t)(w.Put(ctx, &codecv1.RawBytes{Id: "a", Part: 3, Data: make([]byte, 64)}))
	f.want(t, k, &codecv1.RawBytes{Id: "a", Part: 3, Data: make([]byte, 64)})
}

func TestRawTexts(t *testing.T) {
	log := newLog()
	f := startCodec(t, log, cd.RawTextDesc, fold.Options{})
	one := startCodec(t, log, cd.RawOneDesc, fold.Options{})
	w, ctx, k := cd.NewRawTextWriter(log), bounded(t), cd.RawTextKey{Name: "motd"}
	must[cd.RawTextRev](t)(w.PutAt(ctx, k, &codecv1.RawText{Text: proto.String("héllo")}))
	wantMessage(t, log, k.String(), "héllo", typeRaw)
	f.want(t, k, &codecv1.RawText{Text: proto.String("héllo")})
	must[cd.RawTextRev](t)(w.PutAt(ctx, k, &codecv1.RawText{})) // unset is no bytes, and no bytes are the empty text
	wantMessage(t, log, k.String(), "", typeRaw)
	f.want(t, k, &codecv1.RawText{Text: proto.String("")})
	putTyped(t, log, k.String(), "\xff", "text/plain")
	f.wantCode(t, k.String(), fold.ValueDecode)
	_, err := w.PutAt(ctx, k, &codecv1.RawText{Text: proto.String("\xff")})
	wantRejected(t, "no UTF-8", err, fold.ValueDecode)

	must[cd.RawOneRev](t)(cd.NewRawOneWriter(log).Put(ctx, &codecv1.RawOne{Text: "x"}))
	one.want(t, cd.RawOneKey{}, &codecv1.RawOne{Text: "x"})
	putTyped(t, log, "rawone", "\xc3", "")
	one.wantCode(t, "rawone", fold.ValueDecode)
}

// TestHeaderChoosesCodec: with also_read, the header decides when it names one of the codecs, and else the order does.
func TestHeaderChoosesCodec(t *testing.T) {
	const key = "anyraw.k"
	wire := string(wireOf(t, &codecv1.AnyRaw{Text: "wire"}))
	const json = `{"text":"json"}`
	none := []string{"", "application/xml", "application/", ";", "json", "application/json-seq", "application/protobuf+json"}
	type judged struct {
		headers []string
		value   string
		want    string // the text; "!" for a refusal
	}
	raw := []judged{
		{none, wire, wire}, {none, json, json}, {none, "plain", "plain"}, {none, "\xff", "!"},
		{[]string{typeProto, "application/x-protobuf", "APPLICATION/vnd.Google.Protobuf", " application/protobuf ; messageType=\"x.Y\""}, wire, "wire"},
		{[]string{typeProto}, json, "!"},
		{[]string{typeJSON, "Application/JSON; charset=utf-8", "text/json", "application/json;"}, json, "json"},
		{[]string{typeJSON}, wire, "!"},
		{[]string{typeRaw, "text/plain", "TEXT/PLAIN;charset=utf-8"}, json, json},
		{[]string{typeRaw, "text/plain"}, "\xff", "!"},
	}
	log := newLog()
	f := startCodec(t, log, cd.AnyRawDesc, fold.Options{})
	for _, c := range raw {
		for _, header := range c.headers {
			putTyped(t, log, key, c.value, header)
			if c.want == "!" {
				f.wantCode(t, key, fold.ValueDecode)
				continue
			}
			f.want(t, cd.AnyRawKey{ID: "k"}, &codecv1.AnyRaw{Id: "k", Text: c.want})
		}
	}

	// A value that both can read is what the first of them reads, unless its header says more.
	row := &codecv1.AnyJson{Id: "{}\n\n\n\n\n\n\n\n"} // its bytes are white space and a JSON object
	both := string(wireOf(t, row))
	if both != "\n\n"+row.Id {
		t.Fatalf("%q", both)
	}
	first := startCodec(t, log, cd.AnyJsonDesc, fold.Options{})
	k := cd.AnyJsonKey{ID: row.Id}
	putTyped(t, log, k.String(), both, "")
	first.wantCode(t, k.String(), fold.KeyValueMismatch) // as JSON it has no id
	putTyped(t, log, k.String(), both, typeProto)
	first.want(t, k, row)
	putTyped(t, log, k.String(), both, "text/plain") // no value of the table is RAW
	first.wantCode(t, k.String(), fold.KeyValueMismatch)

	// Nobody can read it, and each says why.
	putTyped(t, log, k.String(), "\xff", "x/y")
	rej := first.wantCode(t, k.String(), fold.ValueDecode)
	for _, part := range []string{"PROTOJSON: ", "PROTO: ", `"x/y"`} {
		if !strings.Contains(rej.Error(), part) {
			t.Errorf("%v does not say %s", rej, part)
		}
	}
}

// TestWritersStamp: a header is sent where a reader could need it, and not where there is one codec, the usual one.
func TestWritersStamp(t *testing.T) {
	log, ctx := newLog(), bounded(t)
	must[cd.BinaryRev](t)(cd.NewBinaryWriter(log).Put(ctx, &codecv1.Binary{Id: "k"}))
	must[cd.AnyBinaryRev](t)(cd.NewAnyBinaryWriter(log).Put(ctx, &codecv1.AnyBinary{Id: "k"}))
	must[cd.AnyJsonRev](t)(cd.NewAnyJsonWriter(log).Put(ctx, &codecv1.AnyJson{Id: "k"}))
	must[cd.AnyRawRev](t)(cd.NewAnyRawWriter(log).Put(ctx, &codecv1.AnyRaw{Id: "k"}))
	for key, want := range map[string]string{"binary.k": "", "anybinary.k": typeProto, "anyjson.k": typeJSON, "anyraw.k": typeRaw} {
		if got := lastOf(t, log, key).ContentType; got != want {
			t.Errorf("%s has content type %q, want %q", key, got, want)
		}
	}
}

// TestCodecMigration walks a table from binary values to JSON, in steps in which each node can read what every other
// one writes, and with values in the bucket that had no header.
func TestCodecMigration(t *testing.T) {
	log, ctx := kvtest.NewLog(kvtest.Options{Bucket: "shared"}), bounded(t)
	opts := func(step string) fold.Options { return fold.Options{Bucket: step} }
	as := fold.WithLogicalBucket
	writes := []func(id, text string) error{
		func(id, text string) error {
			_, err := cd.NewStepOneWriter(log, as("one")).Put(ctx, &codecv1.StepOne{Id: id, Text: text})
			return err
		},
		func(id, text string) error {
			_, err := cd.NewStepTwoWriter(log, as("two")).Put(ctx, &codecv1.StepTwo{Id: id, Text: text})
			return err
		},
		func(id, text string) error {
			_, err := cd.NewStepThreeWriter(log, as("three")).Put(ctx, &codecv1.StepThree{Id: id, Text: text})
			return err
		},
		func(id, text string) error {
			_, err := cd.NewStepFourWriter(log, as("four")).Put(ctx, &codecv1.StepFour{Id: id, Text: text})
			return err
		},
	}
	one := startCodec(t, log, cd.StepOneDesc, opts("one"))
	two := startCodec(t, log, cd.StepTwoDesc, opts("two"))
	three := startCodec(t, log, cd.StepThreeDesc, opts("three"))
	four := startCodec(t, log, cd.StepFourDesc, opts("four"))
	texts := []func() (map[string]string, int){
		func() (map[string]string, int) { return stepRows(t, one) },
		func() (map[string]string, int) { return stepRows(t, two) },
		func() (map[string]string, int) { return stepRows(t, three) },
		func() (map[string]string, int) { return stepRows(t, four) },
	}
	want := map[string]string{}
	write := func(step int, ids ...string) {
		t.Helper()
		for _, id := range ids {
			want[id] = fmt.Sprintf("%s by %d", id, step+1)
			if err := writes[step](id, want[id]); err != nil {
				t.Fatal(err)
			}
		}
	}
	reads := func(phase string, nodes ...int) {
		t.Helper()
		for _, n := range nodes {
			if got, rejected := texts[n](); !maps.Equal(got, want) || rejected != 0 {
				t.Errorf("%s: node of step %d has %v, %d rejected; want %v", phase, n+1, got, rejected, want)
			}
		}
	}
	write(0, "old", "a", "b", "c", "d")
	reads("before", 0, 1, 2)
	write(1, "a")
	write(0, "b")
	reads("some nodes read JSON too", 0, 1, 2)
	write(2, "b")
	write(1, "c")
	reads("some nodes write JSON", 1, 2)
	if _, rejected := texts[0](); rejected == 0 {
		t.Error("a node of the first step reads JSON: the test shows nothing")
	}
	write(2, "a", "b", "c", "d")
	reads("all nodes write JSON, and one value is as old as the table", 1, 2)
	if got, rejected := texts[3](); rejected != 1 || got["old"] != "" {
		t.Errorf("a node of the last step reads what was never written again: %v, %d rejected", got, rejected)
	}
	write(2, "old") // every value is written again before the old codec goes
	reads("every value is JSON", 1, 2, 3)
	write(3, "a")
	write(2, "d")
	reads("some nodes read JSON only", 1, 2, 3)
	for id := range want {
		if e := lastOf(t, log, "step."+id); e.ContentType != typeJSON {
			t.Errorf("%s is %q as %q", id, e.Value, e.ContentType)
		}
	}
}

// stepRows are a node's rows by id, and how many of the bucket's keys it refuses.
func stepRows[K fold.Key, V interface {
	proto.Message
	GetId() string
	GetText() string
}](t *testing.T, f codecFold[K, V]) (map[string]string, int) {
	t.Helper()
	f.upToDate(t)
	out := map[string]string{}
	for _, row := range collect(t, f.List(bounded(t), fold.NewPrefix[K]([]byte("step."), nil))) {
		if row.Stale == nil {
			out[row.Value.GetId()] = row.Value.GetText()
		}
	}
	return out, len(collect(t, f.Rejected(bounded(t))))
}

func fiftyBytes() []byte { return []byte(strings.Repeat("x", 50)) }

// TestRawReadAllocations: a RAW read costs its message, the fields that are set, and the text of its header.
func TestRawReadAllocations(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		log, ctx := newLog(), context.Background()
		s := openStore(t, b, t.TempDir())
		f := startCodecOn(t, log, s, cd.RawBytesDesc, fold.Options{})
		k := cd.RawBytesKey{ID: "a", Part: 1}
		must[cd.RawBytesRev](t)(cd.NewRawBytesWriter(log).Put(ctx, &codecv1.RawBytes{Id: "a", Part: 1, Data: fiftyBytes()}))
		f.upToDate(t)
		key := store.AppendKey(nil, store.SpaceData, k.String())
		var v store.Value
		own := allocs(t, func() error {
			_, err := s.Get(key, &v)
			v.Release()
			return err
		})
		dst, data := &codecv1.RawBytes{}, fiftyBytes()
		payload := dst.ProtoReflect().Descriptor().Fields().ByName("data")
		set := allocs(t, func() error {
			proto.Reset(dst)
			dst.ProtoReflect().Set(payload, protoreflect.ValueOfBytes(append([]byte{}, data...)))
			return nil
		})
		fill := allocs(t, func() error { return fold.Fill(cd.RawBytesDesc, dst, k) })
		t.Logf("%v to set the bytes, %v to set the key fields", set, fill)
		for _, c := range []struct {
			name string
			most float64
			f    func() error
		}{
			{"Has", own + 1, func() error { return second(f.Has(ctx, k)) }},
			{"GetInto", own + 1 + set + fill, func() error { return second(f.GetInto(ctx, k, dst)) }},
			{"Get", own + 1 + set + fill + 1, func() error { _, _, err := f.Get(ctx, k); return err }},
		} {
			got := allocs(t, c.f)
			t.Logf("%s: %v allocations, of them %v are the store's own", c.name, got, min(own, got))
			if got > c.most+poolSlack {
				t.Errorf("%s allocates %v times, at most %v", c.name, got, c.most)
			}
		}
		if !slices.Equal(dst.Data, data) {
			t.Errorf("read %v", dst)
		}
	})
}
