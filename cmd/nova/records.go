package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/typedfold/fold/client"
	"github.com/typedfold/fold/internal/nova"
)

// Formats of records, one a line.
const (
	formatText   = "text"   // the line is the body
	formatJSON   = "json"   // an object, as over HTTP
	formatBase64 = "base64" // the line is the body in base64
)

const formatHelp = "text: a line is a body; base64: a line is a body in base64; json: a line is a record as over HTTP"

func checkFormat(format string) error {
	switch format {
	case formatText, formatJSON, formatBase64:
		return nil
	}
	return usageError("", "--format is text, json or base64, not %q", format)
}

// recordFacts is a record as JSON; bytes are base64.
type recordFacts struct {
	SeqNum    *uint64       `json:"seq_num,omitempty"`
	Timestamp *int64        `json:"timestamp,omitempty"`
	Body      []byte        `json:"body"`
	Headers   []headerFacts `json:"headers,omitempty"`
}

type headerFacts struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

// recordReader reads records, one a line.
type recordReader struct {
	r      *bufio.Reader
	format string
	lines  uint64
}

func newRecordReader(r io.Reader, format string) *recordReader {
	return &recordReader{r: bufio.NewReaderSize(r, 64<<10), format: format}
}

// maxLine bounds a line: no record in any format is longer, since a batch is not.
const maxLine = 2 * nova.MaxBatchBytes

var errLineTooLong = fmt.Errorf("the line has more than %d bytes; a batch has at most %d", maxLine, nova.MaxBatchBytes)

// inputError is a line that is no record.
type inputError struct {
	line uint64
	err  error
}

func (e *inputError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }
func (e *inputError) Unwrap() error { return e.err }

// next is the next record; io.EOF after the last one. The record is the caller's. A line that is none is an *inputError.
func (r *recordReader) next() (client.Record, error) {
	text, err := r.line()
	if err != nil {
		switch {
		case errors.Is(err, errLineTooLong):
			err = &inputError{r.lines + 1, err}
		case !errors.Is(err, io.EOF):
			err = fmt.Errorf("line %d: %w", r.lines+1, err)
		}
		return client.Record{}, err
	}
	r.lines++
	rec, err := parseRecord(text, r.format)
	if err == nil && rec.Bytes() > nova.MaxBatchBytes {
		err = fmt.Errorf("the record counts for %d bytes, at most %d are allowed", rec.Bytes(), nova.MaxBatchBytes)
	}
	if err != nil {
		return client.Record{}, &inputError{r.lines, err}
	}
	return rec, nil
}

// line reads a line without its end. The last one needs none.
func (r *recordReader) line() ([]byte, error) {
	var text []byte
	for {
		part, err := r.r.ReadSlice('\n')
		text = append(text, part...)
		switch {
		case len(text) > maxLine:
			return nil, errLineTooLong
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(text) > 0:
			return text, nil
		case err != nil:
			return nil, err
		default:
			return text[:len(text)-1], nil
		}
	}
}

func parseRecord(text []byte, format string) (rec client.Record, err error) {
	switch format {
	case formatBase64:
		rec.Body, err = base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	case formatJSON:
		var in recordFacts
		d := json.NewDecoder(strings.NewReader(string(text)))
		d.DisallowUnknownFields()
		if err = d.Decode(&in); err == nil && d.More() {
			err = errors.New("more than one JSON value")
		}
		rec.Body = in.Body
		for _, h := range in.Headers {
			rec.Headers = append(rec.Headers, client.Header{Name: h.Name, Value: h.Value})
		}
	default:
		rec.Body = text
	}
	return rec, err
}

// appendRecord adds a record as a line of the format.
func appendRecord(b []byte, rec client.SequencedRecord, format string) ([]byte, error) {
	switch format {
	case formatBase64:
		b = base64.StdEncoding.AppendEncode(b, rec.Body)
	case formatJSON:
		out := recordFacts{SeqNum: &rec.SeqNum, Timestamp: &rec.Timestamp, Body: append([]byte{}, rec.Body...)}
		for _, h := range rec.Headers {
			out.Headers = append(out.Headers, headerFacts{Name: h.Name, Value: append([]byte{}, h.Value...)})
		}
		text, err := json.Marshal(out)
		if err != nil {
			return b, err
		}
		b = append(b, text...)
	default:
		b = append(b, rec.Body...)
	}
	return append(b, '\n'), nil
}
