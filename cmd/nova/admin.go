package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/typedfold/fold/client"
)

// unknownHint says what to do about a write that may have happened.
func unknownHint(err error, hint string) error {
	if errors.Is(err, client.ErrOutcomeUnknown) {
		return &codeError{code: exitUnreachable, err: err, hint: hint}
	}
	return err
}

const addrIs = "an address, nova://namespace/stream"

// streamFacts are what is told of a stream.
type streamFacts struct {
	Addr       string    `json:"addr"`
	Created    time.Time `json:"created"`
	Replicas   uint32    `json:"replicas"`
	Memory     bool      `json:"memory"`
	MaxAge     string    `json:"max_age,omitempty"`
	MaxBytes   uint64    `json:"max_bytes,omitempty"`
	MaxRecords uint64    `json:"max_records,omitempty"`
	Bytes      uint64    `json:"bytes"`
}

func factsOf(s client.Stream) streamFacts {
	f := streamFacts{
		Addr: s.Addr, Created: s.Created.UTC(), Replicas: s.Replicas, Memory: s.Memory,
		MaxBytes: s.Retention.MaxBytes, MaxRecords: s.Retention.MaxRecords, Bytes: s.Bytes,
	}
	if s.Retention.MaxAge > 0 {
		f.MaxAge = s.Retention.MaxAge.String()
	}
	return f
}

func (f streamFacts) storage() string {
	if f.Memory {
		return "memory"
	}
	return "file"
}

func (p *program) createVerb() *cobra.Command {
	var f clientFlags
	var s client.StreamConfig
	var ifAbsent bool
	c := &cobra.Command{
		Use:   "create ADDR",
		Short: "Make a stream",
		Args:  exactly(1, addrIs),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := f.client(p)
			if err != nil {
				return err
			}
			err = cl.CreateStream(c.Context(), args[0], s)
			created := err == nil
			if errors.Is(err, client.ErrExists) {
				if !ifAbsent {
					return &codeError{code: exitFailed, err: err, hint: "with --if-absent that is no error"}
				}
				err = nil
			}
			if err != nil {
				return unknownHint(err, "create it again with --if-absent")
			}
			p.print(struct {
				Addr    string `json:"addr"`
				Created bool   `json:"created"`
			}{args[0], created}, func(w io.Writer) {
				if created {
					fmt.Fprintf(w, "%s is made; its first record gets number 0.\n", args[0])
				} else {
					fmt.Fprintf(w, "%s is there already; it stays as it is.\n", args[0])
				}
			})
			return nil
		},
	}
	f.add(c)
	c.Flags().Uint32Var(&s.Replicas, "replicas", 1, "copies in the cluster")
	c.Flags().BoolVar(&s.Memory, "memory", false, "keep it in memory, not on disk")
	c.Flags().DurationVar(&s.Retention.MaxAge, "max-age", 0, "remove records that are older; 0 keeps them")
	c.Flags().Uint64Var(&s.Retention.MaxBytes, "max-bytes", 0, "remove the oldest records beyond so many `bytes`; 0 keeps them")
	c.Flags().Uint64Var(&s.Retention.MaxRecords, "max-records", 0, "remove the oldest records beyond this `number`; 0 keeps them")
	c.Flags().BoolVar(&ifAbsent, "if-absent", false, "a stream that is there already is no error")
	return c
}

func (p *program) lsVerb() *cobra.Command {
	var f clientFlags
	c := &cobra.Command{
		Use:   "ls [NAMESPACE]",
		Short: "List the streams of a namespace, or all",
		Args:  between(0, 1, "a namespace at most"),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := f.client(p)
			if err != nil {
				return err
			}
			namespace := ""
			if len(args) > 0 {
				namespace = args[0]
			}
			all, err := cl.ListStreams(c.Context(), namespace)
			if err != nil {
				return err
			}
			out := struct {
				Streams []streamFacts `json:"streams"`
			}{Streams: []streamFacts{}}
			for _, s := range all {
				out.Streams = append(out.Streams, factsOf(s))
			}
			p.print(out, func(w io.Writer) {
				t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
				fmt.Fprintf(t, "STREAM\tREPLICAS\tSTORAGE\tBYTES\tCREATED\n")
				for _, s := range out.Streams {
					fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%s\n", s.Addr, s.Replicas, s.storage(), s.Bytes, s.Created.Format(time.RFC3339))
				}
				_ = t.Flush() // to a buffer
			})
			return nil
		},
	}
	f.add(c)
	return c
}

func (p *program) describeVerb() *cobra.Command {
	var f clientFlags
	c := &cobra.Command{
		Use:   "describe ADDR",
		Short: "Say what there is to say of a stream: its range, its token, its leader",
		Args:  exactly(1, addrIs),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := f.client(p)
			if err != nil {
				return err
			}
			d, err := cl.DescribeStream(c.Context(), args[0])
			if err != nil {
				return err
			}
			s := factsOf(d.Stream)
			p.print(struct {
				streamFacts
				First        position `json:"first"`
				Tail         position `json:"tail"`
				FencingToken string   `json:"fencing_token"`
				Leader       string   `json:"leader"`
			}{s, positionOf(d.First), positionOf(d.Tail), d.FencingToken, d.Leader}, func(w io.Writer) {
				t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
				line(t, "stream", s.Addr)
				line(t, "records", rangeText(d))
				line(t, "fencing token", tokenText(d.FencingToken))
				line(t, "leader", d.Leader)
				line(t, "replicas", strconv.FormatUint(uint64(s.Replicas), 10))
				line(t, "storage", s.storage())
				line(t, "bytes", strconv.FormatUint(s.Bytes, 10))
				line(t, "created", s.Created.Format(time.RFC3339))
				line(t, "limits", limitsText(s))
				_ = t.Flush() // to a buffer
			})
			return nil
		},
	}
	f.add(c)
	return c
}

func rangeText(d *client.Description) string {
	if d.First.SeqNum == d.Tail.SeqNum {
		return fmt.Sprintf("none; the next one gets number %d", d.Tail.SeqNum)
	}
	return fmt.Sprintf("%d to %d, the last one of %s", d.First.SeqNum, d.Tail.SeqNum-1, time.UnixMilli(d.Tail.Timestamp).UTC().Format("2006-01-02T15:04:05.000Z07:00"))
}

func tokenText(token string) string {
	if token == "" {
		return "none"
	}
	return strconv.Quote(token)
}

func limitsText(s streamFacts) string {
	var limits []string
	if s.MaxAge != "" {
		limits = append(limits, "age "+s.MaxAge)
	}
	if s.MaxBytes > 0 {
		limits = append(limits, fmt.Sprintf("%d bytes", s.MaxBytes))
	}
	if s.MaxRecords > 0 {
		limits = append(limits, records(s.MaxRecords))
	}
	if limits == nil {
		return "none"
	}
	return strings.Join(limits, ", ")
}

func (p *program) rmVerb() *cobra.Command {
	var f clientFlags
	c := &cobra.Command{
		Use:   "rm ADDR",
		Short: "Remove a stream and all its records",
		Args:  exactly(1, addrIs),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := f.client(p)
			if err != nil {
				return err
			}
			if err := cl.DeleteStream(c.Context(), args[0]); err != nil {
				return unknownHint(err, "remove it again: where it is gone already, there is no such stream")
			}
			p.print(struct {
				Addr string `json:"addr"`
			}{args[0]}, func(w io.Writer) { fmt.Fprintf(w, "%s is removed.\n", args[0]) })
			return nil
		},
	}
	f.add(c)
	return c
}

func (p *program) trimVerb() *cobra.Command {
	var f clientFlags
	c := &cobra.Command{
		Use:   "trim ADDR SEQ_NUM",
		Short: "Remove the records before a number, as far as whole frames of the log go",
		Args:  exactly(2, addrIs+", and a number"),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := f.client(p)
			if err != nil {
				return err
			}
			before, err := strconv.ParseUint(args[1], 10, 64)
			if err != nil {
				return usageError("", "%q is no sequence number", args[1])
			}
			first, err := cl.Trim(c.Context(), args[0], before)
			if outside := new(client.RangeError); errors.As(err, &outside) {
				return &codeError{code: exitFailed, err: err, hint: fmt.Sprintf("the tail, %d, is the highest number that it takes", outside.Tail.SeqNum)}
			}
			if err != nil {
				return unknownHint(err, "trim it again: that changes nothing more")
			}
			p.print(struct {
				Addr  string   `json:"addr"`
				First position `json:"first"`
			}{args[0], positionOf(first)}, func(w io.Writer) {
				fmt.Fprintf(w, "%s has its records from %d on.\n", args[0], first.SeqNum)
			})
			return nil
		},
	}
	f.add(c)
	return c
}
