package sequencer

import (
	"fmt"
	"testing"

	"github.com/typedfold/fold/internal/nova/jslog"
)

// BenchmarkFarControl appends one record at a time while the control message that each frame checks lies 256 MiB back in the
// log's files, and just behind a takeover, in turns. ADR 12 rests on the two being the same. What the server writes behind the
// fill counts against the first, so that a difference the other way is none.
func BenchmarkFarControl(b *testing.B) {
	const distance, piece = 256 << 20, 128 << 10
	log := newLog(b, jslog.Config{})
	nodes := 0
	lead := func() *Leader {
		nodes++
		l, err := Start(b.Context(), OfJetStream(log), Options{Node: fmt.Sprint("node", nodes)})
		if err != nil {
			b.Fatal(err)
		}
		return l
	}
	stop := func(l *Leader) {
		if err := l.Stop(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	appends := func(b *testing.B, l *Leader) {
		for b.Loop() {
			if _, err := l.Append(b.Context(), Append{Records: bodies("a record of twenty bytes")}); err != nil {
				b.Fatal(err)
			}
		}
	}
	for round := range 3 {
		l := lead()
		results := make(chan Result, distance/piece)
		for range cap(results) {
			if err := l.Submit(b.Context(), Append{Records: bodies(string(make([]byte, piece)))}, func(r Result) { results <- r }); err != nil {
				b.Fatal(err)
			}
		}
		for range cap(results) {
			if r := <-results; r.Err != nil {
				b.Fatal(r.Err)
			}
		}
		b.Run(fmt.Sprintf("far/%d", round), func(b *testing.B) { appends(b, l) })
		stop(l)
		l = lead()
		b.Run(fmt.Sprintf("anew/%d", round), func(b *testing.B) { appends(b, l) })
		stop(l)
	}
}
