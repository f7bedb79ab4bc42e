package ring

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func members(n int) []Member {
	ms := make([]Member, n)
	for i := range ms {
		ms[i] = Member{ID: fmt.Sprintf("o%d", i), Address: fmt.Sprintf("10.0.0.%d:80", i), Weight: 1}
	}
	return ms
}

func request(i int) string { return fmt.Sprintf("/path/%d.jpg", i) }

// owners is the owner of each of n requests.
func owners(r *Ring, n int) []string {
	out := make([]string, n)
	for i := range out {
		m, ok := r.Pick(request(i))
		if !ok {
			return nil
		}
		out[i] = m.ID
	}
	return out
}

const requests = 50_000

func TestLeavingMovesOnlyWhatTheMemberHad(t *testing.T) {
	ms := members(10)
	before, after := owners(New(ms...), requests), owners(New(slices.Delete(slices.Clone(ms), 3, 4)...), requests)
	for i := range before {
		switch {
		case before[i] == "o3" && after[i] == "o3":
			t.Fatalf("request %d is still with the member that left", i)
		case before[i] != "o3" && after[i] != before[i]:
			t.Fatalf("request %d moved from %s to %s, and neither left", i, before[i], after[i])
		}
	}
}

func TestJoiningMovesOnlyWhatTheMemberGets(t *testing.T) {
	ms := members(11)
	before, after := owners(New(ms[:10]...), requests), owners(New(ms...), requests)
	moved := 0
	for i := range before {
		if before[i] == after[i] {
			continue
		}
		if moved++; after[i] != "o10" {
			t.Fatalf("request %d moved from %s to %s, and neither joined", i, before[i], after[i])
		}
	}
	share(t, "o10", moved, 1.0/11)
}

// share holds a count of requests against an expected share, with six standard deviations of room.
func share(t *testing.T, who string, got int, want float64) {
	t.Helper()
	room := 6 * math.Sqrt(requests*want*(1-want))
	if diff := math.Abs(float64(got) - requests*want); diff > room {
		t.Errorf("%s has %d requests of %d, want %.0f ± %.0f", who, got, requests, requests*want, room)
	}
}

func TestSharesFollowWeights(t *testing.T) {
	ms := members(5)
	total := 0.0
	for i := range ms {
		ms[i].Weight = uint32(i) // o0 is out
		total += float64(i)
	}
	counts := map[string]int{}
	for _, id := range owners(New(ms...), requests) {
		counts[id]++
	}
	for i, m := range ms {
		share(t, m.ID, counts[m.ID], float64(i)/total)
	}
}

func TestHeavierMemberOnlyGains(t *testing.T) {
	ms := members(6)
	before := owners(New(ms...), requests)
	ms[2].Weight = 3
	after := owners(New(ms...), requests)
	for i := range before {
		if before[i] != after[i] && after[i] != "o2" {
			t.Fatalf("request %d moved from %s to %s when o2 became heavier", i, before[i], after[i])
		}
	}
}

func TestOrder(t *testing.T) {
	ms := members(8)
	r := New(ms...)
	for i := range 500 {
		order := r.Order(request(i))
		if len(order) != len(ms) {
			t.Fatalf("%d members", len(order))
		}
		// Who is next is whom the request goes to when those before have left.
		left := slices.Clone(ms)
		for _, want := range order {
			got, ok := New(left...).Pick(request(i))
			if !ok || got.ID != want.ID {
				t.Fatalf("request %d: order %v, without those before %s it is %s", i, order, want.ID, got.ID)
			}
			left = slices.DeleteFunc(left, func(m Member) bool { return m.ID == want.ID })
		}
	}
}

func TestOrderOfComingDoesNotMatter(t *testing.T) {
	ms := members(9)
	want := owners(New(ms...), 1000)
	for range 10 {
		rand.Shuffle(len(ms), func(i, j int) { ms[i], ms[j] = ms[j], ms[i] })
		if got := owners(New(ms...), 1000); !slices.Equal(got, want) {
			t.Fatal("another order, other owners")
		}
	}
}

// The mapping is the same in every process and on every platform; a change of it moves all requests of a fleet.
func TestMappingIsPinned(t *testing.T) {
	if got, want := owners(New(members(4)...), 12), []string{"o1", "o1", "o3", "o3", "o3", "o3", "o2", "o1", "o1", "o0", "o1", "o2"}; !slices.Equal(got, want) {
		t.Errorf("owners %q, want %q", got, want)
	}
}

func TestEmptyRing(t *testing.T) {
	for _, r := range []*Ring{{}, New(), New(Member{ID: "o", Weight: 0})} {
		if m, ok := r.Pick("x"); ok {
			t.Errorf("picked %v", m)
		}
		if o := r.Order("x"); len(o) != 0 {
			t.Errorf("order %v", o)
		}
	}
}

func TestPickDoesNotAllocate(t *testing.T) {
	r := New(members(20)...)
	if n := testing.AllocsPerRun(100, func() { r.Pick("/path/of/a/request") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPick100(b *testing.B) {
	r := New(members(100)...)
	b.ReportAllocs()
	for b.Loop() {
		r.Pick("/path/of/a/request")
	}
}
