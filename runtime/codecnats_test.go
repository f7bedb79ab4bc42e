package fold_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	codecv1 "github.com/typedfold/fold/internal/foldtest/gen/codec/v1"
	cd "github.com/typedfold/fold/internal/foldtest/gen/codec/v1/codecv1fold"
	"github.com/typedfold/fold/internal/natstest"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
)

// TestHeadersThroughServer: a real server keeps the header that chooses the codec, for a watch, a re-list and a read.
func TestHeadersThroughServer(t *testing.T) {
	srv := natstest.New(t)
	bucket := openBucket(t, connect(t, srv.URL(), natskv.ConnectOptions{}), natskv.BucketConfig{})
	ctx := bounded(t)
	live := startCodec(t, bucket, cd.AnyRawDesc, fold.Options{}) // gets each as it comes
	json := cd.NewAnyJsonWriter(bucket)
	m := &codecv1.AnyJson{Id: "x", Rich: &codecv1.Rich{Text: "é"}}
	rev := must[cd.AnyJsonRev](t)(json.Create(ctx, m))
	must[cd.AnyJsonRev](t)(json.Update(ctx, m, rev))
	rev = must[cd.AnyJsonRev](t)(json.Mutate(ctx, cd.AnyJsonKey{ID: "x"}, func(v *codecv1.AnyJson, ok bool) (*codecv1.AnyJson, error) {
		if !ok || !proto.Equal(v, m) {
			t.Errorf("mutate gets %v %v", v, ok)
		}
		return v, nil
	}))
	wantMessage(t, bucket, "anyjson.x", `{"id":"x","rich":{"text":"é"}}`, typeJSON)
	for key, v := range map[string]struct{ value, header, text string }{
		"plain":  {`{"text":"t"}`, "", `{"text":"t"}`},
		"json":   {`{"text":"t"}`, "Application/Json; charset=UTF-8", "t"},
		"binary": {"\x12\x01t", "application/x-protobuf", "t"},
	} {
		putTyped(t, bucket, "anyraw."+key, v.value, v.header)
		wantMessage(t, bucket, "anyraw."+key, v.value, v.header)
		live.want(t, cd.AnyRawKey{ID: key}, &codecv1.AnyRaw{Id: key, Text: v.text})
	}
	must[cd.AnyRawRev](t)(cd.NewAnyRawWriter(bucket).Put(ctx, &codecv1.AnyRaw{Id: "own", Text: `{"text":"t"}`}))
	late := startCodec(t, bucket, cd.AnyRawDesc, fold.Options{}) // lists what is there
	for _, f := range []codecFold[cd.AnyRawKey, *codecv1.AnyRaw]{live, late} {
		f.want(t, cd.AnyRawKey{ID: "own"}, &codecv1.AnyRaw{Id: "own", Text: `{"text":"t"}`})
		f.want(t, cd.AnyRawKey{ID: "json"}, &codecv1.AnyRaw{Id: "json", Text: "t"})
	}
	lateJSON := startCodec(t, bucket, cd.AnyJsonDesc, fold.Options{})
	lateJSON.want(t, cd.AnyJsonKey{ID: "x"}, m)
	if row, _ := get(t, lateJSON.Table, cd.AnyJsonKey{ID: "x"}); row.Rev != rev {
		t.Errorf("revision %v, want %v", row.Rev, rev)
	}
	types := map[string]string{}
	for e, err := range bucket.Scan(ctx, kv.Scope{}) {
		if err != nil {
			t.Fatal(err)
		}
		types[e.Key] = e.ContentType
	}
	if types["anyraw.own"] != typeRaw || types["anyjson.x"] != typeJSON || types["anyraw.plain"] != "" {
		t.Errorf("content types of a scan: %v", types)
	}
}
