package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/typedfold/fold/client"
	"github.com/typedfold/fold/internal/nova"
)

// input is what a recordReader reads, as it comes.
type input struct {
	records <-chan client.Record // closed at the end
	err     error                // why it ended, nil at the input's end; to be looked at when records is closed
}

// readAll reads until the input ends, or ctx does. A read of the input that hangs then is left alone.
func readAll(ctx context.Context, r *recordReader) *input {
	records := make(chan client.Record, 256)
	in := &input{records: records}
	go func() {
		defer close(records)
		for {
			rec, err := r.next()
			if err != nil {
				if !errors.Is(err, io.EOF) {
					in.err = err
				}
				return
			}
			select {
			case records <- rec:
			case <-ctx.Done():
				in.err = ctx.Err()
				return
			}
		}
	}()
	return in
}

// batcher cuts an input into batches.
type batcher struct {
	in      *input
	linger  time.Duration
	lingers bool           // a batch that is not full is sent after linger; else only when the input ends
	held    *client.Record // the first record of the next batch, which had no room in the one before
}

// next is the next batch; none at the input's end. Of an input that goes wrong, the records before are left out, too.
func (b *batcher) next(ctx context.Context) (batch []client.Record, err error) {
	size := 0
	var late <-chan time.Time
	add := func(rec client.Record) {
		if batch = append(batch, rec); len(batch) == 1 && b.lingers {
			late = time.After(b.linger)
		}
	}
	if b.held != nil {
		size = b.held.Bytes()
		add(*b.held)
		b.held = nil
	}
	for {
		select {
		case rec, ok := <-b.in.records:
			if !ok {
				if b.in.err != nil {
					return nil, b.in.err
				}
				return batch, nil
			}
			if size += rec.Bytes(); len(batch) == nova.MaxBatchRecords || size > nova.MaxBatchBytes {
				b.held = &rec
				return batch, nil
			}
			add(rec)
		case <-late:
			return batch, nil
		case <-ctx.Done():
			return nil, errInterrupted
		}
	}
}
