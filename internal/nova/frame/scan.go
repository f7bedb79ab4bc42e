package frame

import (
	"slices"

	"github.com/typedfold/fold/internal/nova"
)

// scanned is how many records a Scanner gives at once: few enough that they stay in the processor's cache until they are used.
const scanned = 32

// Scanner reads the records of one frame after the other, some at a time, into the same memory. Its zero value is ready. It is used by one
// goroutine.
type Scanner struct {
	r     reader
	state State // before the next record
	left  int   // records of the batch
	buf   []nova.Record
}

// Begin begins with a frame, and is its state. Bodies and header values of its records alias b.
func (s *Scanner) Begin(b []byte) (State, error) {
	s.r, s.left = reader{b: b}, 0
	_, s.state = s.r.head()
	return s.state, s.r.err
}

// Next is the next records of the frame, at most 32, which are valid until the next call; none is its end. Those in front of
// damage are given before ErrCorrupt, as far as others were asked for before.
func (s *Scanner) Next() ([]nova.Record, error) {
	s.buf = s.buf[:0]
	for len(s.buf) < scanned && s.r.err == nil {
		if s.left == 0 {
			if len(s.r.b) == 0 {
				break
			}
			_, s.left = s.r.batchHead(s.state.Token, s.state.Next)
			continue
		}
		from, n := len(s.buf), min(scanned-len(s.buf), s.left)
		s.buf = slices.Grow(s.buf, n)[:from+n]
		for i := from; i < from+n; i++ {
			s.state.Timestamp = s.r.record(&s.buf[i], s.state.Timestamp)
		}
		s.state.Next += uint64(n)
		s.left -= n
	}
	if s.r.err != nil {
		return nil, s.r.err
	}
	return s.buf, nil
}
