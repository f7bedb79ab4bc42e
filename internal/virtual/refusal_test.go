package virtual

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	"github.com/typedfold/fold/runtime/repair"
)

// refusal tells what is wrong with a node's end by err; nil is that it had to stop. The steady node never has to, and the
// visitor only where values age out: when a start found an artifact, and by the time that the server was reached the log had
// lost a write after it, be it to later ones of the same key. Then what it holds can't be told from what is missing, so it stops
// and waits for a person with a newer artifact (docs/adr/0007-repairs-run-in-the-loop.md). All of this is judged by what was
// written, not by what the fold says of the log.
func (s *story) refusal(n *node, err error) error {
	var e *repair.RestoreRefusedError
	if n != s.visitor || !s.history.evicts || !errors.As(err, &e) {
		return fmt.Errorf("stopped: %w", err)
	}
	no, when := e.Refused, n.f.Status().Since
	at := no.Cursor.Revision()
	if !s.history.mayBegin(no.First, no.Last, when) {
		return fmt.Errorf("the log can't have begun at revision %d: %w", no.First, err)
	}
	if at != 0 && !s.expired(at, no.First, when) {
		return fmt.Errorf("cursor %d was good: %w", at, err)
	}
	if len(e.Candidates) != len(s.kept) {
		return fmt.Errorf("there were the artifacts %v: %w", s.kept, err)
	}
	for _, c := range e.Candidates {
		cursor, there := s.kept[c.ID]
		switch {
		case !there || c.Cursor.Revision() != cursor:
			return fmt.Errorf("there were the artifacts %v: %w", s.kept, err)
		case cursor > at && cursor+1 >= no.First:
			return fmt.Errorf("artifact %s was good: %w", c.ID, err)
		}
	}
	return nil
}

// expired reports whether a cold start can't go on from a cursor. Where values only age out, it can from one that is younger
// than half of the age, whatever became of the writes after it (docs/failure-modes.md). A cursor has its message's time in whole
// milliseconds.
func (s *story) expired(at, first uint64, when time.Time) bool {
	w, ok := s.history.at(at)
	young := ok && !s.history.markers && when.Sub(w.sent.Truncate(time.Millisecond)) <= maxAge/2
	return at+1 < first && !young
}

// TestArtifactThatCameTooEarly: a visitor starts while its line is down, with an artifact of that moment. When the line is
// there, each write after the artifact has been superseded. Without a cursor, or with an old one, it stops and holds what it
// held; the next artifact and a start make it whole. A cursor that is young needs no artifact.
func TestArtifactThatCameTooEarly(t *testing.T) {
	for _, c := range []struct {
		name    string
		away    time.Duration // 0 is a visitor that was never there
		refused int
	}{
		{"no cursor", 0, 1},
		{"an old cursor", maxAge * 3 / 4, 1},
		{"a young cursor", maxAge / 4, 0},
	} {
		for backend := range stores {
			t.Run(c.name+"/"+backend, func(t *testing.T) {
				dir := t.TempDir()
				bubble(t, func(t *testing.T) {
					s := &story{t: t, seed: 1, r: rand.New(rand.NewPCG(1, 0)), backend: backend, kind: "ages", dir: dir, counts: map[string]int{}}
					s.set()
					defer s.clear()
					s.start(s.steady)
					must(t, s.steady.f.WaitHydrated(bounded(t)))
					s.rewrite()
					held := uint64(0)
					if c.away > 0 {
						s.start(s.visitor)
						s.caughtUp(s.visitor)
						held = s.visitor.f.Cursor().Revision()
						s.stop(s.visitor)
						time.Sleep(c.away) // of the bubble's time, as all are here: values age meanwhile
					}
					s.visitor.client.line.cut()
					s.start(s.visitor)
					s.rewrite()
					s.visitor.client.line.mend()
					if c.refused > 0 {
						s.stands(held)
					}
					s.caughtUp(s.visitor)
					if s.counts["refused"] != c.refused {
						t.Errorf("refused %d times, want %d", s.counts["refused"], c.refused)
					}
					s.end()
				})
			})
		}
	}
}

// rewrite writes a few keys so often that none of what was there before is left, nor the first of what it writes.
func (s *story) rewrite() {
	s.t.Helper()
	for range 2 {
		s.write("d0", false)
		s.write("d1", false)
	}
}

// stands waits for the visitor to stop, and looks whether it serves what it held at a cursor.
func (s *story) stands(held uint64) {
	s.t.Helper()
	select {
	case <-s.visitor.f.Done():
	case <-bounded(s.t).Done():
		s.t.Fatalf("the visitor goes on: %+v", s.visitor.f.Status())
	}
	snap, err := s.visitor.f.Snapshot()
	must(s.t, err)
	defer snap.Close()
	if at := snap.Cursor().Revision(); at != held {
		s.t.Errorf("the visitor stands at cursor %d, want %d", at, held)
	}
	rows := map[string]uint64{}
	for row, err := range s.visitor.routes.At(snap).List(s.t.Context(), ft.RouteAll()) {
		must(s.t, err)
		rows[row.Key.String()] = row.Rev.Seq()
	}
	for key := range s.history.latest {
		if want, _ := s.history.mayShow(key, rows[key], held); rows[key] != want {
			s.t.Errorf("the visitor serves %s at revision %d, want %d", key, rows[key], want)
		}
	}
}
