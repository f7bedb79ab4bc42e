package kv

import (
	"errors"
	"strings"
	"testing"
)

func TestBatchIsCheckedBeforeItIsSent(t *testing.T) {
	good := BatchOp{Kind: BatchPut, Key: "a"}
	for name, c := range map[string]struct {
		op   BatchOp
		want string
	}{
		"no kind":              {BatchOp{Key: "b"}, "no such kind"},
		"unknown kind":         {BatchOp{Kind: 9, Key: "b"}, "no such kind of operation: 9"},
		"bad key":              {BatchOp{Kind: BatchPut, Key: "b."}, `key "b."`},
		"purging put":          {BatchOp{Kind: BatchUpdate, Key: "b", Purge: true}, "only a delete purges"},
		"delete with a value":  {BatchOp{Kind: BatchDelete, Key: "b", Value: []byte{}}, "no value"},
		"delete with a TTL":    {BatchOp{Kind: BatchDelete, Key: "b", Put: PutOptions{TTL: 1}}, "no value"},
		"a key that was there": {BatchOp{Kind: BatchDelete, Key: "a"}, `key "a" is written by operation 0 already`},
	} {
		err := Batch{Ops: []BatchOp{good, c.op}}.Validate()
		var b *BatchError
		if !errors.As(err, &b) || b.Index != 1 || b.Key != c.op.Key || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (Batch{Ops: []BatchOp{good, {Kind: BatchDelete, Key: "b", Purge: true}, {Kind: BatchCreate, Key: "c"}}}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestBatchErrorsMatchWhatTheyAre(t *testing.T) {
	cause := &ExistsError{Key: "a", Current: Revision(3)}
	err := error(&BatchError{Index: 2, Key: "a", Err: cause})
	var exists *ExistsError
	if !errors.Is(err, ErrKeyExists) || !errors.Is(err, ErrConflict) || !errors.As(err, &exists) || exists != cause {
		t.Error(err)
	}
	if got, want := err.Error(), `operation 2 on key "a": key "a" exists at revision 3`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := (&BatchError{Index: 1, Err: errors.New("x")}).Error(), "operation 1: x"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if m := (&MatchError{Bucket: "b", Want: 1, Got: 2}); !errors.Is(m, ErrConflict) || !strings.Contains(m.Error(), "follow revision 1, the log is at 2") {
		t.Error(m)
	}
	if e := (&BatchSizeError{Ops: 3, Limit: 2}); e.Error() != "batch of 3 operations: at most 2" || e.Hint() == "" {
		t.Error(e)
	}
	if e := (&BatchSizeError{Ops: 3}); strings.Contains(e.Error(), "0") {
		t.Error(e)
	}
}
