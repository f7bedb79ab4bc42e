package keyenc

import (
	"strings"
	"testing"
)

func FuzzTokens(f *testing.F) {
	for _, s := range []string{"", "-", "a/2Eb", "my__z-one", "b42", "pa7", "ny57", "42", "00FF", "0", "80000000",
		"01230000-0000-0000-0000-0000000000ef", "nz7500000000", "a.-", "/41", "z7b", "pt18446744073709551616",
		"-42", "-0", "007", "ON", "OFF", "on", "01230000-0000-0000-0000-0000000000EF", "pa0000000000", "nh0776627963145224191999999999", "pa000000000"} {
		f.Add(s)
	}
	all := images()
	f.Fuzz(func(t *testing.T, token string) {
		for _, m := range all {
			again, ok := m.reencode(token)
			if ok && again != token {
				t.Fatalf("%v: token %q decodes, and is written as %q", m, token, again)
			}
			if in := m.Contains(token); in != (ok && strings.IndexByte(token, '.') < 0) {
				t.Fatalf("%v: token %q: decodes %v, contained %v", m, token, ok, in)
			}
		}
	})
}

func FuzzStrings(f *testing.F) {
	f.Add("", "a")
	f.Add("a.b", "my_zone")
	f.Add("a/", "a!")
	f.Fuzz(func(t *testing.T, a, b string) {
		roundTrip(t, a, AppendESC, ParseESC)
		roundTrip(t, a, AppendHex, ParseHex)
		if got, err := ParseTail(tail(a)); err != nil || got != a {
			t.Fatalf("%q: tail %q: %q, %v", a, tail(a), got, err)
		}
		if x, y := esc(a)+"\x00", esc(b)+"\x00"; strings.Compare(x, y) != strings.Compare(a, b) {
			t.Fatalf("%q and %q: tokens %q and %q", a, b, x, y)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	buf := make([]byte, 0, 128)
	run := func(name string, f func()) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
	run("ESC/plain", func() { buf = AppendESC(buf[:0], "tenant0123456789") })
	run("ESC/escaped", func() { buf = AppendESC(buf[:0], "api.example-1.com") })
	run("Int64", func() { buf = AppendInt(buf[:0], int64(-1234567890)) })
	run("HexInt64", func() { buf = AppendHexInt(buf[:0], int64(-1234567890)) })
	run("Tail", func() { buf = AppendTail(buf[:0], "a/bc/def") })
}

func BenchmarkParse(b *testing.B) {
	run := func(name string, f func() error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("ESC/plain", func() error { return parseErr(ParseESC("tenant0123456789")) })
	run("ESC/escaped", func() error { return parseErr(ParseESC("api/2Eexample/2D1/2Ecom")) })
	run("Int64", func() error { return parseErr(ParseInt[int64]("nq8765432109")) })
	run("HexInt64", func() error { return parseErr(ParseHexInt[int64]("7FFFFFFFB669FD2D")) })
	run("Tail", func() error { return parseErr(ParseTail("a.bc.def")) })
}

func BenchmarkCommon(b *testing.B) {
	for _, p := range [][2]Image{
		{{Enc: EncESC, Kind: KindString}, {Enc: EncESC, Kind: KindString}},
		{{Enc: EncESC, Kind: KindString}, {Enc: EncInt, Kind: KindInt64}},
		{{Enc: EncESC, Kind: KindString}, {Enc: EncTime, Kind: KindTimestamp}},
		{{Enc: EncDecimal, Kind: KindInt64}, {Enc: EncHex, Kind: KindInt64}},
	} {
		b.Run(p[0].String()+"+"+p[1].String(), func(b *testing.B) {
			for b.Loop() {
				Common(p[0], p[1])
			}
		})
	}
}
