package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nuid"
	"github.com/spf13/cobra"

	"github.com/typedfold/fold/client"
	"github.com/typedfold/fold/internal/nova"
)

type benchFlags struct {
	clientFlags
	batches, size, per, flight int
	match, memory              bool
	replicas                   uint32
	duration                   time.Duration
}

// benched is what a measurement found.
type benched struct {
	Addr    string `json:"addr"`
	Match   bool   `json:"match"`
	Records int    `json:"records"`
	Batches int    `json:"batches"`
	// Size is a record's, in bytes.
	Size     int `json:"size"`
	InFlight int `json:"in_flight"`
	// Seconds is from the first submit to the last answer.
	Seconds          float64 `json:"seconds"`
	RecordsPerSecond float64 `json:"records_per_second"`
	BytesPerSecond   float64 `json:"bytes_per_second"`
	// Latency is from a batch's submit to its answer, in microseconds.
	Latency latencies `json:"latency_micros"`
}

type latencies struct {
	P50  int64 `json:"p50"`
	P90  int64 `json:"p90"`
	P99  int64 `json:"p99"`
	P999 int64 `json:"p999"`
	Max  int64 `json:"max"`
}

func (p *program) benchVerb() *cobra.Command {
	var f benchFlags
	c := &cobra.Command{
		Use:   "bench [ADDR]",
		Short: "Measure appends: records a second, and how long an answer takes",
		Long: `Append batches with one producer, as many in flight as --in-flight says, and measure. Without an address it makes a stream of its own
in the namespace bench, and removes it at the end; with one, the records stay there. Plain batches in flight may be sent together, as
they always may; with --match each says which number it must get.`,
		Args: between(0, 1, "an address at most"),
		RunE: func(c *cobra.Command, args []string) (err error) {
			cl, err := f.client(p)
			if err != nil {
				return err
			}
			if err := f.validate(); err != nil {
				return err
			}
			addr := ""
			if len(args) > 0 {
				addr = args[0]
			} else {
				addr = "nova://bench/" + nuid.Next()
				s := client.StreamConfig{Replicas: f.replicas, Memory: f.memory}
				if err := cl.CreateStream(c.Context(), addr, s); err != nil {
					return err
				}
				defer func() {
					err = errors.Join(err, cl.DeleteStream(context.WithoutCancel(c.Context()), addr)) // bounded by --timeout
				}()
			}
			b, err := f.run(c.Context(), cl, addr)
			if err != nil {
				return err
			}
			p.print(b, b.text)
			return nil
		},
	}
	f.add(c)
	fl := c.Flags()
	fl.IntVar(&f.batches, "batches", 20_000, "at most so many `batches`")
	fl.DurationVar(&f.duration, "duration", 10*time.Second, "at most so long")
	fl.IntVar(&f.per, "per-batch", 10, "`records` a batch")
	fl.IntVar(&f.size, "size", 128, "`bytes` a record")
	fl.IntVar(&f.flight, "in-flight", 64, "`batches` that have no answer yet; 1 waits for each")
	fl.BoolVar(&f.match, "match", false, "append under match")
	fl.Uint32Var(&f.replicas, "replicas", 1, "copies of the stream that it makes")
	fl.BoolVar(&f.memory, "memory", false, "the stream that it makes is in memory")
	return c
}

func (f *benchFlags) validate() error {
	switch {
	case f.batches < 1 || f.per < 1 || f.flight < 1 || f.size < 0 || f.duration <= 0:
		return usageError("", "--batches, --per-batch, --in-flight and --duration are more than 0, and --size is not less")
	case f.per > nova.MaxBatchRecords || f.per*(f.size+nova.RecordBytes) > nova.MaxBatchBytes:
		return usageError("", "a batch has at most %d records and %d bytes, and each record counts for 8 more than its size", nova.MaxBatchRecords, nova.MaxBatchBytes)
	}
	return nil
}

// flying is a batch that has no answer yet.
type flying struct {
	t     *client.Ticket
	began time.Time
}

// run appends, with a second goroutine that takes the answers, which come in order.
func (f *benchFlags) run(ctx context.Context, cl *client.Client, addr string) (b benched, err error) {
	opening, cancel := within(ctx, f.timeout)
	defer cancel()
	tail, err := cl.Tail(opening, addr)
	if err != nil {
		return b, err
	}
	p, err := cl.OpenStream(opening, addr)
	if err != nil {
		return b, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	flight, room := make(chan flying, f.flight), make(chan struct{}, f.flight)
	took := make([]time.Duration, 0, min(f.batches, 1<<20))
	done := make(chan error, 1)
	go func() {
		var failed error
		for one := range flight {
			waiting, cancel := within(ctx, f.timeout)
			_, err := one.t.Wait(waiting)
			took = append(took, time.Since(one.began))
			cancel()
			<-room
			if err != nil && failed == nil {
				failed = err
				stop(err)
			}
		}
		done <- failed
	}()
	began := time.Now()
	f.submit(ctx, p, tail.SeqNum, flight, room)
	close(flight)
	err = <-done
	seconds := time.Since(began).Seconds()
	closing, cancelClose := within(context.WithoutCancel(ctx), f.timeout)
	defer cancelClose()
	if err = errors.Join(err, p.Close(closing)); err != nil {
		return b, err
	}
	if len(took) == 0 {
		if ctx.Err() != nil {
			return b, errInterrupted
		}
		return b, &codeError{code: exitFailed, err: fmt.Errorf("no batch was appended within %v", f.duration), hint: "--duration is to be longer"}
	}
	return f.sum(addr, took, seconds), nil
}

func (f *benchFlags) submit(ctx context.Context, p *client.Producer, next uint64, flight chan<- flying, room chan<- struct{}) {
	bodies := make([][]byte, f.per)
	for i := range bodies {
		bodies[i] = make([]byte, f.size)
	}
	records, end := client.Bodies(bodies...), time.Now().Add(f.duration)
	for range f.batches {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		if now.After(end) {
			return
		}
		one := flying{began: now}
		if f.match {
			one.t = p.SubmitMatch(ctx, next, records...)
		} else {
			one.t = p.Submit(ctx, records...)
		}
		next += uint64(f.per)
		flight <- one
	}
}

func (f *benchFlags) sum(addr string, took []time.Duration, seconds float64) benched {
	slices.Sort(took)
	at := func(q float64) int64 { return took[min(int(q*float64(len(took))), len(took)-1)].Microseconds() }
	records := len(took) * f.per
	b := benched{
		Addr: addr, Match: f.match, Records: records, Batches: len(took), Size: f.size, InFlight: f.flight, Seconds: seconds,
		RecordsPerSecond: float64(records) / seconds, BytesPerSecond: float64(records*f.size) / seconds,
	}
	b.Latency = latencies{P50: at(.5), P90: at(.9), P99: at(.99), P999: at(.999), Max: at(1)}
	return b
}

func (b *benched) text(w io.Writer) {
	kind := "append"
	if b.Match {
		kind = "append with match"
	}
	fmt.Fprintf(w, "%s: %s of %d bytes in %d batches, %d in flight, in %.2f s\n\n", kind, records(uint64(b.Records)), b.Size, b.Batches, b.InFlight, b.Seconds)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line(t, "records a second", fmt.Sprintf("%.0f", b.RecordsPerSecond))
	line(t, "MB a second", fmt.Sprintf("%.2f", b.BytesPerSecond/1e6))
	for _, l := range []struct {
		name   string
		micros int64
	}{{"p50", b.Latency.P50}, {"p90", b.Latency.P90}, {"p99", b.Latency.P99}, {"p99.9", b.Latency.P999}, {"max", b.Latency.Max}} {
		line(t, l.name, (time.Duration(l.micros) * time.Microsecond).String())
	}
	_ = t.Flush() // to a buffer
}
