package store_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
	"pgregory.net/rapid"
)

func drawKey(rt *rapid.T, name string) string {
	return rapid.StringMatching(`[-/_=a-zA-Z0-9]{1,4}(\.[-/_=a-zA-Z0-9]{1,3}){0,3}`).Draw(rt, name)
}

// TestKeyOrderIsTupleOrder: store keys compare as the lists of their tokens do.
func TestKeyOrderIsTupleOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b := drawKey(rt, "a"), drawKey(rt, "b")
		ka, kb := store.AppendKey(nil, store.SpaceData, a), store.AppendKey(nil, store.SpaceData, b)
		if got, want := bytes.Compare(ka, kb), slices.Compare(strings.Split(a, "."), strings.Split(b, ".")); got != want {
			rt.Fatalf("%q against %q: %d, want %d", a, b, got, want)
		}
		if back := store.NATSKey(ka); back != a {
			rt.Fatalf("%q came back as %q", a, back)
		}
	})
}

func TestAppendKeyAppends(t *testing.T) {
	dst := []byte("a.b")
	if got := store.AppendKey(dst, store.SpaceIndex, "c.d"); string(got) != "a.bic\x00d" {
		t.Errorf("got %q", got)
	}
}

func TestPrefixEnd(t *testing.T) {
	for _, c := range []struct{ prefix, want string }{
		{"a", "b"}, {"a\x00", "a\x01"}, {"a\xFF", "b"}, {"a\xFF\xFF", "b"}, {"\xFE\xFF", "\xFF"},
	} {
		prefix := []byte(c.prefix)
		if got := store.PrefixEnd(prefix); string(got) != c.want || string(prefix) != c.prefix {
			t.Errorf("end of %q is %q, want %q", c.prefix, got, c.want)
		}
	}
	for _, p := range []string{"", "\xFF", "\xFF\xFF"} {
		if got := store.PrefixEnd([]byte(p)); got != nil {
			t.Errorf("end of %q is %q, want nil", p, got)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		bytesOf := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 'a', 0xFE, 0xFF}), 1, 5)
		p, k := bytesOf.Draw(rt, "prefix"), bytesOf.Draw(rt, "key")
		end := store.PrefixEnd(p)
		within := bytes.Compare(k, p) >= 0 && (end == nil || bytes.Compare(k, end) < 0)
		if within != bytes.HasPrefix(k, p) {
			rt.Fatalf("%q is within [%q, %q): %v", k, p, end, within)
		}
	})
}

func TestMetaKeysAreApart(t *testing.T) {
	for _, name := range []string{"", "cursor", "c"} {
		if bytes.Equal(store.MetaKey(name), store.CursorKey()) {
			t.Errorf("meta record %q is the cursor's key", name)
		}
		if store.MetaKey(name)[0] != byte(store.SpaceMeta) {
			t.Errorf("meta record %q is elsewhere", name)
		}
	}
}

func drawUpdate(rt *rapid.T) *kv.Update {
	v, err := kv.ParseVersion(rapid.SliceOfN(rapid.Byte(), 0, kv.MaxVersionLen).Draw(rt, "version"))
	if err != nil {
		rt.Fatal(err)
	}
	return &kv.Update{
		Key:         "k",
		Value:       rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(rt, "value"),
		ContentType: rapid.OneOf(rapid.Just(""), rapid.StringN(1, 200, -1)).Draw(rt, "content type"),
		UnixNano:    rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 1<<63-1)).Draw(rt, "time"),
		Version:     v,
		Op:          kv.OpPut,
		Rejected:    rapid.Bool().Draw(rt, "rejected"),
	}
}

func TestRecordRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		u := drawUpdate(rt)
		b := store.AppendRecord([]byte("before"), u)[len("before"):]
		if len(b) != store.RecordSize(u) {
			rt.Fatalf("wrote %d bytes, RecordSize says %d", len(b), store.RecordSize(u))
		}
		r, err := store.ParseRecord(b)
		if err != nil {
			rt.Fatal(err)
		}
		if !bytes.Equal(r.Value, u.Value) || r.ContentType != u.ContentType || r.UnixNano != u.UnixNano || r.Version != u.Version || r.Rejected != u.Rejected {
			rt.Fatalf("%+v came back as %+v", u, r)
		}
		if len(r.Value) > 0 && &r.Value[len(r.Value)-1] != &b[len(b)-1] {
			rt.Fatal("the value is a copy")
		}
	})
}

// TestRecordBytes holds the encoding: these bytes are on people's disks.
func TestRecordBytes(t *testing.T) {
	stamp, err := kv.ParseVersion([]byte("0123456789"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		u    kv.Update
		want string
	}{
		{"the seed's form", kv.Update{Value: []byte("v"), Version: kv.Revision(258)}, "\x08\x00\x00\x00\x00\x00\x00\x01\x02v"},
		{"versionstamp", kv.Update{Value: []byte("v"), Version: stamp}, "\x0a0123456789v"},
		{"nothing", kv.Update{}, "\x00"},
		{"time", kv.Update{UnixNano: 300}, "\x20\xac\x02"},
		{"content type", kv.Update{ContentType: "a/b", Value: []byte("v")}, "\x40\x03a/bv"},
		{"all", kv.Update{Version: kv.Revision(1), Rejected: true, UnixNano: 1, ContentType: "t", Value: []byte("v")}, "\x78\x00\x00\x00\x00\x00\x00\x00\x01\x01\x01tv"},
		{"a time before 1970 is not kept", kv.Update{UnixNano: -1}, "\x00"},
	} {
		if got := store.AppendRecord(nil, &c.u); string(got) != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestRecordRefuses(t *testing.T) {
	for name, b := range map[string]string{
		"empty":                           "",
		"reserved bit":                    "\x80",
		"version of 11 bytes":             "\x0b0123456789a",
		"version cut off":                 "\x08\x00\x00",
		"time missing":                    "\x20",
		"time cut off":                    "\x20\x80",
		"time zero":                       "\x20\x00",
		"time past int64":                 "\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"time that overflows":             "\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
		"content type missing":            "\x40",
		"content type empty":              "\x40\x00",
		"content type longer than record": "\x40\x05abcd",
		"content type length overflows":   "\x40\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01abcd",
	} {
		if r, err := store.ParseRecord([]byte(b)); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// FuzzParseRecord: any bytes give a record or ErrCorrupt, and what is read is written again with the same meaning.
func FuzzParseRecord(f *testing.F) {
	for _, s := range []string{"", "\x08\x00\x00\x00\x00\x00\x00\x01\x02v", "\x78\x00\x00\x00\x00\x00\x00\x00\x01\x01\x01tv", "\x20\xac\x02", "\x40\x03a/b"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := store.ParseRecord(b)
		if err != nil {
			if !errors.Is(err, store.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		u := kv.Update{Value: r.Value, ContentType: r.ContentType, Version: r.Version, UnixNano: r.UnixNano, Rejected: r.Rejected}
		again, err := store.ParseRecord(store.AppendRecord(nil, &u))
		if err != nil || !bytes.Equal(again.Value, r.Value) || again.ContentType != r.ContentType || again.Version != r.Version || again.UnixNano != r.UnixNano || again.Rejected != r.Rejected {
			t.Fatalf("%+v came back as %+v, %v", r, again, err)
		}
	})
}

type countCloser int

func (c *countCloser) Close() error { *c++; return nil }

func TestValueReleasesOnce(t *testing.T) {
	var v store.Value
	v.Release()
	var closed countCloser
	v.Hold([]byte("x"), &closed)
	v.Release()
	v.Release()
	if closed != 1 || v.Bytes != nil {
		t.Errorf("closed %d times, bytes %q", closed, v.Bytes)
	}
	v.Hold([]byte("y"), nil)
	if string(v.Bytes) != "y" {
		t.Errorf("bytes %q", v.Bytes)
	}
	v.Release()
}

// TestRecordDoesNotAllocate: it is written into the batch, once for each update.
func TestRecordDoesNotAllocate(t *testing.T) {
	u := &kv.Update{Key: "a.b", Value: make([]byte, 100), Version: kv.Revision(7), UnixNano: 1_700_000_000_000_000_000, Op: kv.OpPut}
	buf := make([]byte, 0, 256)
	if n := testing.AllocsPerRun(100, func() { buf = store.AppendRecord(buf[:0], u) }); n != 0 {
		t.Errorf("AppendRecord allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() { buf = store.AppendKey(buf[:0], store.SpaceData, u.Key) }); n != 0 {
		t.Errorf("AppendKey allocates %v times", n)
	}
	b := store.AppendRecord(nil, u)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := store.ParseRecord(b); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("ParseRecord allocates %v times", n)
	}
}
