package protocol

import (
	"math"
	"slices"
	"testing"
)

// sampleLists are all lists of up to three readings.
func sampleLists() [][]SampleFound {
	out := [][]SampleFound{nil}
	for from := 0; len(out[from]) < 3; from++ {
		for _, f := range []SampleFound{SampleAbsent, SampleMatches, SampleDiffers} {
			out = append(out, append(slices.Clone(out[from]), f))
		}
	}
	return out
}

// specLogIsSame says the same as a table of evidence: what contradicts, in the order of its weight, then what proves.
func specLogIsSame(s LogSeen) LogAnswer {
	noted, otherCreation := s.NotedCreated != 0, s.Created-s.NotedCreated != 0
	differs, matches := slices.Contains(append(s.Samples, s.AtCursor), SampleDiffers), s.AtCursor == SampleMatches
	endsBefore := !(s.Cursor <= s.Last)
	return map[[2]bool]map[bool]LogAnswer{
		{false, false}: {false: LogUnknown, true: LogSame},
		{false, true}:  {false: LogRewound, true: LogRewound},
		{true, false}:  {false: LogReplaced, true: LogReplaced},
		{true, true}:   {false: LogReplaced, true: LogReplaced},
	}[[2]bool{noted && otherCreation, endsBefore || differs}][matches]
}

func TestLogIsSame(t *testing.T) {
	seen := map[LogAnswer]int{}
	for _, noted := range []int64{0, 1, 2, math.MaxInt64, math.MinInt64} {
		for _, created := range []int64{0, 1, 2, math.MaxInt64, math.MinInt64} {
			for _, cursor := range []uint64{0, 1, 2, 3, math.MaxUint64} {
				for _, last := range []uint64{0, 1, 2, 3, math.MaxUint64} {
					for _, samples := range sampleLists() {
						for _, at := range []SampleFound{SampleAbsent, SampleMatches, SampleDiffers} {
							s := LogSeen{NotedCreated: noted, Created: created, Cursor: cursor, Last: last, AtCursor: at, Samples: samples}
							got := LogIsSame(s)
							if want := specLogIsSame(s); got != want {
								t.Fatalf("%+v: got %v, want %v", s, got, want)
							}
							seen[got]++
						}
					}
				}
			}
		}
	}
	if len(seen) != 4 {
		t.Fatalf("some answer was never given: %v", seen)
	}
}

// The order in which samples were read back says nothing.
func TestLogIsSameIgnoresSampleOrder(t *testing.T) {
	for _, samples := range sampleLists() {
		turned := slices.Clone(samples)
		slices.Reverse(turned)
		if a, b := LogIsSame(LogSeen{Samples: samples}), LogIsSame(LogSeen{Samples: turned}); a != b {
			t.Fatalf("%v: %v, turned round %v", samples, a, b)
		}
	}
}

// An older message that is where it was does not make the log the same: it may have been written again after it.
func TestAnOlderSampleProvesNothing(t *testing.T) {
	s := LogSeen{Cursor: 2, Last: 3, Samples: []SampleFound{SampleMatches}}
	if got := LogIsSame(s); got != LogUnknown {
		t.Errorf("%+v: %v", s, got)
	}
	s.AtCursor = SampleMatches
	if got := LogIsSame(s); got != LogSame {
		t.Errorf("%+v: %v", s, got)
	}
}
