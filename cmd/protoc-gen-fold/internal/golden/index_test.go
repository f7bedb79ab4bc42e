package golden

import (
	"context"
	"errors"
	"iter"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	indexv1 "github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/index/gen/index/v1"
	"github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/index/gen/index/v1/indexv1fold"
	tintv1 "github.com/typedfold/fold/cmd/protoc-gen-fold/internal/testdata/index/gen/tint/v1"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/store/logstore"
)

// TestIndexMethods folds two rows, and reads them by each generated method.
func TestIndexMethods(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	bucket := kvtest.NewLog(kvtest.Options{Bucket: "index", History: 1})
	s, err := logstore.Open(filepath.Join(t.TempDir(), "log"), logstore.Options{Durability: logstore.None})
	if err != nil {
		t.Fatal(err)
	}
	b := fold.NewBuilder(bucket, s, fold.Options{})
	items, err := indexv1fold.RegisterItem(b)
	if err != nil {
		t.Fatal(err)
	}
	unordered, err := indexv1fold.RegisterUnordered(b)
	if err != nil {
		t.Fatal(err)
	}
	f, err := b.Start(ctx)
	if err != nil {
		t.Fatal(errors.Join(err, s.Close()))
	}
	defer func() { _ = f.Close() }()

	seen, left := time.Unix(-5, 7).UTC(), -1500*time.Millisecond
	one := &indexv1.Item{
		Tenant: "t", Domain: "one.example", NodeId: "n.1", Cert: []byte{0, 255}, Seen: timestamppb.New(seen), Left: durationpb.New(left),
		Tint: tintv1.Tint_TINT_RED, On: true, I32: -1, I64: -42, U32: 7, U64: 1 << 63, Tags: []string{"a", "b", "a"},
		Spec: &indexv1.Item_Spec{Id: "x", Raw: []byte("r.")}, SpecId: "y", Rank: -1,
	}
	two := proto.CloneOf(one)
	two.Domain, two.Cert, two.Tags, two.Spec = "two.example", nil, []string{"b"}, nil
	w := indexv1fold.NewItemWriter(bucket)
	if _, err := w.Put(ctx, one); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Put(ctx, two); err != nil {
		t.Fatal(err)
	}
	key := indexv1fold.UnorderedKey{Shard: 3, ID: -4}
	rev, err := indexv1fold.NewUnorderedWriter(bucket).PutAt(ctx, key, &indexv1.Unordered{Id: -4, Owner: proto.String("me")})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.WaitApplied(ctx, rev); err != nil {
		t.Fatal(err)
	}

	type rows = iter.Seq2[indexv1fold.ItemRow, error]
	at, span := fold.TimeOf(seen), fold.SpanOf(left)
	for name, c := range map[string]struct {
		list  rows
		count func() (uint64, error)
		want  []string
	}{
		"by node":      {items.ListByNode(ctx, "n.1"), func() (uint64, error) { return items.CountByNode(ctx, "n.1") }, []string{"one.example", "two.example"}},
		"by no node":   {items.ListByNode(ctx, "n"), func() (uint64, error) { return items.CountByNode(ctx, "n") }, nil},
		"by times":     {items.ListByTimes(ctx, at, "n.1", span, fold.Reverse()), func() (uint64, error) { return items.CountByTimes(ctx, at, "n.1", span) }, []string{"two.example", "one.example"}},
		"by tint":      {items.ListByTint(ctx, tintv1.Tint_TINT_RED, true, fold.Limit(1)), func() (uint64, error) { return 1, nil }, []string{"one.example"}},
		"by numbers":   {items.ListByNumbers(ctx, -1, -42, 7, 1<<63), func() (uint64, error) { return items.CountByNumbers(ctx, -1, -42, 7, 1<<63) }, []string{"one.example", "two.example"}},
		"by tag":       {items.ListByTag(ctx, "a"), func() (uint64, error) { return items.CountByTag(ctx, "a") }, []string{"one.example"}},
		"by same":      {items.ListBySame(ctx, "x", "y"), func() (uint64, error) { return items.CountBySame(ctx, "x", "y") }, []string{"one.example"}},
		"by same, not": {items.ListBySame(ctx, "y", "x"), func() (uint64, error) { return items.CountBySame(ctx, "y", "x") }, nil},
		"by all": {
			items.ListByAll(ctx, "n.1", []byte{0, 255}, at, span, tintv1.Tint_TINT_RED, true, -1, "b"),
			func() (uint64, error) {
				return items.CountByAll(ctx, "n.1", []byte{0, 255}, at, span, tintv1.Tint_TINT_RED, true, -1, "b")
			},
			[]string{"one.example"},
		},
		"by rank": {items.ListByRank(ctx, -1), func() (uint64, error) { return items.CountByRank(ctx, -1) }, []string{"one.example", "two.example"}},
	} {
		var got []string
		for row, err := range c.list {
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			got = append(got, row.Key.Domain)
		}
		n, err := c.count()
		if !slices.Equal(got, c.want) || err != nil || n != uint64(len(c.want)) {
			t.Errorf("%s: %q, %d, %v, want %q", name, got, n, err, c.want)
		}
	}
	if row, ok, err := items.GetByCert(ctx, []byte{0, 255}); err != nil || !ok || !proto.Equal(row.Value, one) {
		t.Errorf("by cert: %v %v %v", row.Value, ok, err)
	}
	if row, ok, err := items.GetByCert(ctx, nil); err != nil || !ok || row.Key.Domain != "two.example" {
		t.Errorf("by no cert: %v %v %v", row.Value, ok, err) // a field without presence has its zero value
	}
	if row, ok, err := items.GetByRaw(ctx, []byte("r.")); err != nil || !ok || row.Key.Domain != "one.example" {
		t.Errorf("by raw: %v %v %v", row.Value, ok, err)
	}
	if row, ok, err := unordered.GetByOwnerAndID(ctx, "me", -4); err != nil || !ok || row.Key != key {
		t.Errorf("by owner and id: %v %v %v", row, ok, err)
	}
	if n, err := unordered.CountByOwner(ctx, "me"); err != nil || n != 1 {
		t.Errorf("by owner: %d %v", n, err)
	}
	for _, err := range items.ListByTimes(ctx, fold.Time{Nanos: -1}, "", span) {
		if !errors.As(err, new(*fold.Rejection)) {
			t.Errorf("by no time: %v", err)
		}
	}
	if report, err := f.VerifyIndexes(ctx); err != nil || report.Err() != nil || report.Rows != 3 {
		t.Errorf("%+v %v", report, err)
	}
}
