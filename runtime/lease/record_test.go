package lease_test

import (
	"math"
	"strings"
	"testing"

	"github.com/typedfold/fold/runtime/lease"
)

func TestParseRecord(t *testing.T) {
	text, at := "00000000000000ff", uint64(1718000100)
	for value, want := range map[string]lease.Record{
		`{"holder_id":"a","acquired_at_unix":1,"expires_at_unix":2}`:                                                                          {HolderID: "a", AcquiredAtUnix: 1, ExpiresAtUnix: 2},
		`{"expires_at_unix":2,"acquired_at_unix":1,"holder_id":""}`:                                                                           {AcquiredAtUnix: 1, ExpiresAtUnix: 2},
		`{"holder_id":"\u00e9","acquired_at_unix":0,"expires_at_unix":18446744073709551615,"completed_at_unix":null}`:                         {HolderID: "é", ExpiresAtUnix: math.MaxUint64},
		`{"holder_id":"a","acquired_at_unix":1,"expires_at_unix":2,"completed_cursor_hex":"00000000000000ff","completed_at_unix":1718000100}`: {HolderID: "a", AcquiredAtUnix: 1, ExpiresAtUnix: 2, CompletedCursorHex: &text, CompletedAtUnix: &at},
	} {
		got, err := lease.ParseRecord([]byte(value))
		if err != nil || !same(got, want) {
			t.Errorf("%s: %+v %v", value, got, err)
		}
	}
	for name, value := range corrupt {
		if r, err := lease.ParseRecord([]byte(value)); err == nil || r != (lease.Record{}) {
			t.Errorf("%s: %+v %v", name, r, err)
		} else if len(err.Error()) > 300 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
	}
}

func same(a, b lease.Record) bool {
	left, errLeft := a.Encode()
	right, errRight := b.Encode()
	return errLeft == nil && errRight == nil && string(left) == string(right)
}

func TestCompletedCursor(t *testing.T) {
	at := uint64(5)
	for text, ok := range map[string]bool{"": true, "0000000000000001": true, "0": false, "zz": false, "0000000000000000000000ff": false, strings.Repeat("00", 40000): false} {
		r := lease.Record{CompletedCursorHex: &text, CompletedAtUnix: &at}
		_, when, done, err := r.Completed()
		if done != ok || (err == nil) != ok || ok && when.Unix() != 5 {
			t.Errorf("%.40q: %v %v %v", text, when, done, err)
		} else if err != nil && len(err.Error()) > 200 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	}
	text := ""
	for _, half := range []lease.Record{{CompletedCursorHex: &text}, {CompletedAtUnix: &at}} {
		if _, _, done, err := half.Completed(); done || err != nil {
			t.Errorf("%+v: %v %v", half, done, err)
		}
	}
}

// What is read is what is written, and what is written is read alike.
func FuzzParseRecord(f *testing.F) {
	for _, value := range corrupt {
		if len(value) < 1000 {
			f.Add([]byte(value))
		}
	}
	f.Add([]byte(`{"holder_id":"node-42","acquired_at_unix":1718000000,"expires_at_unix":1718000300}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		r, err := lease.ParseRecord(value)
		if err != nil {
			if r != (lease.Record{}) {
				t.Fatalf("an error and %+v", r)
			}
			return
		}
		if _, _, done, err := r.Completed(); done && err != nil {
			t.Fatal("completed, and not")
		}
		first, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := lease.ParseRecord(first)
		if err != nil || again.HolderID != r.HolderID || again.AcquiredAtUnix != r.AcquiredAtUnix || again.ExpiresAtUnix != r.ExpiresAtUnix || !same(again, r) {
			t.Fatalf("%q is read as %+v, %v", first, again, err)
		}
	})
}
