package keyenc

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"pgregory.net/rapid"
)

const tokenBytes = plainBytes + "-_=/"

// images are all of them, with one set of enum names.
func images() []Image {
	var all []Image
	for e := EncESC; e <= EncEnumName; e++ {
		for k := KindString; k <= KindTail; k++ {
			if !e.Fits(k) {
				continue
			}
			m := Image{Enc: e, Kind: k}
			if e == EncEnumName {
				m.Names = enumNames()
			}
			all = append(all, m)
		}
	}
	return all
}

// names is an enum of the tests, among whose names are tokens of other encodings.
var names = func() protoreflect.EnumDescriptor {
	values := []*descriptorpb.EnumValueDescriptorProto{}
	for i, name := range []string{"ON", "OFF", "a0", "pa1"} {
		values = append(values, &descriptorpb.EnumValueDescriptorProto{Name: &name, Number: proto.Int32(int32(i*i - i))})
	}
	values[0].Number = proto.Int32(-7)
	return must(protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("names.proto"), Syntax: proto.String("proto2"),
		EnumType: []*descriptorpb.EnumDescriptorProto{{Name: proto.String("Names"), Value: values}},
	}, nil)).Enums().Get(0)
}()

func enumNames() []string {
	var all []string
	for i := range names.Values().Len() {
		all = append(all, string(names.Values().Get(i).Name()))
	}
	return all
}

func (m Image) String() string { return m.Enc.String() + " " + m.Kind.String() }

// reencode decodes a token and encodes the value again; false when the decoder refuses it.
func (m Image) reencode(token string) (string, bool) {
	again := func(enc func() string, err error) (string, bool) {
		if err != nil {
			return "", false
		}
		return enc(), true
	}
	switch m.Enc {
	case EncESC:
		if m.Kind == KindTail {
			v, err := ParseTail(token)
			return again(func() string { return tail(v) }, err)
		}
		v, err := ParseESC(token)
		return again(func() string { return esc(v) }, err)
	case EncVerbatim:
		v, err := ParseVerbatim(token)
		return again(func() string { return string(must(AppendVerbatim(nil, v))) }, err)
	case EncBool:
		v, err := ParseBool(token)
		return again(func() string { return string(AppendBool(nil, v)) }, err)
	case EncUUID:
		v, err := ParseUUID(token)
		return again(func() string { return string(AppendUUID(nil, v)) }, err)
	case EncTime:
		sec, nanos, err := ParseTime(token)
		return again(func() string { return clock(sec, nanos) }, err)
	case EncHex:
		if !m.Kind.integer() {
			v, err := ParseHex(token)
			return again(func() string { return hexBytes(v) }, err)
		}
	case EncEnumName:
		n, err := ParseEnumName(names, token)
		return again(func() string { return string(must(AppendEnumName(nil, names, n))) }, err)
	}
	switch m.Kind {
	case KindInt64:
		return reencodeInt[int64](m.Enc, token)
	case KindUint32:
		return reencodeInt[uint32](m.Enc, token)
	case KindUint64:
		return reencodeInt[uint64](m.Enc, token)
	case KindEnum:
		return reencodeInt[enum](m.Enc, token)
	}
	return reencodeInt[int32](m.Enc, token)
}

func reencodeInt[T FixedInteger](e Encoding, token string) (string, bool) {
	parse, write := ParseInt[T], AppendInt[T]
	switch e {
	case EncDecimal:
		parse, write = ParseDecimal[T], AppendDecimal[T]
	case EncHex:
		parse, write = ParseHexInt[T], AppendHexInt[T]
	}
	v, err := parse(token)
	if err != nil {
		return "", false
	}
	return string(write(nil, v)), true
}

// checkToken holds a token's three judges together: the decoder, Contains, and the pattern that Common walks.
func checkToken(t rapid.TB, m Image, re *regexp.Regexp, token string) {
	t.Helper()
	again, decoded := m.reencode(token)
	if decoded && again != token {
		t.Fatalf("%v: token %q decodes, and is written as %q", m, token, again)
	}
	if decoded && strings.IndexByte(token, '.') >= 0 {
		return // a tail of several tokens
	}
	if in := m.Contains(token); in != decoded {
		t.Fatalf("%v: token %q: decodes %v, contained %v", m, token, decoded, in)
	}
	if match := re.MatchString(token); match != decoded {
		t.Fatalf("%v: token %q: decodes %v, matches %v", m, token, decoded, match)
	}
}

func compiled(m Image) *regexp.Regexp { return regexp.MustCompile(`^(?:` + m.pattern() + `)$`) }

// Every token of up to two bytes, and every one of three over the bytes that begin or end something.
func TestImagesExhaustiveOnShortTokens(t *testing.T) {
	const edges = "-/_=019:afnpqtyzAFZ.`~ "
	for _, m := range images() {
		re := compiled(m)
		checkToken(t, m, re, "")
		for a := range 256 {
			checkToken(t, m, re, string([]byte{byte(a)}))
		}
		for i := range len(tokenBytes) {
			for j := range len(tokenBytes) {
				checkToken(t, m, re, tokenBytes[i:i+1]+tokenBytes[j:j+1])
			}
		}
		for i := range len(edges) {
			for j := range len(edges) {
				for k := range len(edges) {
					checkToken(t, m, re, string([]byte{edges[i], edges[j], edges[k]}))
				}
			}
		}
	}
}

// Every three-byte escape, whatever its digits.
func TestESCExhaustiveOnEscapes(t *testing.T) {
	for _, m := range []Image{{Enc: EncESC, Kind: KindString}, {Enc: EncESC, Kind: KindTail}} {
		re := compiled(m)
		for _, lead := range "/=_z" {
			for i := range len(tokenBytes) {
				for j := range len(tokenBytes) {
					checkToken(t, m, re, string(lead)+tokenBytes[i:i+1]+tokenBytes[j:j+1])
				}
			}
		}
	}
}

// anyWritten draws a token that the image's own encoder wrote.
func anyWritten(t *rapid.T, m Image) string {
	switch m.Enc {
	case EncESC:
		s := anyString().Draw(t, "s")
		if m.Kind == KindTail {
			s = strings.ReplaceAll(s, "/", "")
		}
		return esc(s)
	case EncVerbatim:
		return anyVerbatim().Draw(t, "s")
	case EncBool:
		return string(AppendBool(nil, rapid.Bool().Draw(t, "b")))
	case EncUUID:
		return string(AppendUUID(nil, anyUUID().Draw(t, "id")))
	case EncTime:
		return clock(rapid.Int64().Draw(t, "sec"), rapid.Int32Range(0, maxNanos).Draw(t, "nanos"))
	case EncEnumName:
		return rapid.SampledFrom(m.Names).Draw(t, "name")
	case EncHex:
		if !m.Kind.integer() {
			return hexBytes(anyString().Draw(t, "s"))
		}
	}
	switch m.Kind {
	case KindInt64:
		return writeInt(m.Enc, rapid.Int64().Draw(t, "v"))
	case KindUint32:
		return writeInt(m.Enc, rapid.Uint32().Draw(t, "v"))
	case KindUint64:
		return writeInt(m.Enc, rapid.Uint64().Draw(t, "v"))
	}
	return writeInt(m.Enc, rapid.Int32().Draw(t, "v"))
}

func writeInt[T FixedInteger](e Encoding, v T) string {
	switch e {
	case EncDecimal:
		return decimal(v)
	case EncHex:
		return hexNum(v)
	}
	return num(v)
}

// Tokens that were written are in the image; those that differ from them by an edit or two are judged alike by all.
func TestImagesOnWrittenAndEditedTokens(t *testing.T) {
	for _, m := range images() {
		re := compiled(m)
		t.Run(m.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				token := anyWritten(t, m)
				if !m.Contains(token) {
					t.Fatalf("%q was written, but is not contained", token)
				}
				checkToken(t, m, re, token)
				b := []byte(token)
				for range rapid.IntRange(1, 2).Draw(t, "edits") {
					c := rapid.SampledFrom([]byte(tokenBytes)).Draw(t, "c")
					i := rapid.IntRange(0, len(b)).Draw(t, "at")
					switch {
					case i == len(b) || rapid.Bool().Draw(t, "insert"):
						b = append(b[:i], append([]byte{c}, b[i:]...)...)
					case rapid.Bool().Draw(t, "delete"):
						b = append(b[:i], b[i+1:]...)
					default:
						b[i] = c
					}
				}
				checkToken(t, m, re, string(b))
			})
		})
	}
}

// The numbers around every bound of every integer kind, as each of the integer encodings would write them.
func TestImagesAtIntegerBounds(t *testing.T) {
	for _, m := range images() {
		if !m.Kind.integer() || m.Enc == EncEnumName {
			continue
		}
		re := compiled(m)
		for _, bits := range []int{7, 8, 31, 32, 63, 64} {
			for d := uint64(0); d < 5; d++ {
				u := uint64(1)<<bits + d - 2
				for _, token := range []string{
					num(u), decimal(u), hexNum(u), num(int64(u)), decimal(int64(u)), hexNum(int64(u)), "-" + decimal(u),
					"p" + num(u), "n" + string(appendNeg(nil, u)), hexNum(uint32(u)), hexNum(int32(u)),
				} {
					checkToken(t, m, re, token)
				}
			}
		}
	}
}

// wantCommon says for which pairs there is a common token, from the forms alone. VERBATIM meets everything.
func wantCommon(a, b Image) bool {
	if a.Enc > b.Enc {
		a, b = b, a
	}
	sameSign := a.Kind.signed() == b.Kind.signed()
	switch fmt.Sprint(a.Enc, " ", b.Enc) {
	case "ESC UUID": // a dash stands only after z
		return false
	case "ESC ENUM_NAME", "INT INT", "INT ENUM_NAME":
		// The names are ON, OFF, a0 and pa1.
		return a.Enc == EncESC || b.Enc == EncEnumName || sameSign
	case "HEX HEX": // widths differ, except that bytes have any even one
		return !a.Kind.integer() || !b.Kind.integer() || a.Kind.bits() == b.Kind.bits()
	case "DECIMAL HEX": // 16 digits are no number of 32 bits
		return !b.Kind.integer() || b.Kind.bits() == 32 || a.Kind.bits() == 64
	case "DECIMAL BOOL", "DECIMAL DECIMAL":
		return true
	}
	return a.Enc == EncESC || a.Enc == EncVerbatim || a.Enc == b.Enc
}

func TestCommonOfEveryPair(t *testing.T) {
	all := images()
	for _, a := range all {
		for _, b := range all {
			w, ok := Common(a, b)
			if ok != wantCommon(a, b) {
				t.Errorf("%v and %v: %q, %v", a, b, w, ok)
			}
			if ok && (!a.Contains(w) || !b.Contains(w) || !IsToken(w)) {
				t.Errorf("%v and %v: %q is not in both", a, b, w)
			}
			if v, ok2 := Common(b, a); v != w || ok2 != ok {
				t.Errorf("%v and %v: %q one way, %q the other", a, b, w, v)
			}
		}
	}
}

// The walk alone finds the same, so a witness that was tried first hides nothing.
func TestWalkFindsWhatTheWitnessesDo(t *testing.T) {
	all := images()
	for _, a := range all {
		x := newAutomaton(a.pattern())
		for _, b := range all {
			y := newAutomaton(b.pattern())
			w, ok := shortest(x, y, tokenBytes)
			if ok != wantCommon(a, b) || ok && (!a.Contains(w) || !b.Contains(w)) {
				t.Errorf("%v and %v: %q, %v", a, b, w, ok)
			}
		}
	}
}

// No token of one image is in another with which it has none in common.
func TestCommonMissesNothing(t *testing.T) {
	all := images()
	apart := map[[2]int]bool{}
	for i, a := range all {
		for j, b := range all {
			if _, ok := Common(a, b); !ok {
				apart[[2]int{i, j}] = true
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		i := rapid.IntRange(0, len(all)-1).Draw(t, "image")
		token := anyWritten(t, all[i])
		for j, b := range all {
			if apart[[2]int{i, j}] && b.Contains(token) {
				t.Fatalf("%q is in %v and %v, but Common has none", token, all[i], b)
			}
		}
	})
}

func TestWitnesses(t *testing.T) {
	str, tailPart := Image{Enc: EncESC, Kind: KindString}, Image{Enc: EncESC, Kind: KindTail}
	for _, c := range []struct {
		a, b Image
		want string
	}{
		{str, str, "a"},
		{str, tailPart, "a"},
		{str, Image{Enc: EncVerbatim, Kind: KindString}, "a"},
		{str, Image{Enc: EncInt, Kind: KindInt32}, "pa0"},
		{str, Image{Enc: EncInt, Kind: KindUint64}, "a0"},
		{str, Image{Enc: EncTime, Kind: KindTimestamp}, "pa0000000000"},
		{str, Image{Enc: EncHex, Kind: KindBytes}, "00"},
		{str, Image{Enc: EncBool, Kind: KindBool}, "0"},
		{Image{Enc: EncVerbatim, Kind: KindString}, Image{Enc: EncUUID, Kind: KindUUID}, "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"},
		{Image{Enc: EncInt, Kind: KindInt32}, Image{Enc: EncInt, Kind: KindEnum}, "pa0"},
		{Image{Enc: EncDecimal, Kind: KindInt64}, Image{Enc: EncHex, Kind: KindInt64}, "1000000000000000"},
		{Image{Enc: EncEnumName, Kind: KindEnum, Names: []string{"a-b", "FULL"}}, Image{Enc: EncVerbatim, Kind: KindString}, "FULL"},
	} {
		if w, ok := Common(c.a, c.b); c.want != w || !ok {
			t.Errorf("%v and %v: %q, %v, want %q", c.a, c.b, w, ok, c.want)
		}
	}
}

// Where only a token with a special byte is common, it is found.
func TestCommonWithSpecialBytesOnly(t *testing.T) {
	minus := Image{Enc: EncEnumName, Kind: KindEnum, Names: []string{"-1"}}
	if w, ok := Common(minus, Image{Enc: EncDecimal, Kind: KindInt32}); w != "-1" || !ok {
		t.Errorf("%q, %v", w, ok)
	}
	if w, ok := Common(minus, Image{Enc: EncDecimal, Kind: KindUint32}); ok {
		t.Errorf("%q, %v", w, ok)
	}
}

func TestNoImage(t *testing.T) {
	for _, m := range []Image{{}, {Enc: EncUUID, Kind: KindString}, {Enc: EncEnumName, Kind: KindEnum}, {Enc: 99, Kind: 99},
		{Enc: EncEnumName, Kind: KindEnum, Names: []string{"a.b", ""}}} {
		if w, ok := m.Sample(); ok || m.Contains("a") || m.Contains("") || m.Contains("a.b") {
			t.Errorf("%v: %q", m, w)
		}
	}
	if w, ok := SampleToken(EncESC, KindString); w != "a" || !ok || !InImage(EncESC, KindString, w) {
		t.Errorf("SampleToken: %q, %v", w, ok)
	}
	for k := KindString; k <= KindTail; k++ {
		if !k.Default().Fits(k) || strings.HasPrefix(k.String(), "kind(") {
			t.Errorf("%v: default %v", k, k.Default())
		}
	}
	if Kind(0).Default() != 0 || Encoding(0).String() != "ENCODING(0)" || Kind(0).String() != "kind(0)" {
		t.Error("zero values have names")
	}
}
