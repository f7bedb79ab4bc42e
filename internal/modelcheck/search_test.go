package modelcheck

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestTablesKeepTheLeastClaim(t *testing.T) {
	for name, seen := range map[string]table{"hashes": newHashes(), "encodings": newEncodings()} {
		keys := map[uint64]bool{}
		const count = 50_000
		enc := func(i int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(i)) }
		for i := range count {
			if _, ok := seen.find(enc(i)); ok {
				t.Fatalf("%s: %d is there before its time", name, i)
			}
			for n, want := range []outcome{fresh, lost, won, lost} {
				claim := claimed | uint64([]int{5, 7, 3, 3}[n]+i)
				key, o := seen.offer(enc(i), claim)
				if keys[key] = true; o != want {
					t.Fatalf("%s: offer %d of %d is %d, not %d", name, n, i, o, want)
				}
			}
		}
		if len(keys) != count {
			t.Errorf("%s: %d keys for %d states", name, len(keys), count)
		}
		for i := range count {
			key, ok := seen.find(enc(i))
			if !ok || seen.at(key) != claimed|uint64(3+i) {
				t.Fatalf("%s: %d is at %x, %t", name, i, seen.at(key), ok)
			}
			seen.settle(key, uint64(i))
			if _, o := seen.offer(enc(i), claimed); o != lost || seen.at(key) != uint64(i) {
				t.Fatalf("%s: %d lost its number", name, i)
			}
		}
	}
}

// The state that two workers meet belongs to the one whose states come first, even if the other was there before.
func TestTheFirstWayWins(t *testing.T) {
	type state struct {
		place, from int // from is not encoded, as after a symmetry
	}
	for _, exact := range []bool{false, true} {
		late := make(chan struct{})
		var once sync.Once
		wait := func(place int) bool {
			switch place {
			case 1:
				select {
				case <-late:
				case <-time.After(time.Minute):
					return false
				}
			case 2 * chunkSize:
				once.Do(func() { close(late) })
			}
			return true
		}
		var waited atomic.Bool
		waited.Store(true)
		m := Model[state, int]{
			Name: "late",
			Init: []state{{}},
			Actions: func(s state, out []int) []int {
				switch s.place {
				case 0:
					for i := range 2 * chunkSize {
						out = append(out, i+1)
					}
					return out
				case -1:
					return out
				}
				return append(out, -1, -2)
			},
			Next: func(s state, a int) (state, bool) {
				if a == -2 { // the action before is done with
					if s.place == 2*chunkSize {
						wait(s.place)
					}
					return s, false
				}
				if s.place == 1 && !wait(1) {
					waited.Store(false)
				}
				return state{place: a, from: s.place}, true
			},
			Encode:     func(s state, out []byte) []byte { return binary.AppendVarint(out, int64(s.place)) },
			Properties: []Property[state]{Always("no end", func(s state) bool { return s.place != -1 })},
		}
		r := Check(m, Options{Workers: 2, Exact: exact})
		if len(r.Violations) != 1 || !waited.Load() {
			t.Fatalf("waited %t: %+v", waited.Load(), r)
		}
		if steps := r.Violations[0].Trace.Indices(); len(steps) != 3 || steps[1] != 0 || steps[2] != 0 {
			t.Errorf("exact %t: the way is %v", exact, steps)
		}
	}
}

// wide has a thousand new states after each.
func wide(calls *atomic.Int64) Model[uint64, uint64] {
	return Model[uint64, uint64]{
		Name: "wide",
		Init: []uint64{1},
		Actions: func(_ uint64, out []uint64) []uint64 {
			for i := range uint64(1000) {
				out = append(out, i)
			}
			return out
		},
		Next: func(s, a uint64) (uint64, bool) {
			calls.Add(1)
			return s*1000 + a, true
		},
		Encode: func(s uint64, out []byte) []byte { return binary.BigEndian.AppendUint64(out, s) },
	}
}

func TestTruncatedSearchStopsInItsLevel(t *testing.T) {
	var calls atomic.Int64
	r := Check(wide(&calls), Options{Workers: 1, MaxStates: 5000})
	if !r.Truncated || r.States != 1001 || calls.Load() > 1000*(1+chunkSize) {
		t.Errorf("%v, truncated %t, after %d calls", r, r.Truncated, calls.Load())
	}
}

func TestReplayLeavesOpenWhatIsTooLarge(t *testing.T) {
	var calls atomic.Int64
	if m := wide(&calls); !m.reaches(1, func(s uint64) bool { return s == 0 }, 5000) {
		t.Error("a search that ended early says that the goal can't be reached")
	}
}
