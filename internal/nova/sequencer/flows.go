package sequencer

// Flow says which batches are admitted in the order of their submission: those of one session, as NewFlow gives it out, or, for
// the zero value, all one-shots. Batches of a flow come after all that were submitted before it was given out, so that what is
// left of a connection that was lost does not come after what is sent over the next one.
type Flow struct{ id, after uint64 }

// flows are the appends that wait to be admitted. Those of one flow come out in order, and flows come out in turn, so that
// each has its share of the bytes however much the others ask for. The zero value is empty.
type flows struct {
	of   map[uint64]*flow
	turn fifo[*flow] // those that have something; the first one's turn it is
	idle *flow       // one that had something, to be used again
	past uint64      // everything that was submitted up to here is out
}

// flow is what one session has waiting, or all one-shots together.
type flow struct {
	Flow
	items  fifo[item]
	credit int64 // bytes that it may still have in this turn
}

// turnBytes is what a flow may have admitted in a turn. A larger batch waits for several.
const turnBytes = 64 << 10

func (f *flows) add(it item) {
	if f.of == nil {
		f.of = map[uint64]*flow{}
	}
	w := f.of[it.append.Flow.id]
	if w == nil {
		if w, f.idle = f.idle, nil; w == nil {
			w = &flow{}
		}
		w.Flow, w.credit = it.append.Flow, turnBytes
		f.of[w.id] = w
		f.turn.push(w)
	}
	w.items.push(it)
}

// next takes out the append whose turn it is.
func (f *flows) next() (it item, ok bool) {
	for looked := false; f.turn.len() > 0; {
		w := f.turn.first()
		if w.after > f.past && !looked {
			looked = true
			f.look()
		}
		if w.after > f.past {
			f.turn.pop()
			f.turn.push(w) // what was there before is another flow's, whose turn comes
			continue
		}
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

// look finds up to where everything that was submitted is out.
func (f *flows) look() {
	oldest := f.turn.first().items.first().number
	for _, w := range f.turn.all[f.turn.at:] {
		oldest = min(oldest, w.items.first().number)
	}
	f.past = oldest - 1
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
