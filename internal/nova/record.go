package nova

import (
	"fmt"
	"unicode/utf8"
)

// Header is one name and value of a record. A name is UTF-8. Names may repeat.
type Header struct {
	Name  string
	Value []byte
}

// Record is what a stream holds under one number.
type Record struct {
	Body    []byte
	Headers []Header
	// Timestamp is in milliseconds of Unix time, never less than that of the record before. The leader sets it.
	Timestamp int64
}

// What a record, and each of its headers, count for in limits beside the lengths of their parts, in bytes.
const (
	RecordBytes = 8
	HeaderBytes = 2
)

// Bytes is what the record counts for in limits: 8, two for each header, and the lengths of all its parts.
func (r *Record) Bytes() int {
	n := RecordBytes + len(r.Body)
	for i := range r.Headers {
		n += HeaderBytes + len(r.Headers[i].Name) + len(r.Headers[i].Value)
	}
	return n
}

// BatchBytes is what the records of a batch count for together.
func BatchBytes(records []Record) int {
	n := 0
	for i := range records {
		n += records[i].Bytes()
	}
	return n
}

// CheckBatch checks a batch: 1 to 1,000 records, of at most maxBytes together, whose headers have names of UTF-8.
func CheckBatch(records []Record, maxBytes int) error {
	if err := CheckSizes(len(records), BatchBytes(records), maxBytes); err != nil {
		return err
	}
	for i := range records {
		for j := range records[i].Headers {
			if err := CheckHeaderName(records[i].Headers[j].Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// CheckHeaderName checks the name of a record's header.
func CheckHeaderName(name string) error {
	if !utf8.ValidString(name) {
		return fmt.Errorf("%w: a header's name %q is not UTF-8", ErrInvalid, name)
	}
	return nil
}

// CheckSizes checks a batch of so many records that counts for n bytes, as CheckBatch does.
func CheckSizes(records, n, maxBytes int) error {
	if records == 0 || records > MaxBatchRecords {
		return fmt.Errorf("%w: a batch has 1 to %d records, not %d", ErrInvalid, MaxBatchRecords, records)
	}
	if n > maxBytes {
		return fmt.Errorf("%w: the batch counts for %d bytes, at most %d are allowed", ErrInvalid, n, maxBytes)
	}
	return nil
}

// Position is a place in a stream: the number that a record has or gets, and a time in milliseconds of Unix time.
type Position struct {
	SeqNum    uint64
	Timestamp int64
}
