package server

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/node"
	"github.com/typedfold/fold/internal/nova/reader"
	"github.com/typedfold/fold/internal/nova/sequencer"
)

// Events tell what a server does; any of them may be nil. They are called from many goroutines at once, on the way of what
// they tell of, and must not block. What is told of a stream is told by the node that leads it. Package novametrics makes
// metrics of them.
type Events struct {
	// Call: a call has ended, a session and a read too.
	Call func(Call)
	// Committed: batches are in a stream's log, in one frame.
	Committed func(Committed)
	// Missed and FencedOut: a batch was refused for its number, or for its token.
	Missed, FencedOut func(namespace string)
	// Indefinite: so many batches were given up, and may be in the log.
	Indefinite func(namespace string, batches int)
	// Fenced: a token was installed or cleared.
	Fenced func(namespace string)
	// Led: this node has taken a stream over. LeadEnded: it leads it no more.
	Led       func(namespace string)
	LeadEnded func(namespace string, why error)
	// Recovering: the log refused a leader's message, or did not answer; it finds out what became of it. Recovered: it goes
	// on, after so long.
	Recovering func(namespace string, why error)
	Recovered  func(namespace string, took time.Duration)
	// Read: records were sent to a reader.
	Read func(Read)
}

// Call is one call that has ended.
type Call struct {
	// Method is the procedure, or the method and pattern of the route.
	Method string
	// Code is the Connect code's name, or "ok".
	Code string
	// Outcome says of an error what came of a write: "nothing_written", "unknown", or "" where it does not say.
	Outcome string
	// RequestID is the one of the log's line, and of the answer's header.
	RequestID string
	Took      time.Duration
}

// Committed is one frame of batches in a stream's log.
type Committed struct {
	Namespace        string
	Batches, Records int
	// Bytes are what the records count for in limits.
	Bytes int64
	// Took is from sending the frame to the log's acknowledgment.
	Took time.Duration
}

// Read is what was sent to a reader at once.
type Read struct {
	Namespace string
	Records   int
	Bytes     int64
}

// Stats is what a server holds at a moment.
type Stats struct {
	// Sessions are the append sessions, Reads the reads, that are open.
	Sessions, Reads int64
	// Bytes are the records of batches that have no answer yet.
	Bytes int64
	// Leads are the streams that this node leads.
	Leads int
}

// Stats is what the server holds now.
func (s *Server) Stats() Stats {
	return Stats{Sessions: s.sessions.held.Load(), Reads: s.reads.held.Load(), Bytes: s.bytes.held.Load(), Leads: s.node.Leads()}
}

// nodeEvents are the events as the node takes them.
func (e Events) nodeEvents() node.Events {
	return node.Events{
		Led: func(a nova.Addr) { tell(e.Led, a.Namespace) },
		LeadEnded: func(a nova.Addr, why error) {
			if e.LeadEnded != nil {
				e.LeadEnded(a.Namespace, why)
			}
		},
		Leader: func(a nova.Addr) sequencer.Events { return e.leaderEvents(a.Namespace) },
	}
}

func (e Events) leaderEvents(namespace string) sequencer.Events {
	out := sequencer.Events{
		Missed:  func() { tell(e.Missed, namespace) },
		Refused: func() { tell(e.FencedOut, namespace) },
		Fenced:  func(string, uint64) { tell(e.Fenced, namespace) },
	}
	if e.Committed != nil {
		out.Committed = func(c sequencer.Committed) {
			e.Committed(Committed{Namespace: namespace, Batches: c.Batches, Records: c.Records, Bytes: c.Bytes, Took: c.Took})
		}
	}
	if e.Indefinite != nil {
		out.Indefinite = func(batches int) { e.Indefinite(namespace, batches) }
	}
	if e.Recovering != nil {
		out.Recovering = func(why error) { e.Recovering(namespace, why) }
	}
	if e.Recovered != nil {
		out.Recovered = func(took time.Duration) { e.Recovered(namespace, took) }
	}
	return out
}

func tell(f func(string), namespace string) {
	if f != nil {
		f(namespace)
	}
}

// counted is an Out that tells of what it has taken.
type counted struct {
	reader.Out
	tell      func(Read)
	namespace string
}

// counted tells of what a read sends; without Events.Read the Out is left as it is.
func (s *Server) counted(namespace string, out reader.Out) reader.Out {
	if s.o.Events.Read == nil {
		return out
	}
	return &counted{Out: out, tell: s.o.Events.Read, namespace: namespace}
}

func (c *counted) Take(rs reader.Records) error {
	told := Read{Namespace: c.namespace, Records: len(rs.Records), Bytes: int64(nova.BatchBytes(rs.Records))} // they are not its own behind Take
	err := c.Out.Take(rs)
	if err == nil && told.Records > 0 {
		c.tell(told)
	}
	return err
}

// room is a semaphore that knows how much of it is held.
type room struct {
	of   *semaphore.Weighted
	held atomic.Int64
}

func newRoom(n int64) *room { return &room{of: semaphore.NewWeighted(n)} }

func (r *room) Acquire(ctx context.Context, n int64) error {
	err := r.of.Acquire(ctx, n)
	if err == nil {
		r.held.Add(n)
	}
	return err
}

func (r *room) TryAcquire(n int64) bool {
	ok := r.of.TryAcquire(n)
	if ok {
		r.held.Add(n)
	}
	return ok
}

func (r *room) Release(n int64) {
	r.held.Add(-n)
	r.of.Release(n)
}
