package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/typedfold/fold/client"
)

type readFlags struct {
	clientFlags
	seq, offset, limit uint64
	since, format      string
	follow, clamp      bool
	formatGiven        bool
}

func (p *program) readVerb() *cobra.Command {
	var f readFlags
	c := &cobra.Command{
		Use:   "read ADDR",
		Short: "Print records, from a place on",
		Long: `Print records, one a line: from --seq-num, --tail-offset or --since on, to the tail, or on and on with --follow. With --json the
format is json, and an error is a line of its own, the last one.`,
		Args: exactly(1, addrIs),
		RunE: func(c *cobra.Command, args []string) error {
			places := 0
			for _, name := range []string{"seq-num", "tail-offset", "since"} {
				if c.Flags().Changed(name) {
					places++
				}
			}
			if places > 1 {
				return usageError("", "--seq-num, --tail-offset and --since are three ways to say where to begin; give one")
			}
			o := client.ReadOptions{SeqNum: f.seq, Limit: f.limit, Follow: f.follow, Clamp: f.clamp}
			if c.Flags().Changed("tail-offset") {
				o.TailOffset = &f.offset
			}
			var err error
			if f.since != "" {
				if o.Since, err = moment(f.since, time.Now()); err != nil {
					return err
				}
			}
			f.formatGiven = c.Flags().Changed("format")
			return p.read(c.Context(), f, args[0], o)
		},
	}
	f.add(c)
	c.Flags().Uint64Var(&f.seq, "seq-num", 0, "begin with this `number`")
	c.Flags().Uint64Var(&f.offset, "tail-offset", 0, "begin so many `records` before the tail")
	c.Flags().StringVar(&f.since, "since", "", "begin with what is not older than this `time`: as in 2006-01-02T15:04:05Z, or so long ago, as in 10m")
	c.Flags().Uint64VarP(&f.limit, "limit", "n", 0, "print at most so many `records`; 0 is all")
	c.Flags().BoolVarP(&f.follow, "follow", "f", false, "go on with records as they come")
	c.Flags().BoolVar(&f.clamp, "clamp", false, "begin at the first record that is kept, or at the tail, where the start is out of range")
	c.Flags().StringVar(&f.format, "format", formatText, formatHelp)
	return c
}

func (p *program) tailVerb() *cobra.Command {
	var f readFlags
	c := &cobra.Command{
		Use:   "tail ADDR",
		Short: "Print the last records",
		Args:  exactly(1, addrIs),
		RunE: func(c *cobra.Command, args []string) error {
			f.formatGiven = c.Flags().Changed("format")
			return p.read(c.Context(), f, args[0], client.ReadOptions{TailOffset: &f.offset, Follow: f.follow, Clamp: true})
		},
	}
	f.add(c)
	c.Flags().Uint64VarP(&f.offset, "lines", "n", 10, "how many `records`")
	c.Flags().BoolVarP(&f.follow, "follow", "f", false, "go on with records as they come")
	c.Flags().StringVar(&f.format, "format", formatText, formatHelp)
	return c
}

// moment is a time, or a time so long ago.
func moment(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return t, usageError("", "--since is a time as in 2006-01-02T15:04:05Z, or a duration as in 10m, not %q", text)
	}
	return t, nil
}

// read prints records as they come. What ends by a signal while it follows has done what it was asked to.
func (p *program) read(ctx context.Context, f readFlags, addr string, o client.ReadOptions) error {
	cl, err := f.client(p)
	if err != nil {
		return err
	}
	if err := checkFormat(f.format); err != nil {
		return err
	}
	if p.json {
		if f.formatGiven && f.format != formatJSON {
			return usageError("", "--json prints records as JSON, and --format asks for %s", f.format)
		}
		f.format = formatJSON
	}
	// A read goes on by itself when the connection is lost, for as long as it takes. So first comes a question that does not.
	if _, err := cl.Tail(ctx, addr); err != nil {
		return fmt.Errorf("read %s: %w", addr, cmp.Or(errors.Unwrap(err), err)) // what was asked first is not of interest
	}
	gone := away{to: p.err, every: p.progressAfter}
	o.Retrying = gone.retrying
	reading, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := bufio.NewWriterSize(p.live, 64<<10)
	var late *time.Timer
	if !o.Follow {
		late = time.AfterFunc(f.timeout, func() { cancel(&timeoutError{f.timeout}) })
		defer late.Stop()
	}
	var buf []byte
	for rec, err := range cl.Read(reading, addr, o) {
		if err != nil {
			return errors.Join(readFailure(ctx, reading, err, o), flush(out))
		}
		gone.back()
		if late != nil {
			late.Reset(f.timeout)
		}
		if buf, err = appendRecord(buf[:0], rec, f.format); err != nil {
			return err
		}
		if _, err := out.Write(buf); err != nil {
			return &printError{err}
		}
		if o.Follow {
			if err := flush(out); err != nil {
				return err
			}
		}
	}
	return flush(out)
}

func flush(out interface{ Flush() error }) error {
	if err := out.Flush(); err != nil {
		return &printError{err}
	}
	return nil
}

// readFailure is why a read ended; nil if that is what it was asked to.
func readFailure(ctx, reading context.Context, err error, o client.ReadOptions) error {
	outside := new(client.RangeError)
	switch {
	case ctx.Err() != nil && o.Follow:
		return nil
	case ctx.Err() != nil:
		return errInterrupted
	case reading.Err() != nil:
		return fmt.Errorf("read: %w", context.Cause(reading))
	case errors.As(err, &outside):
		return &codeError{code: exitFailed, err: err, hint: clampHint(o.SeqNum, outside)}
	}
	return err
}

// clampHint says where a read out of range would begin with --clamp.
func clampHint(seq uint64, e *client.RangeError) string {
	if seq > e.Tail.SeqNum {
		return fmt.Sprintf("--clamp begins at the tail, %d", e.Tail.SeqNum)
	}
	return fmt.Sprintf("--clamp begins at %d, the first record that is kept", e.First.SeqNum)
}
