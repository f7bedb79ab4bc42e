package fold_test

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	judgev1 "github.com/typedfold/fold/internal/foldtest/gen/judge/v1"
	jd "github.com/typedfold/fold/internal/foldtest/gen/judge/v1/judgev1fold"
	fold "github.com/typedfold/fold/runtime"
)

func leaseKey(region string) jd.LeasesKey {
	return jd.LeasesKey{Region: region, Tenant: "t", Since: fold.TimeOf(time.Unix(9, 5)), N: 3}
}

func lease(note string) *judgev1.Leases {
	return &judgev1.Leases{Tenant: proto.String("t"), N: 3, Note: note}
}

// A row that has some of its key in the key only goes through its writer, the bucket and a fold.
func TestKeyedWriter(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		ctx, log := bounded(t), newLog()
		w := jd.NewLeasesWriter(log)
		k := leaseKey("eu.1")
		rev, err := w.CreateAt(ctx, k, lease("a"))
		if err != nil || rev.Key() != k {
			t.Fatalf("%v, %v", rev, err)
		}
		var exists *fold.ExistsError
		if _, err := w.CreateAt(ctx, k, lease("b")); !errors.As(err, &exists) {
			t.Errorf("created twice: %v", err)
		}
		if rev, err = w.UpdateAt(ctx, k, lease("c"), rev); err != nil {
			t.Fatal(err)
		}
		var conflict *fold.ConflictError
		if _, err := w.UpdateAt(ctx, k, lease("d"), fold.NewRev(k, 1)); !errors.As(err, &conflict) {
			t.Errorf("an old revision: %v", err)
		}
		var other *fold.RevError[jd.LeasesKey]
		if _, err := w.UpdateAt(ctx, leaseKey("us"), lease("e"), rev); !errors.As(err, &other) {
			t.Errorf("a revision of another key: %v", err)
		}
		if _, err := w.PutAt(ctx, leaseKey("us"), lease("f")); err != nil {
			t.Fatal(err)
		}
		if err := w.Delete(ctx, leaseKey("us")); err != nil {
			t.Fatal(err)
		}
		_, err = w.Mutate(ctx, leaseKey("zz"), func(m *judgev1.Leases, exists bool) (*judgev1.Leases, error) {
			if exists {
				t.Error("a row that nobody wrote exists")
			}
			return lease("g"), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		rev, err = w.Mutate(ctx, leaseKey("zz"), func(m *judgev1.Leases, exists bool) (*judgev1.Leases, error) {
			m.Note += "h"
			return m, nil
		})
		if err != nil {
			t.Fatal(err)
		}

		builder := fold.NewBuilder(log, openStore(t, b, t.TempDir()), fold.Options{Logger: quiet})
		leases, err := jd.RegisterLeases(builder)
		if err != nil {
			t.Fatal(err)
		}
		f, err := builder.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.WaitApplied(ctx, rev); err != nil {
			t.Fatal(err)
		}
		var got []string
		for row, err := range leases.Range(ctx, fold.Incl(leaseKey("eu.1")), fold.Unbounded[jd.LeasesKey]()) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, row.Key.Region+" "+row.Value.GetNote())
		}
		if len(got) != 2 || got[0] != "eu.1 c" || got[1] != "zz gh" {
			t.Errorf("rows %q", got)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// What the value says of the key has to agree with the key that is given.
func TestKeyedWriterRefuses(t *testing.T) {
	ctx, log := bounded(t), newLog()
	w := jd.NewLeasesWriter(log)
	k := leaseKey("eu")
	for _, c := range []struct {
		name  string
		k     jd.LeasesKey
		v     *judgev1.Leases
		code  fold.RejectCode
		field string
	}{
		{"another tenant", k, &judgev1.Leases{Tenant: proto.String("u"), N: 3}, fold.KeyValueMismatch, "tenant"},
		{"another number", k, &judgev1.Leases{Tenant: proto.String("t"), N: 4}, fold.KeyValueMismatch, "n"},
		{"no tenant", k, &judgev1.Leases{N: 3}, fold.KeyFieldUnset, "tenant"},
		{"no message", k, nil, fold.ValueDecode, ""},
		{"no such instant", jd.LeasesKey{Tenant: "t", Since: fold.Time{Nanos: -1}, N: 3}, lease("a"), fold.KeySegment, "since"},
	} {
		_, err := w.PutAt(ctx, c.k, c.v)
		var rej *fold.Rejection
		if !errors.As(err, &rej) || rej.Code != c.code || rej.Field != c.field {
			t.Errorf("%s: %v, want %v of %q", c.name, err, c.code, c.field)
		}
	}
	if _, err := w.Mutate(ctx, k, func(*judgev1.Leases, bool) (*judgev1.Leases, error) {
		return &judgev1.Leases{Tenant: proto.String("u")}, nil
	}); err == nil {
		t.Error("Mutate wrote another key's value")
	}
	if _, err := fold.NewWriter(log, jd.LeasesDesc).Put(ctx, lease("a")); err == nil {
		t.Error("a Writer wrote a value that does not say its key")
	}
	if info, err := log.Info(ctx); err != nil || info.Last != 0 {
		t.Errorf("something was sent: %v, %v", info.Last, err)
	}
}

// A table bound by FILL clears what the key says, and a fold gives it back.
func TestKeyedWriterFills(t *testing.T) {
	ctx, log := bounded(t), newLog()
	k := jd.FilledLeasesKey{Region: "\xFF", Tenant: "t"}
	v := &judgev1.FilledLeases{Tenant: "t", Note: "n"}
	if _, err := jd.NewFilledLeasesWriter(log).PutAt(ctx, k, v); err != nil {
		t.Fatal(err)
	}
	e := entry(t, log, "filledleases.FF.t")
	var sent judgev1.FilledLeases
	if err := proto.Unmarshal(e.Value, &sent); err != nil || sent.GetTenant() != "" || sent.GetNote() != "n" {
		t.Errorf("sent %v, %v", &sent, err)
	}
	ev, rej := jd.ParseFilledLeases(e.Update)
	if rej != nil || ev.Key != k || !proto.Equal(ev.New, v) {
		t.Errorf("%v, %v", ev, rej)
	}
	if v.GetTenant() != "t" {
		t.Error("the caller's message was changed")
	}
}

// The text of a key takes one allocation: itself.
func TestKeyTextAllocations(t *testing.T) {
	k := leaseKey("region.of.a.long.name")
	var text string
	if got := testing.AllocsPerRun(200, func() { text = k.String() }); got > 1+poolSlack || text == "" {
		t.Errorf("%v allocations for %q", got, text)
	}
}
