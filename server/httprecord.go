package server

import (
	"encoding/json"
	"fmt"
	"net/url"
	"unicode/utf8"

	"github.com/typedfold/fold/internal/nova"
)

// format is how bodies of records are written in JSON. Values of headers are base64 always.
type format string

const (
	formatBase64 format = "base64"
	formatText   format = "text" // a string
	formatJSON   format = "json" // a value, as it was appended
)

func formatOf(v url.Values) (format, error) {
	switch f := format(v.Get("format")); f {
	case "":
		return formatBase64, nil
	case formatBase64, formatText, formatJSON:
		return f, nil
	default:
		return f, fmt.Errorf("%w: format=%q is none of base64, text and json", nova.ErrInvalid, f)
	}
}

// recordJSON is a record. A body that can't be written in the format that was asked for is in BodyBase64.
type recordJSON struct {
	SeqNum     uint64          `json:"seq_num"`
	Timestamp  int64           `json:"timestamp"`
	Headers    []headerJSON    `json:"headers,omitempty"`
	Body       json.RawMessage `json:"body,omitempty"`
	BodyBase64 []byte          `json:"body_base64,omitempty"`
}

type headerJSON struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

// record is the record in JSON. Its bytes are its own.
func (f format) record(seq uint64, rec *nova.Record) (recordJSON, error) {
	out := recordJSON{SeqNum: seq, Timestamp: rec.Timestamp}
	for _, h := range rec.Headers {
		out.Headers = append(out.Headers, headerJSON{Name: h.Name, Value: append([]byte{}, h.Value...)})
	}
	var err error
	switch {
	case f == formatBase64:
		out.Body, err = json.Marshal(append([]byte{}, rec.Body...))
	case f == formatText && utf8.Valid(rec.Body):
		out.Body, err = json.Marshal(string(rec.Body))
	case f == formatJSON && json.Valid(rec.Body):
		out.Body = append(out.Body, rec.Body...)
	default:
		out.BodyBase64 = append([]byte{}, rec.Body...)
	}
	return out, err
}

// body is the bytes that a body in JSON stands for; one that is missing is empty.
func (f format) body(raw json.RawMessage) (b []byte, err error) {
	switch {
	case len(raw) == 0:
		return nil, nil
	case f == formatJSON:
		return raw, nil
	case f == formatText:
		var s string
		err = json.Unmarshal(raw, &s)
		b = []byte(s)
	default:
		err = json.Unmarshal(raw, &b)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: body of a record: %w", nova.ErrInvalid, err)
	}
	return b, nil
}
