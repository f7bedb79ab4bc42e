package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/typedfold/fold/client"
)

// appended is what an append has done.
type appended struct {
	Records uint64 `json:"records"`
	// Start is the first record; End is one past the last one. Records of others may lie between.
	Start *position `json:"start,omitempty"`
	End   *position `json:"end,omitempty"`
	Tail  *position `json:"tail,omitempty"`
}

func (a *appended) add(n uint64, r *client.AppendResult) {
	if a.Start == nil {
		a.Start = new(positionOf(r.Start))
	}
	a.End, a.Tail = new(positionOf(r.End)), new(positionOf(r.Tail))
	a.Records += n
}

func (a *appended) String() string {
	if a.Records == 0 {
		return "Nothing was appended."
	}
	text := fmt.Sprintf("%s appended, %d to %d", records(a.Records), a.Start.SeqNum, a.End.SeqNum-1)
	if a.Records == 1 {
		text = fmt.Sprintf("1 record appended, %d", a.Start.SeqNum)
	}
	if between := a.End.SeqNum - a.Start.SeqNum - a.Records; between > 0 {
		text += fmt.Sprintf(", with %s of others, or appended twice, between", records(between))
	}
	return fmt.Sprintf("%s; the tail is %d.", text, a.Tail.SeqNum)
}

// partialError is an append that has done a part.
type partialError struct {
	done appended
	err  error
}

func (e *partialError) Error() string { return e.err.Error() }
func (e *partialError) Unwrap() error { return e.err }

type appendFlags struct {
	clientFlags
	match         uint64
	token         string
	linger        time.Duration
	lingers       bool // linger was given
	format, input string
}

func (p *program) appendVerb() *cobra.Command {
	var f appendFlags
	c := &cobra.Command{
		Use:   "append ADDR",
		Short: "Append the lines of the standard input, or of a file",
		Long: `Append the lines of the standard input, or of a file, one record a line.

Plain records are appended at least once: what has no answer when the connection is lost is sent again. With --match-seq-num
the first record must get that number, each one after it the next, and nothing is sent twice: the input is cut into
batches of 1,000 records or 1 MiB, each of which is appended whole or not at all, after the one before it. A batch is sent
when it is full or the input ends; with --linger also after that time, for an input that goes on and has pauses.`,
		Args: exactly(1, addrIs),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := f.client(p)
			if err != nil {
				return err
			}
			if err := checkFormat(f.format); err != nil {
				return err
			}
			if f.linger < 0 {
				return usageError("", "a negative --linger of %v", f.linger)
			}
			in := p.in
			if f.input != "" && f.input != "-" {
				file, err := os.Open(f.input)
				if err != nil {
					return usageError("", "--input: %w", err)
				}
				defer func() { _ = file.Close() }() // it was only read
				in = file
			}
			told := &progress{to: p.err, every: p.progressAfter}
			stop := told.start()
			f.lingers = c.Flags().Changed("linger")
			a := appending{c: cl, addr: args[0], f: f, in: newRecordReader(in, f.format), told: told}
			if c.Flags().Changed("match-seq-num") {
				err = a.matching(c.Context(), f.match)
			} else {
				err = a.plain(c.Context())
			}
			stop()
			if err != nil {
				return &partialError{a.done, err}
			}
			p.print(a.done, func(w io.Writer) { fmt.Fprintln(w, &a.done) })
			return nil
		},
	}
	f.add(c)
	c.Flags().Uint64Var(&f.match, "match-seq-num", 0, "the `number` that the first record must get")
	c.Flags().StringVar(&f.token, "fencing-token", "", "the fencing `token` to present")
	c.Flags().DurationVar(&f.linger, "linger", 5*time.Millisecond, "how long a record waits for others to be sent with it; with --match-seq-num until the batch is full or the input ends, unless it is given")
	c.Flags().StringVar(&f.format, "format", formatText, formatHelp)
	c.Flags().StringVarP(&f.input, "input", "i", "", "`file` to read instead of the standard input")
	return c
}

// appending is an append under way.
type appending struct {
	c    *client.Client
	addr string
	f    appendFlags
	in   *recordReader
	told *progress
	done appended
}

// matching appends batch after batch, each at the number that the one before it ends with.
func (a *appending) matching(ctx context.Context, next uint64) error {
	view := a.c.Presenting(a.f.token)
	reading, stop := context.WithCancel(ctx)
	defer stop()
	b := batcher{in: readAll(reading, a.in), linger: a.f.linger, lingers: a.f.lingers}
	for {
		batch, err := b.next(ctx)
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return errInterrupted
		case len(batch) == 0 && a.done.Records == 0:
			return usageError("", "the input has no record, so there is nothing to append at %d", next)
		case len(batch) == 0:
			return nil
		}
		r, err := view.AppendMatch(ctx, a.addr, next, batch...)
		if err != nil {
			return err
		}
		a.done.add(uint64(len(batch)), r)
		a.told.count(uint64(len(batch)))
		next = r.End.SeqNum
	}
}

// plain appends records as they are read, with many in flight.
func (a *appending) plain(ctx context.Context) (err error) {
	opening, cancel := within(ctx, a.f.timeout)
	p, err := a.c.OpenStream(opening, a.addr, client.WithFencingToken(a.f.token), client.WithLinger(a.f.linger))
	cancel()
	if err != nil {
		return err
	}
	reading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	tickets := make(chan *client.Ticket, maxTickets)
	var settled sync.WaitGroup
	var failed error
	settled.Go(func() {
		for t := range tickets {
			if e := a.settle(ctx, t); e != nil && failed == nil {
				failed = e
				stop(e)
			}
		}
	})
	readErr := a.submit(reading, p, tickets)
	close(tickets)
	closing, cancel := within(context.WithoutCancel(ctx), a.f.timeout)
	defer cancel()
	closeErr := p.Close(closing)
	settled.Wait()
	switch {
	case failed != nil:
		return failed
	case ctx.Err() != nil:
		return errInterrupted
	case readErr != nil:
		return readErr
	case closeErr != nil:
		return cmp.Or(context.Cause(closing), closeErr)
	}
	return nil
}

// maxTickets bounds the records that have no answer yet, beside the bytes that a producer holds.
const maxTickets = 16 << 10

// submit stages what is read, until the input ends, or ctx does. A read of the input that hangs then is left alone.
func (a *appending) submit(ctx context.Context, p *client.Producer, tickets chan<- *client.Ticket) error {
	in := readAll(ctx, a.in)
	for {
		select {
		case rec, ok := <-in.records:
			if !ok {
				return in.err
			}
			select {
			case tickets <- p.Submit(ctx, rec):
			case <-ctx.Done():
				return ctx.Err()
			}
		case <-p.Done(): // another writer owns the stream: that is told before the next record too
			return p.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// settle waits for one record's answer.
func (a *appending) settle(ctx context.Context, t *client.Ticket) error {
	waiting, cancel := within(context.WithoutCancel(ctx), a.f.timeout)
	defer cancel()
	r, err := t.Wait(waiting)
	if err != nil {
		if cause := context.Cause(waiting); cause != nil && errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("%w: %w", client.ErrOutcomeUnknown, cause)
		}
		return err
	}
	a.done.add(1, r)
	a.told.count(1)
	return nil
}
