package protocol

import (
	"fmt"
	"testing"
)

// The whole table: every marker reason, operation, emptiness and bucket kind, written out.
func TestEventKindOf(t *testing.T) {
	const p, d, g, a = EventPut, EventDelete, EventPurge, EventAgedOut
	// Columns: full, empty, full on a bucket of the reference, empty there.
	table := map[MarkerReason]map[KVOperation][4]EventKind{
		MarkerNone: {
			KVOperationNone:  {p, p, p, d},
			KVOperationDel:   {d, d, d, d},
			KVOperationPurge: {g, g, g, g},
		},
		MarkerMaxAge: {
			KVOperationNone:  {a, a, a, a},
			KVOperationDel:   {a, a, a, a},
			KVOperationPurge: {a, a, a, a},
		},
		MarkerPurge: {
			KVOperationNone:  {g, g, g, g},
			KVOperationDel:   {g, g, g, g},
			KVOperationPurge: {g, g, g, g},
		},
		MarkerRemove: {
			KVOperationNone:  {d, d, d, d},
			KVOperationDel:   {d, d, d, d},
			KVOperationPurge: {d, d, d, d},
		},
	}
	n := 0
	for reason, ops := range table {
		for op, kinds := range ops {
			for i, want := range kinds {
				n++
				empty, reference := i%2 == 1, i >= 2
				if got := EventKindOf(op, reason, empty, reference); got != want {
					t.Errorf("operation %d, marker %d, empty %v, of the reference %v: got %d, want %d", op, reason, empty, reference, got, want)
				}
			}
		}
	}
	if n != 4*3*2*2 {
		t.Fatalf("the table has %d rows", n)
	}
}

func TestLogAnswerNames(t *testing.T) {
	for a, want := range map[LogAnswer]string{LogUnknown: "unknown", LogSame: "same", LogReplaced: "replaced", LogRewound: "rewound", 99: "unknown"} {
		if got := fmt.Sprint(a); got != want {
			t.Errorf("%d is %q, want %q", uint8(a), got, want)
		}
	}
}
