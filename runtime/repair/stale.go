package repair

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// ErrListingNotTruth: a key that is not listed may have aged out instead of having been deleted.
var ErrListingNotTruth = errors.New("a key that is not listed may have aged out")

// ListingNotTruthError says why a listing can't tell deleted keys. It matches ErrListingNotTruth.
type ListingNotTruthError struct {
	Truth     protocol.Truth
	Retention kv.Retention
	// SeenEvicting is the cursor's memo.
	SeenEvicting bool
}

func (e *ListingNotTruthError) Error() string {
	switch {
	case e.SeenEvicting:
		return "stale keys: " + ErrListingNotTruth.Error() + ": the cursor remembers that retention took current values"
	case e.Truth == protocol.TruthUnknown:
		return "stale keys: " + ErrListingNotTruth.Error() + ": the bucket can't say whether its retention takes current values"
	}
	return fmt.Sprintf("stale keys: %v: the bucket's retention takes current values, and the log begins at revision %d", ErrListingNotTruth, e.Retention.First)
}

func (e *ListingNotTruthError) Is(target error) bool { return target == ErrListingNotTruth }

// Hint says what a person can do.
func (e *ListingNotTruthError) Hint() string { return "restore from an artifact instead" }

// StaleKeys is for callers that follow a log by themselves, whose cursor has expired: the keys that they hold and that the
// bucket does not list with a value, sorted. They were deleted meanwhile, so remove them, then begin anew with every
// current value. live is a whole listing (Reader.Keys) that ended without an error, taken in the scope of held after the
// watch had ended; r is the log's retention, read after the listing; c is the cursor with its memo.
//
// Unless "not listed" is known to mean "deleted" it is a *ListingNotTruthError, also where the bucket can't say: a key may
// have aged out then, and nothing but an artifact tells. A re-list by a Repairer asks for no less by itself.
//
// It holds all of held in memory. A Repairer does not.
func StaleKeys(held, live iter.Seq[string], r kv.Retention, c kv.Cursor) ([]string, error) {
	if truth := protocol.ListingTruth(r.Kernel(), c.SeenEvicting); truth != protocol.TruthYes {
		return nil, &ListingNotTruthError{Truth: truth, Retention: r, SeenEvicting: c.SeenEvicting}
	}
	stale := map[string]struct{}{}
	for key := range held {
		stale[key] = struct{}{}
	}
	for key := range live {
		delete(stale, key)
	}
	return slices.Sorted(maps.Keys(stale)), nil
}
