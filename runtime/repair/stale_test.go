package repair

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/protocol"
)

// TestStaleKeysSmall tries all pairs of sets of four keys.
func TestStaleKeysSmall(t *testing.T) {
	set := func(bits int) (keys []string) {
		for i := range 4 {
			if bits&(1<<i) != 0 {
				keys = append([]string{fmt.Sprint("k", i)}, keys...)
			}
		}
		return keys
	}
	for held := range 16 {
		for live := range 16 {
			got, err := StaleKeys(slices.Values(append(set(held), set(held)...)), slices.Values(set(live)), kv.Retention{}, kv.CursorAt(3))
			want := set(held &^ live)
			slices.Sort(want)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("held %v, live %v: got %v, err %v, want %v", set(held), set(live), got, err, want)
			}
		}
	}
}

func TestStaleKeysAreRefusedWhereTheListingIsNotTheTruth(t *testing.T) {
	for _, unknown := range []bool{false, true} {
		for _, evicts := range []bool{false, true} {
			for _, inside := range []bool{false, true} {
				for first := range uint64(4) {
					for _, seen := range []bool{false, true} {
						r := kv.Retention{Unknown: unknown, EvictsCurrentValues: evicts, EvictsInside: inside, First: first}
						keys, err := StaleKeys(slices.Values([]string{"a"}), slices.Values([]string(nil)), r, kv.Cursor{SeenEvicting: seen})
						var not *ListingNotTruthError
						if protocol.ListingTruth(r.Kernel(), seen) == protocol.TruthYes {
							if err != nil || len(keys) != 1 {
								t.Errorf("%+v, memo %t: %v, err %v", r, seen, keys, err)
							}
						} else if !errors.Is(err, ErrListingNotTruth) || !errors.As(err, &not) || not.Hint() == "" || not.Error() == "" || keys != nil {
							t.Errorf("%+v, memo %t: %v, err %v", r, seen, keys, err)
						}
					}
				}
			}
		}
	}
}

// TestStaleKeysByHand is the loop of a caller that follows a log by itself.
func TestStaleKeysByHand(t *testing.T) {
	log := kvtest.NewLog(kvtest.Options{})
	log.Set("kept", "v")
	log.Set("gone", "v")
	mirror := log.Truth(kv.AllKeys(), 2)
	log.Remove("gone")
	log.PurgeMarkers()
	log.Set("new", "v")

	live := map[string]bool{}
	for k, err := range log.Keys(t.Context(), kv.AllKeys()) {
		if err != nil {
			t.Fatal(err)
		}
		live[k.Key] = true
	}
	info, err := log.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stale, err := StaleKeys(maps.Keys(mirror), maps.Keys(live), info.Retention, kv.CursorAt(2))
	if err != nil || !slices.Equal(stale, []string{"gone"}) {
		t.Errorf("stale %v, err %v", stale, err)
	}
}
