package sequencer

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/typedfold/fold/internal/nova"
)

func waits(flow uint64, n int, size int64) item {
	return item{append: &Append{Flow: Flow{id: flow}, Records: make([]nova.Record, n)}, held: held{size: size}}
}

// TestFlowsTakeTurns: by bytes, and each in its own order.
func TestFlowsTakeTurns(t *testing.T) {
	var f flows
	for i := range 8 {
		f.add(waits(1, i, turnBytes))
		f.add(waits(2, i, turnBytes/2))
		if i < 2 {
			f.add(waits(3, i, 2*turnBytes))
		}
	}
	f.add(waits(0, 0, 10))
	var got []string
	for it, ok := f.next(); ok; it, ok = f.next() {
		got = append(got, fmt.Sprintf("%d.%d", it.append.Flow.id, len(it.append.Records)))
	}
	want := "1.0 2.0 2.1 0.0 1.1 2.2 2.3 3.0 1.2 2.4 2.5 1.3 2.6 2.7 3.1 1.4 1.5 1.6 1.7"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("out came\n%s, want\n%s", s, want)
	}
	if len(f.of) != 0 || f.turn.len() != 0 {
		t.Errorf("%d flows and %d turns are left", len(f.of), f.turn.len())
	}
}

// TestALateOneWaitsForATurn: of each of the others, whatever they have waiting.
func TestALateOneWaitsForATurn(t *testing.T) {
	var f flows
	for flow := range uint64(4) {
		for i := range 100 {
			f.add(waits(flow+1, i, 10_000))
		}
	}
	for range 50 {
		f.next()
	}
	f.add(waits(0, 1, 100))
	before := int64(0)
	for it, ok := f.next(); ok && it.append.Flow.id != 0; it, ok = f.next() {
		before += it.size
	}
	if before > 4*turnBytes {
		t.Errorf("it waited for %d bytes", before)
	}
}

// TestFlowsKeepTheirOrder: whatever goes in and out meanwhile.
func TestFlowsKeepTheirOrder(t *testing.T) {
	var f flows
	in, out, count := make([]int, 5), make([]int, 5), 0
	take := func() bool {
		it, ok := f.next()
		if ok {
			count--
			if n := len(it.append.Records); n != out[it.append.Flow.id] {
				t.Fatalf("flow %d gives %d before %d", it.append.Flow.id, n, out[it.append.Flow.id])
			}
			out[it.append.Flow.id]++
		}
		return ok
	}
	for i := range 5000 {
		flow := i * i % 5
		f.add(waits(uint64(flow), in[flow], int64(1+i%7*30_000)))
		in[flow]++
		count++
		for range i % 3 {
			take()
		}
	}
	for take() {
	}
	if count != 0 || !slices.Equal(in, out) {
		t.Errorf("in went %v, out came %v", in, out)
	}
}

// TestFlowsAllocateNothing: for one writer that waits for each of its answers.
func TestFlowsAllocateNothing(t *testing.T) {
	var f flows
	it := waits(7, 1, 100)
	n := testing.AllocsPerRun(100, func() {
		f.add(it)
		if _, ok := f.next(); !ok {
			t.Fatal("nothing came out")
		}
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestANewFlowComesAfterWhatWasThere: and before what comes later it has its turns.
func TestANewFlowComesAfterWhatWasThere(t *testing.T) {
	var f flows
	number := uint64(0)
	add := func(flow Flow, n int) {
		it := waits(0, n, turnBytes)
		number++
		it.number, it.append.Flow = number, flow
		f.add(it)
	}
	lost := Flow{id: 1}
	for i := range 3 {
		add(lost, i)
	}
	next := Flow{id: 2, after: number}
	add(next, 0)
	add(Flow{}, 0)
	add(lost, 3) // it was on its way
	add(next, 1)
	add(next, 2)
	var got []string
	for it, ok := f.next(); ok; it, ok = f.next() {
		got = append(got, fmt.Sprintf("%d.%d", it.append.Flow.id, len(it.append.Records)))
	}
	if s := strings.Join(got, " "); s != "1.0 0.0 1.1 1.2 2.0 1.3 2.1 2.2" {
		t.Errorf("out came %s", s)
	}
}
