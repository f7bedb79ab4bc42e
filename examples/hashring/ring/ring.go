// Package ring maps requests to origins by rendezvous hashing, with origins that come and go in the bucket "ring".
package ring

import (
	"cmp"
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Member is one origin of a ring.
type Member struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	// Weight is the member's share in relation to the others'; 0 takes it out.
	Weight uint32 `json:"weight"`

	hash uint64
}

// Ring is an immutable set of members. Every process that has the same members maps a request to the same one, in any
// order of their coming, and a member that joins or leaves moves only the requests that it gets or had. The zero value
// is empty.
type Ring struct{ members []Member } // in the order of their ids

// New is a ring of the members; those without a weight are left out.
func New(members ...Member) *Ring {
	r := &Ring{}
	for _, m := range members {
		if m.Weight > 0 {
			m.hash = xxhash.Sum64String(m.ID)
			r.members = append(r.members, m)
		}
	}
	slices.SortFunc(r.members, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return r
}

// Members are the ring's members in the order of their ids. The slice is shared: don't change it.
func (r *Ring) Members() []Member { return r.members }

// Pick is the member for a request; false when the ring is empty. It costs a few nanoseconds a member, and allocates
// nothing.
func (r *Ring) Pick(request string) (Member, bool) {
	if len(r.members) == 0 {
		return Member{}, false
	}
	h := xxhash.Sum64String(request)
	best, bestScore := 0, math.Inf(-1)
	for i := range r.members {
		if s := r.members[i].score(h); s > bestScore {
			best, bestScore = i, s
		}
	}
	return r.members[best], true
}

// Order is every member, from the one that Pick gives down: whom to ask next when an origin fails.
func (r *Ring) Order(request string) []Member {
	h := xxhash.Sum64String(request)
	members := slices.Clone(r.members)
	slices.SortStableFunc(members, func(a, b Member) int { return cmp.Compare(b.score(h), a.score(h)) })
	return members
}

// score is the member's bid for a request: weight / -ln(x) of a hash x in (0, 1) of both. The highest bid wins, with a
// probability in proportion to the weight, and no bid depends on any other member. (Thaler and Ravishankar's highest
// random weight; the logarithm is Schindelhauer and Schomaker's.)
func (m *Member) score(request uint64) float64 {
	x := (float64(mix(request^m.hash)>>11) + 0.5) / (1 << 53)
	return float64(m.Weight) / -math.Log(x)
}

// mix spreads each bit of its input over all of its output: the finaliser of SplitMix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
