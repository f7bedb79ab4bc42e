package kv

import (
	"bytes"
	"encoding/hex"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func sameIncarnation(a, b Incarnation) bool {
	return a.CreatedUnixNano == b.CreatedUnixNano && a.AgeLimit == b.AgeLimit && slices.Equal(a.Samples, b.Samples)
}

// These bytes are on people's disks.
func TestIncarnationGolden(t *testing.T) {
	for _, c := range []struct {
		name  string
		i     Incarnation
		bytes string
	}{
		{"nothing remembered", Incarnation{}, "01" + "00" + "00"},
		{"a creation time", Incarnation{CreatedUnixNano: 150}, "01" + "ac02" + "00"},
		{"before 1970", Incarnation{CreatedUnixNano: -1}, "01" + "01" + "00"},
		{"samples", Incarnation{CreatedUnixNano: 1, Samples: []Sample{{300, 2}, {301, -2}}}, "01" + "02" + "02" + "ac0204" + "ad0203"},
		{"an age limit", Incarnation{CreatedUnixNano: 1, AgeLimit: 300}, "02" + "02" + "ac02" + "00"},
		{"the longest age limit", Incarnation{AgeLimit: math.MaxInt64}, "02" + "00" + "ffffffffffffffff7f" + "00"},
		{"the ends", Incarnation{CreatedUnixNano: math.MinInt64, Samples: []Sample{{math.MaxUint64, math.MaxInt64}}},
			"01" + "ffffffffffffffffff01" + "01" + "ffffffffffffffffff01" + "feffffffffffffffff01"},
	} {
		b := c.i.AppendBytes([]byte("x"))
		if got := hex.EncodeToString(b[1:]); b[0] != 'x' || got != c.bytes {
			t.Errorf("%s: %s, want %s", c.name, got, c.bytes)
		}
		if back, err := ParseIncarnation(b[1:]); err != nil || !sameIncarnation(back, c.i) {
			t.Errorf("%s: read as %+v, %v", c.name, back, err)
		}
	}
}

func TestIncarnationRefusals(t *testing.T) {
	full := Incarnation{Samples: make([]Sample, maxSamplesRead)}
	if back, err := ParseIncarnation(full.AppendBytes(nil)); err != nil || len(back.Samples) != maxSamplesRead {
		t.Errorf("%d samples: %v", maxSamplesRead, err)
	}
	full.Samples = append(full.Samples, Sample{})
	for name, b := range map[string]string{
		"empty":                      "",
		"another generation":         "\x03\x00\x00",
		"no age limit":               "\x02\x00\x00\x00",
		"an age limit cut off":       "\x02\x00",
		"an age limit beyond all":    "\x02\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00",
		"no creation time":           "\x01",
		"creation time cut off":      "\x01\x80",
		"no count":                   "\x01\x00",
		"a sample that is not there": "\x01\x00\x01",
		"a sample cut off":           "\x01\x00\x01\x05",
		"more than it says":          "\x01\x00\x00\x00",
		"too many samples":           string(full.AppendBytes(nil)),
		"a count beyond all":         "\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"a count that overflows":     "\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
		"a time in too many bytes":   "\x01\x80\x00\x00",
		"a count in too many bytes":  "\x01\x00\x80\x00",
	} {
		if i, err := ParseIncarnation([]byte(b)); err == nil || !sameIncarnation(i, Incarnation{}) {
			t.Errorf("%s: %+v, %v", name, i, err)
		}
	}
}

func TestIncarnationRoundTrip(t *testing.T) {
	sample := rapid.Custom(func(t *rapid.T) Sample {
		return Sample{Revision: rapid.Uint64().Draw(t, "revision"), UnixNano: rapid.Int64().Draw(t, "time")}
	})
	rapid.Check(t, func(t *rapid.T) {
		i := Incarnation{CreatedUnixNano: rapid.Int64().Draw(t, "created"), AgeLimit: rapid.Int64Range(0, math.MaxInt64).Draw(t, "limit"), Samples: rapid.SliceOfN(sample, 0, maxSamplesRead).Draw(t, "samples")}
		b := i.AppendBytes(nil)
		if back, err := ParseIncarnation(b); err != nil || !sameIncarnation(back, i) {
			t.Fatalf("%+v became %+v, %v", i, back, err)
		}
		cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
		if back, err := ParseIncarnation(b[:cut]); err == nil {
			t.Fatalf("%d of %d bytes were read as %+v", cut, len(b), back)
		}
	})
}

// Whatever parses is written back byte for byte: there is one encoding.
func FuzzParseIncarnation(f *testing.F) {
	f.Add(Incarnation{}.AppendBytes(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		i, err := ParseIncarnation(b)
		if err != nil {
			if !sameIncarnation(i, Incarnation{}) {
				t.Fatalf("%x was refused, and gave %+v", b, i)
			}
			return
		}
		if got := i.AppendBytes(nil); !bytes.Equal(got, b) || len(i.Samples) > maxSamplesRead {
			t.Fatalf("%x was read as %+v and written as %x", b, i, got)
		}
	})
}

func TestOwedGolden(t *testing.T) {
	for _, c := range []struct {
		o           Owed
		bytes, text string
	}{
		{Owed{}, "01" + "00" + "00", "none"},
		{Owed{OwesIdentity, 7}, "01" + "01" + "07", "identity up to revision 7"},
		{Owed{OwesMarkers, 300}, "01" + "02" + "ac02", "markers up to revision 300"},
		{Owed{OwesListing | OwesIdentity, 1}, "01" + "05" + "01", "identity+listing up to revision 1"},
		{Owed{owesAll, math.MaxUint64}, "01" + "07" + "ffffffffffffffffff01", "identity+markers+listing up to revision 18446744073709551615"},
	} {
		b := c.o.AppendBytes([]byte("x"))
		if got := hex.EncodeToString(b[1:]); b[0] != 'x' || got != c.bytes || c.o.String() != c.text {
			t.Errorf("%v: bytes %s, want %s, text %q", c.o, got, c.bytes, c.text)
		}
		if back, err := ParseOwed(b[1:]); err != nil || back != c.o {
			t.Errorf("%v: read as %v, %v", c.o, back, err)
		}
	}
	if got := Owes(0).String() + " " + owesAll.String(); got != "none identity+markers+listing" {
		t.Error(got)
	}
}

func TestOwedRefusals(t *testing.T) {
	for name, b := range map[string]string{
		"empty":                      "",
		"no reasons":                 "\x01",
		"no revision":                "\x01\x01",
		"another generation":         "\x02\x01\x01",
		"a reason that is not known": "\x01\x08\x01",
		"the highest reason":         "\x01\x81\x01",
		"revision cut off":           "\x01\x01\x80",
		"revision that overflows":    "\x01\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
		"revision in too many bytes": "\x01\x01\x81\x00",
		"more than one revision":     "\x01\x01\x01\x01",
	} {
		if o, err := ParseOwed([]byte(b)); err == nil || o != (Owed{}) {
			t.Errorf("%s: %v, %v", name, o, err)
		}
	}
}

// However marks are added up, every reason is in the sum, and no revision above the highest is owed.
func TestOwedAdd(t *testing.T) {
	for why := Owes(0); why <= owesAll; why++ {
		for more := Owes(0); more <= owesAll; more++ {
			for at := range uint64(4) {
				for later := range uint64(4) {
					o := Owed{}.Add(why, at)
					got := o.Add(more, later)
					switch {
					case why == 0 && o != (Owed{}):
						t.Errorf("no reason owes %v", o)
					case more == 0 && got != o:
						t.Errorf("%v and no reason is %v", o, got)
					case more != 0 && (got.Why != why|more || got.At < o.At || got.At < later || got.At != o.At && got.At != later):
						t.Errorf("%v and %v at %d is %v", o, more, later, got)
					case got != (Owed{}).Add(more, later).Add(why, at):
						t.Errorf("%v and %v at %d: the order matters", o, more, later)
					}
				}
			}
		}
	}
}

func FuzzParseOwed(f *testing.F) {
	f.Add(Owed{}.AppendBytes(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := ParseOwed(b)
		if err != nil {
			if o != (Owed{}) {
				t.Fatalf("%x was refused, and gave %v", b, o)
			}
			return
		}
		if got := o.AppendBytes(nil); !bytes.Equal(got, b) || o.Why > owesAll {
			t.Fatalf("%x was read as %v and written as %x", b, o, got)
		}
	})
}
