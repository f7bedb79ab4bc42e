package sequencer

// flows are the appends that wait to be admitted. Those of one flow come out in order, and flows come out in turn, so that
// each has its share of the bytes however much the others ask for. The zero value is empty.
type flows struct {
	of   map[uint64]*flow
	turn fifo[*flow] // those that have something; the first one's turn it is
	idle *flow       // one that had something, to be used again
}

// flow is what one session has waiting, or all one-shots together.
type flow struct {
	id     uint64
	items  fifo[item]
	credit int64 // bytes that it may still have in this turn
}

// turnBytes is what a flow may have admitted in a turn. A larger batch waits for several.
const turnBytes = 64 << 10

func (f *flows) add(it item) {
	if f.of == nil {
		f.of = map[uint64]*flow{}
	}
	w := f.of[it.append.Flow]
	if w == nil {
		if w, f.idle = f.idle, nil; w == nil {
			w = &flow{}
		}
		w.id, w.credit = it.append.Flow, turnBytes
		f.of[w.id] = w
		f.turn.push(w)
	}
	w.items.push(it)
}

// next takes out the append whose turn it is.
func (f *flows) next() (it item, ok bool) {
	for f.turn.len() > 0 {
		w := f.turn.first()
		if it = w.items.first(); it.size > w.credit {
			w.credit += turnBytes
			f.turn.pop()
			f.turn.push(w)
			continue
		}
		w.credit -= it.size
		w.items.pop()
		if w.items.len() == 0 {
			f.turn.pop()
			delete(f.of, w.id)
			f.idle = w
		}
		return it, true
	}
	return item{}, false
}

// fifo is a queue that keeps its memory.
type fifo[T any] struct {
	all []T
	at  int // those before are out
}

func (q *fifo[T]) len() int { return len(q.all) - q.at }

func (q *fifo[T]) first() T { return q.all[q.at] }

func (q *fifo[T]) push(v T) {
	if q.at > len(q.all)/2 {
		n := copy(q.all, q.all[q.at:])
		clear(q.all[n:])
		q.all, q.at = q.all[:n], 0
	}
	q.all = append(q.all, v)
}

func (q *fifo[T]) pop() {
	var none T
	q.all[q.at] = none
	q.at++
}
