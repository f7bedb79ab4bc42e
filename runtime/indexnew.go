package fold

import "hash/maphash"

// A block of newKeys has 16 bits for each of its keys, of which it sets four: of the keys that are not in it, it takes
// one in some 400 for one that is.
const (
	newKeysBlock  = 1 << 20
	newKeysWords  = newKeysBlock * 16 / 64
	newKeysBlocks = 32 // 64 MiB, and 32 million keys
)

// newKeys tells which keys a table has had no update of, while a fold that began without any of its rows hydrates: the
// store need not be asked for what was there before them. It is a Bloom filter that grows.
type newKeys struct {
	seed   maphash.Seed
	blocks [][]uint64
	n      int // keys in the last block
}

func newNewKeys() *newKeys { return &newKeys{seed: maphash.MakeSeed()} }

// add notes a key. It is false when there is no more room, and the filter of no more use.
func (k *newKeys) add(key string) bool {
	if len(k.blocks) == 0 || k.n == newKeysBlock {
		if len(k.blocks) == newKeysBlocks {
			return false
		}
		k.blocks, k.n = append(k.blocks, make([]uint64, newKeysWords)), 0
	}
	k.n++
	block := k.blocks[len(k.blocks)-1]
	for _, bit := range k.bits(key) {
		block[bit/64] |= 1 << (bit % 64)
	}
	return true
}

// isNew reports whether the key was surely never added.
func (k *newKeys) isNew(key string) bool {
	bits := k.bits(key)
	for _, block := range k.blocks {
		set := uint64(1)
		for _, bit := range bits {
			set &= block[bit/64] >> (bit % 64)
		}
		if set != 0 {
			return false
		}
	}
	return true
}

// bits are the key's places in a block.
func (k *newKeys) bits(key string) (bits [4]uint32) {
	h := maphash.String(k.seed, key)
	first, step := uint32(h), uint32(h>>32)|1
	for i := range bits {
		bits[i] = (first + uint32(i)*step) % (newKeysWords * 64)
	}
	return bits
}
