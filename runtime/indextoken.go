package fold

import (
	"bytes"
	"encoding/hex"

	"github.com/zeebo/blake3"
)

// maxIndexToken is the longest token that stands in an entry as it is. A longer one is replaced by its hash, since a
// value may be longer than a store's longest key. Entries are only asked for by whole tokens, so nothing is lost.
const maxIndexToken = 4096

// shortToken replaces the token that is at b[from:] by its hash when it is long. No encoding writes a "#".
func shortToken(b []byte, from int) []byte {
	if len(b)-from <= maxIndexToken {
		return b
	}
	sum := blake3.Sum256(b[from:])
	return hex.AppendEncode(append(b[:from], '#'), sum[:])
}

// shortTokens is shortToken for each of the tokens of a tuple, with 0x00 between them. It may write over them.
func shortTokens(tokens []byte) []byte {
	short := tokens[:0]
	for i, token := range bytes.Split(tokens, []byte{0}) {
		if i > 0 {
			short = append(short, 0)
		}
		n := len(short)
		short = shortToken(append(short, token...), n)
	}
	return short
}
