package modelcheck

import (
	"hash/maphash"
	"math/bits"
	"sync"
)

// table is the set of states that were met. Beside each stands a number: while the level is searched that first met it,
// the least claim to have done so, and from then on the state's own. A state's number is less than every claim.
//
// Find, offer: at any time, by anyone. At, settle: while nobody offers, and by one at a time for one key.
type table interface {
	// offer brings an encoded state with a claim. Its key names the state from now on.
	offer(enc []byte, claim uint64) (key uint64, o outcome)
	find(enc []byte) (key uint64, ok bool)
	at(key uint64) uint64
	settle(key, number uint64)
}

// outcome of an offer.
type outcome uint8

const (
	lost  outcome = iota // another claim is less
	won                  // the state was met in this level, by a greater claim
	fresh                // the state was met for the first time
)

const shards = 256

// hashes is a table that keeps a hash of each state, in open addressing.
type hashes struct {
	seed   maphash.Seed
	shards [shards]hashShard
}

type hashShard struct {
	mu    sync.Mutex
	slots []hashSlot
	used  int
}

// hashSlot is free while its key is 0.
type hashSlot struct{ key, number uint64 }

func newHashes() *hashes { return &hashes{seed: maphash.MakeSeed()} }

func (t *hashes) key(enc []byte) uint64 { return max(maphash.Bytes(t.seed, enc), 1) }

func (t *hashes) shard(key uint64) *hashShard { return &t.shards[key%shards] }

func (t *hashes) offer(enc []byte, claim uint64) (uint64, outcome) {
	key := t.key(enc)
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used*5 >= len(s.slots)*4 {
		s.grow()
	}
	slot := s.slot(key)
	switch {
	case slot.key == 0:
		*slot = hashSlot{key, claim}
		s.used++
		return key, fresh
	case claim < slot.number:
		slot.number = claim
		return key, won
	}
	return key, lost
}

func (t *hashes) find(enc []byte) (uint64, bool) {
	key := t.key(enc)
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return key, len(s.slots) > 0 && s.slot(key).key == key
}

func (t *hashes) at(key uint64) uint64 { return t.shard(key).slot(key).number }

func (t *hashes) settle(key, number uint64) { t.shard(key).slot(key).number = number }

// slot is where the key is, or where it belongs.
func (s *hashShard) slot(key uint64) *hashSlot {
	at, _ := bits.Mul64(key, uint64(len(s.slots)))
	for s.slots[at].key != key && s.slots[at].key != 0 {
		if at++; at == uint64(len(s.slots)) {
			at = 0
		}
	}
	return &s.slots[at]
}

func (s *hashShard) grow() {
	old := s.slots
	s.slots = make([]hashSlot, max(16, len(old)+len(old)/2))
	for _, slot := range old {
		if slot.key != 0 {
			*s.slot(slot.key) = slot
		}
	}
}

// encodings is a table that keeps each state's whole encoding.
type encodings struct {
	seed   maphash.Seed
	shards [shards]encodingShard
}

type encodingShard struct {
	mu      sync.Mutex
	index   map[string]uint64
	numbers []uint64
}

func newEncodings() *encodings {
	t := &encodings{seed: maphash.MakeSeed()}
	for i := range t.shards {
		t.shards[i].index = map[string]uint64{}
	}
	return t
}

func (t *encodings) offer(enc []byte, claim uint64) (uint64, outcome) {
	n := maphash.Bytes(t.seed, enc) % shards
	s := &t.shards[n]
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.index[string(enc)]
	if !ok {
		i = uint64(len(s.numbers))
		s.index[string(enc)] = i
		s.numbers = append(s.numbers, claim)
		return i*shards + n, fresh
	}
	if claim < s.numbers[i] {
		s.numbers[i] = claim
		return i*shards + n, won
	}
	return i*shards + n, lost
}

func (t *encodings) find(enc []byte) (uint64, bool) {
	n := maphash.Bytes(t.seed, enc) % shards
	s := &t.shards[n]
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.index[string(enc)]
	return i*shards + n, ok
}

func (t *encodings) at(key uint64) uint64 { return t.shards[key%shards].numbers[key/shards] }

func (t *encodings) settle(key, number uint64) { t.shards[key%shards].numbers[key/shards] = number }
