package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/typedfold/fold/client"
)

// worker takes items from a source to a stream, each exactly once, for as long as it is the owner.
type worker struct {
	c     *client.Client
	addr  string
	elect *election
	// items is how many the source has; it can be read again from any of them.
	items uint64
	pace  time.Duration
	say   io.Writer
}

// flight is how many appends have no answer yet.
const flight = 32

// header says which item of the source a record is. It is written with the record, so it can't disagree with the stream.
const header = "item"

// run works until every item is in the stream.
func (w *worker) run(ctx context.Context) error {
	for {
		t, err := w.elect.win(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(w.say, "%s owns %s\n", w.elect.name, t.token())
		err = w.own(ctx, t)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}
		// Whatever it was, also a miss or an answer that was lost: the next term begins with what the stream holds.
		fmt.Fprintf(w.say, "%s is no owner any more: %v\n", w.elect.name, err)
	}
}

// own ingests during one term.
func (w *worker) own(ctx context.Context, t *term) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	held := make(chan struct{})
	go func() {
		defer close(held)
		cancel(t.hold(ctx))
	}()
	defer func() { cancel(nil); <-held }()

	// From here on no earlier owner appends anything, whatever it believes, and what it has appended is below the tail.
	tail, err := w.c.Fence(ctx, w.addr, t.token())
	if err != nil {
		return err
	}
	item, err := w.resume(ctx, tail.SeqNum)
	if err != nil {
		return err
	}
	fmt.Fprintf(w.say, "%s goes on with item %d at %d\n", w.elect.name, item, tail.SeqNum)
	p, err := w.c.OpenStream(ctx, w.addr, client.WithFencingToken(t.token()))
	if err != nil {
		return err
	}
	err = w.ingest(ctx, p, item, tail.SeqNum)
	return errors.Join(err, p.Close(ctx))
}

// resume is the first item that is not in the stream.
func (w *worker) resume(ctx context.Context, tail uint64) (uint64, error) {
	if tail == 0 {
		return 0, nil
	}
	for rec, err := range w.c.Read(ctx, w.addr, client.ReadOptions{SeqNum: tail - 1, Limit: 1}) {
		if err != nil {
			return 0, err
		}
		last, err := itemOf(rec)
		return last + 1, err
	}
	return 0, fmt.Errorf("record %d is not there", tail-1)
}

func itemOf(rec client.SequencedRecord) (uint64, error) {
	for _, h := range rec.Headers {
		if h.Name == header {
			return strconv.ParseUint(string(h.Value), 10, 64)
		}
	}
	return 0, fmt.Errorf("record %d has no header %q", rec.SeqNum, header)
}

// ingest appends from an item on. Each append names its number, so one that is sent again after a lost connection is not
// appended twice; and one that misses has those after it miss too, since they name the numbers after it.
func (w *worker) ingest(ctx context.Context, p *client.Producer, item, next uint64) error {
	var waiting []*client.Ticket
	for ; item < w.items || len(waiting) > 0; item++ {
		if item < w.items {
			rec := client.Record{Body: fmt.Appendf(nil, "reading %d", item), Headers: []client.Header{{Name: header, Value: strconv.AppendUint(nil, item, 10)}}}
			waiting = append(waiting, p.SubmitMatch(ctx, next, rec))
			next++
			if w.pace > 0 && !pause(ctx, w.pace) {
				return context.Cause(ctx)
			}
		}
		if len(waiting) < flight && item < w.items {
			continue
		}
		if _, err := waiting[0].Wait(ctx); err != nil {
			return err
		}
		waiting = waiting[1:]
	}
	return nil
}
