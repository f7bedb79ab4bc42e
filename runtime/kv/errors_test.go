package kv

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

var sentinels = []error{
	ErrKeyNotFound, ErrKeyExists, ErrConflict, ErrInvalidKey, ErrCursorExpired, ErrLogReplaced, ErrLogRewound,
	ErrWatchLost, ErrBucketNotFound, ErrUnsupported, ErrOutcomeUnknown,
}

// Each typed error matches its own sentinels, through any wrapping, and no other.
func TestErrorsMatch(t *testing.T) {
	long := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for _, c := range []struct {
		err   error
		is    []error
		holds []string
	}{
		{&ConflictError{Key: "k", Expected: Revision(4), Current: Revision(7)}, []error{ErrConflict}, []string{`"k"`, "4", "7"}},
		{&ConflictError{Key: "k", Current: Revision(7)}, []error{ErrConflict}, []string{"unknown", "7"}},
		{&ExistsError{Key: "k", Current: Revision(7)}, []error{ErrKeyExists, ErrConflict}, []string{`"k"`, "7"}},
		{&ExpiredError{Bucket: "b", Cursor: CursorAt(4), First: 99}, []error{ErrCursorExpired}, []string{`"b"`, "4", "99"}},
		{&LogChangedError{Bucket: "b", Replaced: true, Cursor: CursorAt(4), Last: 3, NotedCreated: long, Created: long.Add(1)}, []error{ErrLogReplaced}, []string{`"b"`, "replaced", "4", "3", "05.000000006Z", "05.000000007Z"}},
		{&LogChangedError{Bucket: "b", Cursor: CursorAt(4), Last: 3}, []error{ErrLogRewound}, []string{`"b"`, "rewound", "4", "3"}},
		{&UnsupportedError{Op: "put", Setting: "allow_msg_ttl", Detail: "it is off"}, []error{ErrUnsupported}, []string{"put", "allow_msg_ttl", "it is off"}},
		{&KeyError{Key: "a b", Detail: "no spaces"}, []error{ErrInvalidKey}, []string{`"a b"`, "no spaces"}},
	} {
		wrapped := fmt.Errorf("outer: %w", fmt.Errorf("inner: %w", c.err))
		for _, s := range sentinels {
			want := false
			for _, is := range c.is {
				want = want || is == s
			}
			if errors.Is(wrapped, s) != want {
				t.Errorf("%v: is %q: %v", c.err, s, !want)
			}
		}
		for _, part := range c.holds {
			if !strings.Contains(c.err.Error(), part) {
				t.Errorf("%q does not say %s", c.err, part)
			}
		}
	}
}

func TestErrorsAs(t *testing.T) {
	err := fmt.Errorf("update: %w", &ConflictError{Key: "k", Current: Revision(7)})
	var conflict *ConflictError
	if !errors.As(err, &conflict) || conflict.Current != Revision(7) {
		t.Fatal(err)
	}
	var exists *ExistsError
	if errors.As(err, &exists) {
		t.Fatal("a conflict is no failed create")
	}
}

func TestErrorsThatAPersonMeetsHaveHints(t *testing.T) {
	for _, err := range []interface{ Hint() string }{&ExpiredError{}, &LogChangedError{}, &LogChangedError{Replaced: true}} {
		if err.Hint() == "" {
			t.Errorf("%T has no hint", err)
		}
	}
}

func TestUpdate(t *testing.T) {
	u := Update{Key: "abc", Value: []byte("12345"), UnixNano: 1}
	if u.Size() != 8 || !u.Time().Equal(time.Unix(0, 1)) || !(&Update{}).Time().IsZero() {
		t.Fatal(u.Size(), u.Time())
	}
	for op, c := range map[Op]struct {
		text               string
		removes, tombstone bool
	}{
		0: {"unknown", false, true}, OpPut: {"put", false, false}, OpDelete: {"delete", true, true},
		OpPurge: {"purge", true, true}, OpAgedOut: {"aged_out", false, true},
	} {
		e := Entry{Update{Op: op}}
		if op.String() != c.text || op.Removes() != c.removes || e.IsTombstone() != c.tombstone {
			t.Errorf("%v: removes %v, tombstone %v", op, op.Removes(), e.IsTombstone())
		}
	}
	for reason, text := range map[Reason]string{
		0: "unknown", ReasonUser: "user", ReasonMaxAge: "max_age", ReasonPurge: "purge", ReasonRemove: "remove", ReasonRepair: "repair",
	} {
		if reason.String() != text {
			t.Errorf("reason %d is %q", reason, reason)
		}
	}
}
