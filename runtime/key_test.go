package fold

import (
	"errors"
	"math"
	"strings"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/typedfold/fold/runtime/keyenc"
)

// hopKey is what is generated for "hop.{tenant}.{zone}.{weight}.{state}.x.{up}.{id}.{mask}.{path...}".
type hopKey struct {
	Tenant, Zone string
	Weight       int64
	State        hopState
	Up           bool
	ID           string
	Mask         uint32
	Path         string
}

type hopState int32

func (k hopKey) AppendKey(dst []byte) ([]byte, error) {
	var err error
	dst = append(dst, "hop."...)
	dst = AppendESC(dst, k.Tenant)
	dst = append(dst, '.')
	if dst, err = AppendVerbatim(dst, "zone", k.Zone); err != nil {
		return dst, err
	}
	dst = append(dst, '.')
	dst = AppendInt(dst, k.Weight)
	dst = append(dst, '.')
	dst = AppendInt(dst, k.State)
	dst = append(dst, ".x."...)
	dst = AppendBool(dst, k.Up)
	dst = append(dst, '.')
	dst = AppendHex(dst, k.ID)
	dst = append(dst, '.')
	dst = AppendHexInt(dst, k.Mask)
	dst = append(dst, '.')
	dst = AppendTail(dst, k.Path)
	return dst, nil
}

func (k hopKey) String() string { return KeyString(k) }

func parseHopKey(key string) (hopKey, error) {
	r := ReadKey(key)
	r.Lit("hop")
	var k hopKey
	k.Tenant = r.ESC("tenant")
	k.Zone = r.Verbatim("zone")
	k.Weight = ReadInt[int64](&r, "weight")
	k.State = ReadInt[hopState](&r, "state")
	r.Lit("x")
	k.Up = r.Bool("up")
	k.ID = r.Hex("id")
	k.Mask = ReadHexInt[uint32](&r, "mask")
	k.Path = r.Tail("path")
	if err := r.End(); err != nil {
		return hopKey{}, err
	}
	return k, nil
}

// routeKey has strings only, as most keys do.
type routeKey struct{ Tenant, Domain string }

func parseRouteKey(key string) (routeKey, error) {
	r := ReadKey(key)
	r.Lit("route")
	k := routeKey{Tenant: r.ESC("tenant"), Domain: r.ESC("domain")}
	if err := r.End(); err != nil {
		return routeKey{}, err
	}
	return k, nil
}

func (k routeKey) AppendKey(dst []byte) ([]byte, error) {
	dst = append(dst, "route."...)
	dst = AppendESC(dst, k.Tenant)
	dst = append(dst, '.')
	dst = AppendESC(dst, k.Domain)
	return dst, nil
}

const hopText = "hop.t1.eu-west-1.ny57.pa2.x.1.00FF.0000BEEF.a.b/2Ec"

func TestKeyWrittenAndRead(t *testing.T) {
	k := hopKey{"t1", "eu-west-1", -42, 2, true, "\x00\xff", 0xBEEF, "a/b.c"}
	if got := k.String(); got != hopText {
		t.Errorf("String: %q, want %q", got, hopText)
	}
	if got, err := parseHopKey(hopText); err != nil || got != k {
		t.Errorf("parse: %+v, %v", got, err)
	}
	k.Zone = "eu west"
	_, err := k.AppendKey(nil)
	var r *Rejection
	if !errors.As(err, &r) || r.Code != KeySegment || r.Field != "zone" || !errors.Is(err, keyenc.ErrForm) {
		t.Errorf("AppendKey: %v", err)
	}
	if got := k.String(); got != "!("+err.Error()+")" {
		t.Errorf("String: %q", got)
	}
}

func TestKeyRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := hopKey{
			Tenant: rapid.String().Draw(t, "tenant"),
			Zone:   rapid.StringMatching(`[-/_=a-zA-Z0-9]{1,8}`).Draw(t, "zone"),
			Weight: rapid.Int64().Draw(t, "weight"),
			State:  hopState(rapid.Int32().Draw(t, "state")),
			Up:     rapid.Bool().Draw(t, "up"),
			ID:     string(rapid.SliceOf(rapid.Byte()).Draw(t, "id")),
			Mask:   rapid.Uint32().Draw(t, "mask"),
			Path:   rapid.StringMatching(`[a-c./_]{0,8}`).Draw(t, "path"),
		}
		if got, err := parseHopKey(k.String()); err != nil || got != k {
			t.Fatalf("%q: %+v, %v, want %+v", k, got, err, k)
		}
	})
}

func TestKeyRefused(t *testing.T) {
	for _, c := range []struct {
		key   string
		code  RejectCode
		field string
	}{
		{"", KeyNoPattern, ""},
		{"hop", KeyNoPattern, ""},
		{"hops" + hopText[3:], KeyNoPattern, ""},
		{"hop.t1.eu-west-1.ny57.pa2.x.1.00FF.0000BEEF", KeyNoPattern, ""},
		{"hop.t1.eu-west-1.ny57.pa2.y.1.00FF.0000BEEF.a", KeyNoPattern, ""},
		// A key of another shape is no malformed key of this one, whatever is wrong in it before.
		{"hop.t-1.eu-west-1.ny57.pa2.y.1.00FF.0000BEEF.a", KeyNoPattern, ""},
		{"hop.t-1.eu", KeyNoPattern, ""},
		{"hop.t-1.eu-west-1.ny57.pa2.x.1.00FF.0000BEEF.a", KeySegment, "tenant"},
		{"hop.t1./41.ny57.pa2.x.1.00FF.0000BEEF.a", 0, ""},
		{"hop./41.e.ny57.pa2.x.1.00FF.0000BEEF.a", KeyNotCanonical, "tenant"},
		{"hop.t1.é.ny57.pa2.x.1.00FF.0000BEEF.a", KeySegment, "zone"},
		{"hop.t1.e.42.pa2.x.1.00FF.0000BEEF.a", KeySegment, "weight"},
		{"hop.t1.e.pb07.pa2.x.1.00FF.0000BEEF.a", KeyNotCanonical, "weight"},
		{"hop.t1.e.pa7.pj2147483648.x.1.00FF.0000BEEF.a", KeySegment, "state"},
		{"hop.t1.e.pa7.pa2.x.2.00FF.0000BEEF.a", KeySegment, "up"},
		{"hop.t1.e.pa7.pa2.x.1.00ff.0000BEEF.a", KeyNotCanonical, "id"},
		{"hop.t1.e.pa7.pa2.x.1.00FF.BEEF.a", KeySegment, "mask"},
		{"hop.t1.e.pa7.pa2.x.1.00FF.0000beef.a", KeyNotCanonical, "mask"},
		{"hop.t1.e.pa7.pa2.x.1.00FF.0000BEEF.a/2Fb", KeyNotCanonical, "path"},
		{"hop.t1.e.pa7.pa2.x.1.00FF.0000BEEF.a..b", KeySegment, "path"},
		{"hop.t1.e.pa7.pa2.x.1.00FF.0000BEEF.", KeySegment, "path"},
		{"hop..e.pa7.pa2.x.1.00FF.0000BEEF.a", KeySegment, "tenant"},
		// The first of several is named.
		{"hop./41.e.42.pa2.x.2.00FF.0000BEEF.a", KeyNotCanonical, "tenant"},
	} {
		k, err := parseHopKey(c.key)
		if c.code == 0 {
			if err != nil {
				t.Errorf("%q: %v", c.key, err)
			}
			continue
		}
		var r *Rejection
		if !errors.As(err, &r) || r.Code != c.code || r.Field != c.field || r.Key != c.key || r.Err == nil {
			t.Errorf("%q: %v, want %v of field %q", c.key, err, c.code, c.field)
		}
		if k != (hopKey{}) {
			t.Errorf("%q: key %+v beside the error", c.key, k)
		}
	}
	for _, key := range []string{"route.t1.d.x", "route.t1.d.", "route.t1.d.x.y", "route.t-1.d.x", "route", "route.t1"} {
		var r *Rejection
		if _, err := parseRouteKey(key); !errors.As(err, &r) || r.Code != KeyNoPattern {
			t.Errorf("%q: %v", key, err)
		}
	}
}

// A singleton's key has literals only.
func TestSingletonKey(t *testing.T) {
	read := func(key string) error {
		r := ReadKey(key)
		r.Lit("config")
		return r.End()
	}
	if err := read("config"); err != nil {
		t.Error(err)
	}
	for _, key := range []string{"", "config.", "configs", "config.a"} {
		if err := read(key); err == nil {
			t.Errorf("%q was read", key)
		}
	}
}

func TestKeyAllocations(t *testing.T) {
	allocs := func(name string, want float64, f func()) {
		t.Helper()
		if got := testing.AllocsPerRun(200, f); got != want {
			t.Errorf("%s: %v allocations, want %v", name, got, want)
		}
	}
	buf := make([]byte, 0, 128)
	k := hopKey{"t1", "eu-west-1", -42, 2, true, "\x00\xff", 0xBEEF, "a/b.c"}
	var hop hopKey
	var route routeKey
	allocs("append", 0, func() { buf, _ = k.AppendKey(buf[:0]) })
	allocs("parse plain", 0, func() { route, _ = parseRouteKey("route.t1.example") })
	allocs("parse one escaped", 1, func() { route, _ = parseRouteKey("route.t1.example/2Ecom") })
	allocs("parse bytes and a tail", 2, func() { hop, _ = parseHopKey(hopText) })
	if hop != k || route.Domain != "example.com" {
		t.Errorf("%+v, %+v", hop, route)
	}

	key := "route.tenant.example"
	route, err := parseRouteKey(key)
	if err != nil || unsafe.StringData(route.Tenant) != unsafe.StringData(key[len("route."):]) {
		t.Errorf("the tenant does not alias the key: %v", err)
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add(hopText)
	f.Add("hop.-.z.pa0.na9.x.0.-.00000000.-.-")
	f.Fuzz(func(t *testing.T, key string) {
		k, err := parseHopKey(key)
		if err != nil {
			var r *Rejection
			if !errors.As(err, &r) || r.Key != key {
				t.Fatalf("%q: %v", key, err)
			}
			return
		}
		if got := k.String(); got != key {
			t.Fatalf("%q is read, and written as %q", key, got)
		}
	})
}

func BenchmarkKey(b *testing.B) {
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		k := routeKey{"tenant01", "api.example.com"}
		buf := make([]byte, 0, 128)
		for b.Loop() {
			buf, _ = k.AppendKey(buf[:0])
		}
	})
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := parseRouteKey("route.tenant01.api/2Eexample/2Ecom"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parse plain", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := parseRouteKey("route.tenant01.example"); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func TestKeyLimitsOfIntegers(t *testing.T) {
	for _, v := range []int64{math.MinInt64, math.MaxInt64, 0} {
		r := ReadKey("k." + string(AppendInt(nil, v)))
		r.Lit("k")
		if got := ReadInt[int64](&r, "v"); got != v || r.End() != nil {
			t.Errorf("%d: %d, %v", v, got, r.End())
		}
	}
	if s := strings.Repeat("a", 5000); string(AppendESC(nil, s)) != s {
		t.Error("a long string is not written as it is")
	}
}
