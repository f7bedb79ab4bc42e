package keyenc

import (
	"errors"
	"math"
	"strings"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

type (
	enum  int32
	small int8
	wide  uint64
)

func esc(s string) string                 { return string(AppendESC(nil, s)) }
func num[T Integer](v T) string           { return string(AppendInt(nil, v)) }
func hexNum[T FixedInteger](v T) string   { return string(AppendHexInt(nil, v)) }
func decimal[T Integer](v T) string       { return string(AppendDecimal(nil, v)) }
func tail(s string) string                { return string(AppendTail(nil, s)) }
func hexBytes(s string) string            { return string(AppendHex(nil, s)) }
func clock(sec int64, nanos int32) string { return string(must(AppendTime(nil, sec, nanos))) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestWrittenForms(t *testing.T) {
	for _, c := range []struct{ name, got, want string }{
		{"ESC dot", esc("a.b"), "a/2Eb"},
		{"ESC underscore and z", esc("my_zone"), "my__z-one"},
		{"ESC host name", esc("api.example-1.com"), "api/2Eexample/2D1/2Ecom"},
		{"ESC empty", esc(""), "-"},
		{"ESC edges", esc("\x00/0:@[\\]^_`yz{\xff"), "/00/2F0=3A=40_0_1_2_3___ayz-z7BzFF"},
		{"INT unsigned", num(uint(42)), "b42"},
		{"INT zero", num(uint8(0)), "a0"},
		{"INT signed", num(7), "pa7"},
		{"INT negative", num(-42), "ny57"},
		{"INT greatest", num(uint64(math.MaxUint64)), "t18446744073709551615"},
		{"INT int64 greatest", num(int64(math.MaxInt64)), "ps9223372036854775807"},
		{"INT int64 least", num(int64(math.MinInt64)), "nh0776627963145224191"},
		{"INT enum", num(enum(3)), "pa3"},
		{"DECIMAL", decimal(42), "42"},
		{"DECIMAL negative", decimal(int8(-128)), "-128"},
		{"HEX", hexBytes("\x00\xff"), "00FF"},
		{"HEX empty", hexBytes(""), "-"},
		{"HEX uint32", hexNum(uint32(0xBEEF)), "0000BEEF"},
		{"HEX uint64", hexNum(uint64(0xBEEF)), "000000000000BEEF"},
		{"HEX int32", hexNum(int32(0)), "80000000"},
		{"HEX int32 least", hexNum(int32(math.MinInt32)), "00000000"},
		{"HEX int8", hexNum(int8(-1)), "7FFFFFFF"},
		{"HEX int64", hexNum(int64(-1)), "7FFFFFFFFFFFFFFF"},
		{"BOOL", string(AppendBool(AppendBool(nil, true), false)), "10"},
		{"UUID", string(AppendUUID(nil, [16]byte{0x01, 0x23, 15: 0xEF})), "01230000-0000-0000-0000-0000000000ef"},
		{"TIME", clock(-2, 500_000_000), "nz7500000000"},
		{"TIME of today", clock(1796040000, 500_000_000), "pj1796040000500000000"},
		{"TIME half a second back", clock(-1, 500_000_000), "nz8500000000"},
		{"tail", tail("a/b"), "a.b"},
		{"tail with empty parts", tail("/a//"), "-.a.-.-"},
		{"tail empty", tail(""), "-"},
		{"tail escaped", tail("a.b/c"), "a/2Eb.c"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", c.name, c.got, c.want)
		}
	}
}

func parseErr[T any](_ T, err error) error { return err }

func TestRefusals(t *testing.T) {
	esc := func(s string) error { return parseErr(ParseESC(s)) }
	i32 := func(s string) error { return parseErr(ParseInt[int32](s)) }
	u8 := func(s string) error { return parseErr(ParseInt[uint8](s)) }
	u64 := func(s string) error { return parseErr(ParseInt[uint64](s)) }
	i64 := func(s string) error { return parseErr(ParseInt[int64](s)) }
	dec := func(s string) error { return parseErr(ParseDecimal[int8](s)) }
	udec := func(s string) error { return parseErr(ParseDecimal[uint64](s)) }
	hex := func(s string) error { return parseErr(ParseHex(s)) }
	hex8 := func(s string) error { return parseErr(ParseHexInt[uint8](s)) }
	hexI8 := func(s string) error { return parseErr(ParseHexInt[int8](s)) }
	uuid := func(s string) error { return parseErr(ParseUUID(s)) }
	tail := func(s string) error { return parseErr(ParseTail(s)) }
	verbatim := func(s string) error { return parseErr(ParseVerbatim(s)) }
	when := func(s string) error { _, _, err := ParseTime(s); return err }
	boolean := func(s string) error { return parseErr(ParseBool(s)) }

	for _, c := range []struct {
		name  string
		parse func(string) error
		form  []string
		canon []string
	}{
		{"ESC", esc,
			[]string{"", "a-b", "--", "a-", "/", "/4", "/4G", "_", "_4", "_A", "z", "z7", "za", "=", "a b", "a.b", "é", "-a"},
			[]string{"/41", "/2e", "=41", "/3A", "/FF", "z2E", "z7b", "z7A", "_2/5F", "=2F", "=30", "/5F", "=7B"}},
		{"VERBATIM", verbatim, []string{"", "a.b", "a b", "é", ":", "*", ">", "a\x00"}, nil},
		{"INT int32", i32,
			[]string{"", "p", "n", "b42", "pa", "pb4", "pa42", "pj2147483648", "nq7852516350", "pk10000000000", "paa", "na9", "p`1", "pt18446744073709551616", "ny5", "PA1"},
			[]string{"pb07", "nz9", "ny97", "pj0000000001"}},
		{"INT uint8", u8, []string{"c256", "pa1", "a", "aa", "b-1"}, []string{"b00", "c007"}},
		{"INT uint64", u64, []string{"t18446744073709551616", "t99999999999999999999", "u184467440737095516150"}, []string{"t08446744073709551615"}},
		{"INT int64", i64, []string{"ps9223372036854775808", "nh0776627963145224190", "pt10000000000000000000", "ng80000000000000000000"}, nil},
		{"DECIMAL int8", dec, []string{"", "-", "128", "-129", "+7", "1a", "--1", "99999999999999999999999"}, []string{"007", "-0", "-00", "-01", "00"}},
		{"DECIMAL uint64", udec, []string{"-1", "-0", "18446744073709551616"}, []string{"018446744073709551615"}},
		{"HEX", hex, []string{"", "0", "000", "0G", "-0", "--", "aG"}, []string{"0a", "aa", "Aa"}},
		{"HEX uint8", hex8, []string{"00", "00000100", "0000000000000000", "-", "0000000G"}, []string{"0000000a"}},
		{"HEX int8", hexI8, []string{"80000080", "7FFFFF7F", "00000000", "FFFFFFFF"}, []string{"7fffffff"}},
		{"BOOL", boolean, []string{"", "2", "00", "true"}, nil},
		{"UUID", uuid,
			[]string{"", "01230000000000000000000000000000", "01230000-0000-0000-0000-0000000000eg", "012300000-000-0000-0000-0000000000ef"},
			[]string{"01230000-0000-0000-0000-0000000000eF"}},
		{"TIME", when, []string{"", "pa0", "pa000000000", "pa00000000-0", "000000000", "b42000000000"}, []string{"pb00000000000", "nz9000000000"}},
		{"tail", tail, []string{"", "a.", ".a", "a..b", "a.b-", "-a"}, []string{"a/2Fb", "a.b/2F", "/2F", "a./41"}},
	} {
		for _, s := range c.form {
			if err := c.parse(s); !errors.Is(err, ErrForm) || errors.Is(err, ErrNotCanonical) {
				t.Errorf("%s %q: %v, want a wrong form", c.name, s, err)
			}
		}
		for _, s := range c.canon {
			if err := c.parse(s); !errors.Is(err, ErrNotCanonical) || errors.Is(err, ErrForm) {
				t.Errorf("%s %q: %v, want not canonical", c.name, s, err)
			}
		}
	}
}

func TestEncodersThatRefuse(t *testing.T) {
	if b, err := AppendVerbatim([]byte("k."), "a.b"); !errors.Is(err, ErrForm) || string(b) != "k." {
		t.Errorf("AppendVerbatim: %q, %v", b, err)
	}
	for _, n := range []int32{-1, 1_000_000_000} {
		if b, err := AppendTime([]byte("k."), 1, n); !errors.Is(err, ErrForm) || string(b) != "k." {
			t.Errorf("AppendTime %d ns: %q, %v", n, b, err)
		}
	}
}

func TestFloorTime(t *testing.T) {
	for _, c := range []struct {
		sec   int64
		nanos int32
		floor int64
		fwd   int32
		ok    bool
	}{
		{1, 5, 1, 5, true},
		{-1, -500_000_000, -2, 500_000_000, true},
		{0, -1, -1, 999_999_999, true},
		{-3, 0, -3, 0, true},
		{0, 1_000_000_000, 0, 0, false},
		{0, -1_000_000_000, 0, 0, false},
		{math.MinInt64, -1, 0, 0, false},
	} {
		if s, n, ok := FloorTime(c.sec, c.nanos); s != c.floor || n != c.fwd || ok != c.ok {
			t.Errorf("FloorTime(%d, %d) = %d, %d, %v", c.sec, c.nanos, s, n, ok)
		}
	}
}

// roundTrip checks one value: it comes back, its token is one of the charset, and dst is only appended to.
func roundTrip[T comparable](t rapid.TB, v T, enc func([]byte, T) []byte, dec func(string) (T, error)) {
	t.Helper()
	b := enc([]byte("k."), v)
	token, ok := strings.CutPrefix(string(b), "k.")
	if !ok || !IsToken(token) {
		t.Fatalf("%v: token %q", v, token)
	}
	got, err := dec(token)
	if err != nil || got != v {
		t.Fatalf("%v: token %q: %v, %v", v, token, got, err)
	}
}

func intRoundTrip[T FixedInteger](t *testing.T, values *rapid.Generator[T]) {
	rapid.Check(t, func(t *rapid.T) {
		v := values.Draw(t, "v")
		roundTrip(t, v, AppendInt[T], ParseInt[T])
		roundTrip(t, v, AppendDecimal[T], ParseDecimal[T])
		roundTrip(t, v, AppendHexInt[T], ParseHexInt[T])
	})
}

func TestRoundTripIntegers(t *testing.T) {
	t.Run("int8", func(t *testing.T) { intRoundTrip(t, rapid.Int8()) })
	t.Run("int16", func(t *testing.T) { intRoundTrip(t, rapid.Int16()) })
	t.Run("int32", func(t *testing.T) { intRoundTrip(t, rapid.Int32()) })
	t.Run("int64", func(t *testing.T) { intRoundTrip(t, rapid.Int64()) })
	t.Run("uint8", func(t *testing.T) { intRoundTrip(t, rapid.Uint8()) })
	t.Run("uint16", func(t *testing.T) { intRoundTrip(t, rapid.Uint16()) })
	t.Run("uint32", func(t *testing.T) { intRoundTrip(t, rapid.Uint32()) })
	t.Run("uint64", func(t *testing.T) { intRoundTrip(t, rapid.Uint64()) })
	t.Run("enum", func(t *testing.T) {
		intRoundTrip(t, rapid.Map(rapid.Int32(), func(v int32) enum { return enum(v) }))
	})
	t.Run("small", func(t *testing.T) { intRoundTrip(t, rapid.Map(rapid.Int8(), func(v int8) small { return small(v) })) })
	t.Run("wide", func(t *testing.T) { intRoundTrip(t, rapid.Map(rapid.Uint64(), func(v uint64) wide { return wide(v) })) })
	t.Run("int", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) { roundTrip(t, rapid.Int().Draw(t, "v"), AppendInt[int], ParseInt[int]) })
	})
	t.Run("uint", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) { roundTrip(t, rapid.Uint().Draw(t, "v"), AppendInt[uint], ParseInt[uint]) })
	})
}

// Every power of ten, of two, and their neighbours: where lengths and ranges change.
func TestRoundTripIntegerEdges(t *testing.T) {
	check := func(u uint64) {
		roundTrip(t, u, AppendInt[uint64], ParseInt[uint64])
		roundTrip(t, u, AppendDecimal[uint64], ParseDecimal[uint64])
		roundTrip(t, int64(u), AppendInt[int64], ParseInt[int64])
		roundTrip(t, int64(u), AppendDecimal[int64], ParseDecimal[int64])
		roundTrip(t, int32(u), AppendInt[int32], ParseInt[int32])
		roundTrip(t, int32(u), AppendHexInt[int32], ParseHexInt[int32])
	}
	for d := uint64(0); d < 3; d++ {
		for _, p := range powersOf10 {
			check(p + d - 1)
			check(-(p + d - 1))
		}
		for i := range 64 {
			check(1<<i + d - 1)
			check(-(1<<i + d - 1))
		}
	}
}

// anyString favours bytes at which ESC changes its form.
func anyString() *rapid.Generator[string] {
	edge := rapid.SampledFrom([]byte("\x00./-09:@AZ[\\]^_`ayz{|~\x7f\x80\xff"))
	b := rapid.OneOf(edge, rapid.Byte())
	return rapid.Map(rapid.SliceOfN(b, 0, 12), func(b []byte) string { return string(b) })
}

func anyVerbatim() *rapid.Generator[string] {
	return rapid.StringMatching(`[-/_=a-zA-Z0-9]{1,8}`)
}

func anyUUID() *rapid.Generator[[16]byte] {
	return rapid.Map(rapid.SliceOfN(rapid.Byte(), 16, 16), func(b []byte) [16]byte { return [16]byte(b) })
}

func TestRoundTripStrings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyString().Draw(t, "s")
		roundTrip(t, s, AppendESC, ParseESC)
		roundTrip(t, s, AppendHex, ParseHex)
		roundTrip(t, anyUUID().Draw(t, "id"), AppendUUID, ParseUUID)
		v := anyVerbatim().Draw(t, "v")
		roundTrip(t, v, func(b []byte, s string) []byte { return must(AppendVerbatim(b, s)) }, ParseVerbatim)
		type instant struct {
			sec   int64
			nanos int32
		}
		roundTrip(t, instant{rapid.Int64().Draw(t, "sec"), rapid.Int32Range(0, maxNanos).Draw(t, "nanos")},
			func(b []byte, v instant) []byte { return must(AppendTime(b, v.sec, v.nanos)) },
			func(s string) (v instant, err error) { v.sec, v.nanos, err = ParseTime(s); return })
	})
}

func TestRoundTripTail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := strings.Join(rapid.SliceOfN(anyString(), 1, 4).Draw(t, "parts"), "/")
		tokens := tail(s)
		for _, token := range strings.Split(tokens, ".") {
			if !InImage(EncESC, KindTail, token) {
				t.Fatalf("%q: tokens %q", s, tokens)
			}
		}
		if got, err := ParseTail(tokens); err != nil || got != s {
			t.Fatalf("%q: tokens %q: %q, %v", s, tokens, got, err)
		}
	})
}

func TestAllocations(t *testing.T) {
	buf := make([]byte, 0, 256)
	allocs := func(name string, want float64, f func()) {
		t.Helper()
		if got := testing.AllocsPerRun(200, f); got != want {
			t.Errorf("%s: %v allocations, want %v", name, got, want)
		}
	}
	for name, f := range map[string]func(){
		"append": func() {
			b := AppendESC(buf, "my_zone.example")
			b = AppendTail(b, "a/b.c")
			b, _ = AppendVerbatim(b, "eu-west-1")
			b = AppendInt(b, int64(-42))
			b = AppendDecimal(b, uint32(42))
			b = AppendHex(b, "\x00\xff")
			b = AppendHexInt(b, int32(-1))
			b = AppendBool(b, true)
			b = AppendUUID(b, [16]byte{1})
			b, _ = AppendTime(b, 1, 2)
			buf = b[:0]
		},
		"parse": func() {
			_, _ = ParseESC("plain")
			_, _ = ParseESC("-")
			_, _ = ParseTail("plain")
			_, _ = ParseVerbatim("eu-west-1")
			_, _ = ParseInt[int64]("ny57")
			_, _ = ParseDecimal[int8]("-7")
			_, _ = ParseHexInt[uint32]("0000BEEF")
			_, _ = ParseBool("1")
			_, _ = ParseUUID("01230000-0000-0000-0000-0000000000ef")
			_, _, _ = ParseTime("nz7500000000")
		},
	} {
		allocs(name, 0, f)
	}
	var sink string
	allocs("ParseESC escaped", 1, func() { sink, _ = ParseESC("my__z-one/2Eexample/2Ecom") })
	allocs("ParseTail", 1, func() { sink, _ = ParseTail("a/2Eb.c.-") })
	allocs("ParseHex", 1, func() { sink, _ = ParseHex("00FF") })
	if sink != "\x00\xff" {
		t.Errorf("sink %q", sink)
	}
}

func TestParsedStringsAliasTheToken(t *testing.T) {
	token := strings.Repeat("a", 40)
	for name, v := range map[string]string{
		"ESC": must(ParseESC(token)), "VERBATIM": must(ParseVerbatim(token)), "tail": must(ParseTail(token)),
	} {
		if unsafe.StringData(v) != unsafe.StringData(token) {
			t.Errorf("%s copied the token", name)
		}
	}
}
