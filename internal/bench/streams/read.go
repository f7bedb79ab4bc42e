package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/client"
)

// framing is how many records each frame of a stream that is read has; 0 is as many as a producer at full rate gives it.
type framing int

var framings = []framing{0, 100, 10, 1}

func (f framing) suffix() string {
	if f == 0 {
		return ""
	}
	return fmt.Sprintf("-%d", int(f))
}

func (f framing) fill() string  { return "fill" + f.suffix() }
func (f framing) read() string  { return "read" + f.suffix() }
func (f framing) bare() string  { return "read-bare" + f.suffix() }
func (f framing) ratio() string { return "read/bare" + f.suffix() }
func (f framing) addr() string  { return "nova://bench/frames" + f.suffix() }

// records is how many records a stream has: small frames are filled one after the other, so there are fewer of them.
func (f framing) records(o options) int {
	if f == 0 {
		return o.records
	}
	return min(o.records/10, o.records/int(f)) * int(f)
}

// fill makes and fills a stream, which both sides of a ratio read. A batch that waits for the one before it is a frame by
// itself.
func (s *side) fill(ctx context.Context, f framing) (result, error) {
	if err := s.c.CreateStream(ctx, s.addr, client.StreamConfig{Memory: s.o.memory}); err != nil {
		return result{}, err
	}
	m := s.startMeter()
	p, err := s.c.OpenStream(ctx, s.addr)
	if err != nil {
		return result{}, err
	}
	per, flight := int(f), 1
	if f == 0 {
		per, flight = perBatch, s.o.window/perBatch
	}
	left := f.records(s.o)
	err = pipeline(ctx, (left+per-1)/per, flight, func(int) *client.Ticket {
		records := batch(min(left, per))
		left -= len(records)
		return p.Submit(ctx, records...)
	})
	if err = errors.Join(err, closeProducer(ctx, p)); err != nil {
		return result{}, err
	}
	return m.done(f.records(s.o)), s.has(ctx, f.records(s.o))
}

// read reads a tenth of the stream, which is not counted, and then all of it, looking at each record.
func (s *side) read(ctx context.Context, f framing) (result, error) {
	if err := s.records(ctx, f.records(s.o)/10+1, client.ReadOptions{Limit: uint64(f.records(s.o)/10 + 1)}); err != nil {
		return result{}, err
	}
	m := s.startMeter()
	if err := s.records(ctx, f.records(s.o), client.ReadOptions{}); err != nil {
		return result{}, err
	}
	return m.done(f.records(s.o)), nil
}

func (s *side) records(ctx context.Context, want int, o client.ReadOptions) error {
	got := 0
	for r, err := range s.c.Read(ctx, s.addr, o) {
		if err != nil {
			return err
		}
		if r.SeqNum != uint64(got) || len(r.Body) != bodyBytes {
			return fmt.Errorf("record %d has %d bytes, after %d records", r.SeqNum, len(r.Body), got)
		}
		got++
	}
	if got != want {
		return fmt.Errorf("%d records were read of %d", got, want)
	}
	return nil
}

// bareRead reads the same messages of the log as read does, with a bare consumer that does not look into them: a tenth,
// which is not counted, and then all. As much is asked for ahead as a server asks for.
func (s *side) bareRead(ctx context.Context, f framing) (result, error) {
	ns, stream, _ := strings.Cut(strings.TrimPrefix(s.addr, "nova://"), "/")
	st, err := s.js.Stream(ctx, "NOVA="+ns+"="+stream)
	if err != nil {
		return result{}, err
	}
	subject := "nova." + ns + "." + stream + ".r"
	last, err := st.GetLastMsgForSubject(ctx, subject)
	if err != nil {
		return result{}, err
	}
	if _, err := s.frames(ctx, st, subject, last.Sequence/10+1); err != nil {
		return result{}, err
	}
	m := s.startMeter()
	frames, err := s.frames(ctx, st, subject, last.Sequence)
	if err != nil {
		return result{}, err
	}
	r := m.done(f.records(s.o))
	r.Frames = frames
	if f > 0 && frames < f.records(s.o)/int(f) {
		return result{}, fmt.Errorf("%d records are in %d frames, there should be %d at least", r.Records, frames, f.records(s.o)/int(f))
	}
	return r, nil
}

// frames receives the messages of the subject up to a sequence, and counts them.
func (s *side) frames(ctx context.Context, st jetstream.Stream, subject string, to uint64) (n int, err error) {
	c, err := st.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}})
	if err != nil {
		return 0, err
	}
	msgs, err := c.Messages(jetstream.PullMaxBytes(int(4 * s.nc.MaxPayload())))
	if err != nil {
		return 0, err
	}
	defer msgs.Stop()
	for {
		msg, err := msgs.Next(jetstream.NextContext(ctx))
		if err != nil {
			return n, err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return n, err
		}
		if n++; meta.Sequence.Stream >= to {
			return n, nil
		}
	}
}

// part is that of one size of frames. What it is to be read at is asked for of every size.
func (f framing) part() part {
	return part{f.read(), []string{f.fill()}, []string{f.bare(), f.read()}, func(b *bench) {
		b.ratio(f.ratio(), b.pairs(f.read(), f.bare(), result.rate), 0.7, false)
	}}
}
