package sequencer

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/frame"
	"github.com/typedfold/fold/internal/nova/jslog"
	"github.com/typedfold/fold/runtime/protocol"
)

// flooded is a leader with four sessions of which each has submitted far more than the window holds, over a log that answers
// when it is told to.
type flooded struct {
	*troubled
	order  []int // of the flows' acknowledgements, by flow: the next batch
	before int   // frames in the log when the test's own request was made
}

const (
	floodFlows   = 4
	floodBatches = 60
	floodBytes   = 100_000
)

func newFlooded(w *troubled) *flooded {
	f := &flooded{troubled: w, order: make([]int, floodFlows)}
	w.log.script(func(int, jslog.Message) verdict { return delays })
	for flow := range floodFlows {
		id := w.l.NewFlow()
		for i := range floodBatches {
			records := []nova.Record{{Body: make([]byte, floodBytes)}}
			err := w.l.Submit(w.t.Context(), Append{Flow: id, Records: records}, func(r Result) {
				if r.Err != nil || f.order[flow] != i {
					w.t.Errorf("batch %d of flow %d: %v, after %d", i, flow, r.Err, f.order[flow])
				}
				f.order[flow]++
			})
			if err != nil {
				w.t.Fatal(err)
			}
		}
	}
	synctest.Wait()
	f.log.land()
	synctest.Wait()
	f.before = len(w.log.frames)
	return f
}

// until lets the log answer, one window after the other, until a request has its answer, and is how many bytes of frames went
// before that.
func (f *flooded) until(answered <-chan error) (bytes int) {
	f.t.Helper()
	for range 1000 {
		f.log.land()
		synctest.Wait()
		select {
		case err := <-answered:
			if err != nil {
				f.t.Error(err)
			}
			for _, s := range f.log.frames[f.before:] {
				bytes += len(s.Payload)
			}
			return bytes
		default:
		}
	}
	f.t.Fatal("no answer")
	return 0
}

// waitsFor is how many bytes may go before a new request: the windows that were full when it came and when it was sent, the
// frame that is full behind them, and a turn of each flow.
func (f *flooded) waitsFor() int {
	return 2*f.l.o.WindowBytes + 2*(fullFrame+floodBytes) + (floodFlows+1)*(turnBytes+floodBytes)
}

func (f *flooded) end() {
	f.t.Helper()
	for range 1000 {
		if f.order[0]+f.order[1]+f.order[2]+f.order[3] == floodFlows*floodBatches {
			return
		}
		f.log.land()
		synctest.Wait()
	}
	f.t.Errorf("of %d batches a flow, %v are acknowledged", floodBatches, f.order)
}

// TestASingleAppendWaitsForAWindow: not for all that sessions have submitted.
func TestASingleAppendWaitsForAWindow(t *testing.T) {
	trouble(t, 1, func(w *troubled) {
		f := newFlooded(w)
		got := make(chan error, 1)
		go func() {
			_, err := f.l.Append(context.Background(), Append{Records: bodies("single")})
			got <- err
		}()
		synctest.Wait()
		if n := f.until(got); n > f.waitsFor() {
			t.Errorf("it waited for %d bytes of frames, %d at most are right", n, f.waitsFor())
		}
		f.end()
	})
}

// TestAFenceWaitsForAWindow: it does not wait for its turn, and ends the sessions whose batches do.
func TestAFenceWaitsForAWindow(t *testing.T) {
	trouble(t, 1, func(w *troubled) {
		f := &flooded{troubled: w, before: len(w.log.frames)}
		w.log.script(func(int, jslog.Message) verdict { return delays })
		fenced, stored := 0, 0
		id := w.l.NewFlow()
		for range 4 * floodBatches {
			a := Append{Flow: id, Append: protocol.Append{InSession: true}, Records: []nova.Record{{Body: make([]byte, floodBytes)}}}
			err := w.l.Submit(w.t.Context(), a, func(r Result) {
				if r.Err == nil {
					stored++
				} else if _, ok := r.Err.(*FencedError); ok {
					fenced++
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		got := make(chan error, 1)
		go func() {
			_, err := f.l.Fence(context.Background(), "new")
			got <- err
		}()
		synctest.Wait()
		if n := f.until(got); n > f.waitsFor() {
			t.Errorf("it waited for %d bytes of frames, %d at most are right", n, f.waitsFor())
		}
		for range 1000 {
			f.log.land()
			synctest.Wait()
		}
		if stored == 0 || fenced == 0 || stored+fenced != 4*floodBatches {
			t.Errorf("of %d batches %d are stored and %d fenced", 4*floodBatches, stored, fenced)
		}
	})
}

// TestFramesInFlightAreBounded in bytes, and a batch that is larger than the bound gets through.
func TestFramesInFlightAreBounded(t *testing.T) {
	trouble(t, 1, func(w *troubled) {
		w.l.o.WindowBytes = 100_000
		flying, most := 0, 0
		w.log.script(func(_ int, m jslog.Message) verdict {
			flying += len(m.Payload)
			most = max(most, flying)
			return delays
		})
		id := w.l.NewFlow()
		left := 0
		for _, size := range []int{60_000, 30_000, 300_000, 60_000, 60_000, 500_000, 10} {
			left++
			err := w.l.Submit(w.t.Context(), Append{Flow: id, Records: []nova.Record{{Body: make([]byte, size)}}}, func(r Result) {
				if left--; r.Err != nil {
					t.Error(r.Err)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		for range 100 {
			flying = 0
			w.log.land()
			synctest.Wait()
		}
		if left > 0 || most > 500_000+frame.Head+100 {
			t.Errorf("%d batches are left, %d bytes were in flight", left, most)
		}
	})
}
