package frame

import (
	"math/bits"

	"github.com/typedfold/fold/internal/nova"
)

// uvarint is how many bytes the number needs.
func uvarint(n int) int { return (bits.Len64(uint64(n)|1) + 6) / 7 }

// Beyond what nova.BatchBytes counts, a frame has its head, its batch's, and for each record at most so many bytes; and the
// length of every part, which grows by a byte with each 7 bits: by less than a 64th of the part.
const (
	batchHead  = 2 + nova.MaxTokenBytes + 20
	recordHead = 12
)

// MaxBatch is what a batch may count for in any case, in bytes as nova.BatchBytes counts them, where a message has at most so
// many bytes: no batch up to it makes a frame that is larger.
func MaxBatch(message int) int {
	n := (message - Head - batchHead - nova.MaxBatchRecords*recordHead) / 65 * 64
	return max(0, min(n, nova.MaxBatchBytes))
}
