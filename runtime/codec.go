package fold

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/typedfold/fold/runtime/schema"

	foldv1 "github.com/typedfold/fold/gen/go/fold/v1"
)

// The Content-Type headers that writers send.
const (
	contentTypeProto = "application/protobuf"
	contentTypeJSON  = "application/json"
	contentTypeRaw   = "application/octet-stream"
)

// codecs are a table's value codecs. They are immutable.
type codecs struct {
	// all are those that are read: the written one, then also_read in its order.
	all []foldv1.Codec
	// payload is the field that holds a RAW value; nil when no codec is RAW.
	payload protoreflect.FieldDescriptor
	// contentType is what writers send, "" for no header.
	contentType string
}

func compileCodecs(t *schema.Table, md protoreflect.MessageDescriptor) codecs {
	s := codecs{all: append([]foldv1.Codec{t.Codec}, t.AlsoRead...)}
	if len(s.all) > 1 || t.Codec != foldv1.Codec_CODEC_PROTO {
		s.contentType = contentTypeOf(t.Codec)
	}
	if s.reads(foldv1.Codec_CODEC_RAW) {
		s.payload = payloadField(t, md)
	}
	return s
}

func contentTypeOf(c foldv1.Codec) string {
	switch c {
	case foldv1.Codec_CODEC_PROTOJSON:
		return contentTypeJSON
	case foldv1.Codec_CODEC_RAW:
		return contentTypeRaw
	}
	return contentTypeProto
}

// payloadField is the one field of a RAW table's message that is not in its key.
func payloadField(t *schema.Table, md protoreflect.MessageDescriptor) protoreflect.FieldDescriptor {
	inKey := map[protoreflect.FieldNumber]bool{}
	for i := range t.Vars {
		if v := &t.Vars[i]; !v.KeyOnly() {
			inKey[v.Path[0].Number()] = true
		}
	}
	fields := md.Fields()
	for i := range fields.Len() {
		if fd := fields.Get(i); !inKey[fd.Number()] {
			return fd
		}
	}
	return nil
}

func (s *codecs) reads(c foldv1.Codec) bool {
	for _, have := range s.all {
		if have == c {
			return true
		}
	}
	return false
}

// chosen is the codec that reads a value with this header. sure is false when the header decides nothing: then c is the
// first of those that are tried.
func (s *codecs) chosen(contentType string) (c foldv1.Codec, sure bool) {
	if len(s.all) == 1 {
		return s.all[0], true
	}
	if c := s.named(contentType); c != foldv1.Codec_CODEC_UNSPECIFIED && s.reads(c) {
		return c, true
	}
	return s.all[0], false
}

// named is the codec that a Content-Type header names, whatever its parameters say.
func (s *codecs) named(contentType string) foldv1.Codec {
	if contentType == "" {
		return foldv1.Codec_CODEC_UNSPECIFIED
	}
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.TrimSpace(media)
	is := func(names ...string) bool {
		for _, n := range names {
			if strings.EqualFold(media, n) {
				return true
			}
		}
		return false
	}
	switch {
	case is(contentTypeProto, "application/x-protobuf", "application/vnd.google.protobuf"):
		return foldv1.Codec_CODEC_PROTO
	case is(contentTypeJSON, "text/json", "application/x-json"):
		return foldv1.Codec_CODEC_PROTOJSON
	case is(contentTypeRaw), s.rawText() && is("text/plain"):
		return foldv1.Codec_CODEC_RAW
	}
	return foldv1.Codec_CODEC_UNSPECIFIED
}

// rawText reports whether a RAW value is text.
func (s *codecs) rawText() bool {
	return s.payload != nil && s.payload.Kind() == protoreflect.StringKind
}

// decode decodes a value into dst, which is reset first. It keeps nothing of value.
func (s *codecs) decode(value []byte, contentType string, dst proto.Message) error {
	if c, sure := s.chosen(contentType); sure {
		return s.decodeAs(c, value, dst)
	}
	var text strings.Builder
	for i, c := range s.all {
		err := s.decodeAs(c, value, dst)
		if err == nil {
			return nil
		}
		if i > 0 {
			text.WriteString("; ")
		}
		fmt.Fprintf(&text, "%s: %v", strings.TrimPrefix(c.String(), "CODEC_"), err)
	}
	return fmt.Errorf("no codec of the table reads it, and its content type %q names none: %s", contentType, text.String())
}

var errNotUTF8 = errors.New("a string value is not valid UTF-8")

func (s *codecs) decodeAs(c foldv1.Codec, value []byte, dst proto.Message) error {
	switch c {
	case foldv1.Codec_CODEC_PROTOJSON:
		return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(value, dst)
	case foldv1.Codec_CODEC_RAW:
		return s.decodeRaw(value, dst)
	}
	return proto.Unmarshal(value, dst)
}

func (s *codecs) decodeRaw(value []byte, dst proto.Message) error {
	if !s.isRaw(value) {
		return errNotUTF8
	}
	proto.Reset(dst)
	if s.rawText() {
		dst.ProtoReflect().Set(s.payload, protoreflect.ValueOfString(string(value)))
	} else {
		dst.ProtoReflect().Set(s.payload, protoreflect.ValueOfBytes(append([]byte{}, value...)))
	}
	return nil
}

// isRaw reports whether RAW reads the value: any bytes do for a bytes field.
func (s *codecs) isRaw(value []byte) bool { return !s.rawText() || utf8.Valid(value) }

// encode is m's value as the written codec has it. The caller owns it: nothing in it is m's.
func (s *codecs) encode(m proto.Message) ([]byte, error) {
	switch s.all[0] {
	case foldv1.Codec_CODEC_PROTOJSON:
		return encodeJSON(m)
	case foldv1.Codec_CODEC_RAW:
		v := m.ProtoReflect().Get(s.payload)
		if !s.rawText() {
			return append([]byte{}, v.Bytes()...), nil
		}
		if !utf8.ValidString(v.String()) {
			return nil, errNotUTF8
		}
		return []byte(v.String()), nil
	}
	return proto.Marshal(m)
}

// encodeJSON is m in protojson's canonical form: fields in the order of their declaration, map entries by key, and no
// space between tokens, which protojson by itself puts there or not, by the build of the program.
func encodeJSON(m proto.Message) ([]byte, error) {
	spaced, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.Grow(len(spaced))
	if err := json.Compact(&out, spaced); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
