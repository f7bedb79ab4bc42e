package sequencer

import "time"

// Events tell what a leader does; any of them may be nil. They are called on the leader's goroutine, in the order of the log,
// and must not block.
type Events struct {
	// Committed: a frame with batches is in the log. It is called when their writers have been answered.
	Committed func(Committed)
	// Missed: a batch was refused because its first record would have got another number.
	Missed func()
	// Refused: a batch was refused because of its token, or of a fence that ended its session.
	Refused func()
	// Fenced: a fence is in the log, and is not answered yet. What was admitted before it has been answered.
	Fenced func(token string, fence uint64)
	// Indefinite: so many batches were given up, and may be in the log.
	Indefinite func(batches int)
	// Recovering: the log refused a message, or did not answer, and is led anew.
	Recovering func(err error)
	// Recovered: the leader goes on after so long.
	Recovered func(took time.Duration)
}

// Committed is one frame of batches.
type Committed struct {
	Batches, Records int
	// Bytes are what the records count for in limits.
	Bytes int64
	// Took is from sending the frame to the log's acknowledgment.
	Took time.Duration
}

func (l *Leader) tellCommitted(k *link) {
	if l.o.Events.Committed == nil || len(k.appends) == 0 {
		return
	}
	c := Committed{Batches: len(k.appends), Took: time.Since(k.deadline.Add(-l.o.AckTimeout))}
	for i := range k.appends {
		w := &k.appends[i]
		c.Records += int(w.end.SeqNum - w.start.SeqNum)
		c.Bytes += w.size
	}
	l.o.Events.Committed(c)
}

func call(f func()) {
	if f != nil {
		f()
	}
}
