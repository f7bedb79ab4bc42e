package lease

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/typedfold/fold/runtime/kv"
)

// maxRecord is the longest value that is read as a record, in bytes.
const maxRecord = 64 << 10

// Record is the value of a lease's key. Times are Unix seconds.
type Record struct {
	HolderID       string `json:"holder_id"`
	AcquiredAtUnix uint64 `json:"acquired_at_unix"`
	ExpiresAtUnix  uint64 `json:"expires_at_unix"`
	// CompletedCursorHex and CompletedAtUnix are there once the round was completed; see Completed.
	CompletedCursorHex *string `json:"completed_cursor_hex,omitempty"`
	CompletedAtUnix    *uint64 `json:"completed_at_unix,omitempty"`
}

// Completed is the cursor of the artifact that the record's round published, and when that was; ok is false for a round
// that was not completed. An error is a cursor that can't be read.
func (r Record) Completed() (cursor kv.Cursor, at time.Time, ok bool, err error) {
	if r.CompletedCursorHex == nil || r.CompletedAtUnix == nil {
		return kv.Cursor{}, time.Time{}, false, nil
	}
	raw, err := hex.DecodeString(*r.CompletedCursorHex)
	if err == nil {
		cursor, err = kv.ParseCursor(raw)
	}
	if err != nil {
		return kv.Cursor{}, time.Time{}, false, fmt.Errorf("lease: completed cursor %.60q: %w", *r.CompletedCursorHex, err)
	}
	return cursor, time.Unix(int64(*r.CompletedAtUnix), 0), true, nil
}

// ParseRecord reads a record. Fields that it does not know are ignored, and a completed_* field that is null is absent.
func ParseRecord(value []byte) (Record, error) {
	if len(value) > maxRecord {
		return Record{}, fmt.Errorf("lease: record of %d bytes, at most %d", len(value), maxRecord)
	}
	if !utf8.Valid(value) {
		return Record{}, errors.New("lease: record is not UTF-8")
	}
	// By their exact names: encoding/json would take HOLDER_ID too.
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(value, &fields); err != nil {
		return Record{}, fmt.Errorf("lease: record: %w", err)
	}
	var r Record
	for _, f := range []struct {
		name     string
		into     any
		required bool
	}{
		{"holder_id", &r.HolderID, true},
		{"acquired_at_unix", &r.AcquiredAtUnix, true},
		{"expires_at_unix", &r.ExpiresAtUnix, true},
		{"completed_cursor_hex", &r.CompletedCursorHex, false},
		{"completed_at_unix", &r.CompletedAtUnix, false},
	} {
		raw, there := fields[f.name]
		if null := string(raw) == "null"; !there || null {
			if f.required {
				return Record{}, fmt.Errorf("lease: record without %s", f.name)
			}
			continue
		}
		if err := json.Unmarshal(raw, f.into); err != nil {
			return Record{}, fmt.Errorf("lease: record's %s: %w", f.name, err)
		}
	}
	return r, nil
}

// Encode is the record as it is stored: without spaces, and without the fields that are absent.
func (r Record) Encode() ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false) // serde_json does not
	if err := e.Encode(r); err != nil {
		return nil, fmt.Errorf("lease: record: %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}
