package objectstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/typedfold/fold/runtime/artifact/objects"
)

const (
	racers = 16
	rounds = 200
	prize  = "race/pointer.json"
)

// version is a pointer's value in a race: each names the racer, so that no two racers write the same bytes.
type version struct {
	Number int
	Racer  int
}

// outcome is what one racer saw.
type outcome struct {
	Won       []int // the versions that it was told it had stored
	Conflicts int
}

// run swaps the pointer to the next version until the last is there.
func run(ctx context.Context, s objects.Store, racer int) (out outcome, err error) {
	last := 0
	for {
		value, token, err := s.ReadPointer(ctx, prize)
		if err != nil {
			return out, err
		}
		var v version
		if err := json.Unmarshal(value, &v); err != nil {
			return out, fmt.Errorf("torn pointer %q: %w", value, err)
		}
		if v.Number < last {
			return out, fmt.Errorf("the pointer went back from %d to %d", last, v.Number)
		}
		if last = v.Number; last == rounds {
			return out, nil
		}
		next, err := json.Marshal(version{Number: last + 1, Racer: racer})
		if err != nil {
			return out, err
		}
		runtime.Gosched() // so that racers of one process overlap too
		switch err := s.SwapPointer(ctx, prize, next, token); {
		case err == nil:
			last++
			out.Won = append(out.Won, last)
		case errors.Is(err, objects.ErrConflict):
			out.Conflicts++
		default:
			return out, err
		}
	}
}

// race has 16 racers swap one pointer 200 times, in 16 processes where the store can have such.
func (s *suite) race() {
	s.must(s.s.SwapPointer(s.ctx, prize, []byte(`{"Number":0}`), ""))
	outcomes := make([]outcome, racers)
	if s.h.Processes {
		s.raceProcesses(outcomes)
	} else {
		s.together(racers, func(i int) (err error) {
			outcomes[i], err = run(s.ctx, s.s, i)
			return err
		})
	}
	winner := map[int]int{}
	conflicts := 0
	for i, o := range outcomes {
		conflicts += o.Conflicts
		for _, v := range o.Won {
			if other, ok := winner[v]; ok {
				s.Errorf("version %d was won by %d and by %d", v, other, i)
			}
			winner[v] = i
		}
	}
	if len(winner) != rounds {
		s.Errorf("%d versions were won, not %d", len(winner), rounds)
	}
	if conflicts == 0 {
		s.Error("nobody ever lost: that was no race")
	}
	s.Logf("%d racers, %d versions, %d conflicts", racers, rounds, conflicts)
}

func (s *suite) raceProcesses(outcomes []outcome) {
	children := make([]*child, racers)
	for i := range children {
		children[i] = s.child(childTask{Op: opRace, Place: s.place, Racer: i})
		defer children[i].end()
	}
	for _, c := range children {
		c.expect(s, sawReady)
	}
	for _, c := range children {
		_, err := fmt.Fprintln(c.in, "go")
		s.must(err)
	}
	for i, c := range children {
		line := c.expect(s, sawDone)
		s.must(json.Unmarshal([]byte(strings.TrimPrefix(line, sawDone)), &outcomes[i]))
	}
}

// oneCreator has 16 stores create one pointer at once, round after round.
func (s *suite) oneCreator() {
	stores := make([]objects.Store, racers)
	for i := range stores {
		stores[i] = s.open()
	}
	for round := range 20 {
		key := fmt.Sprintf("create/%d", round)
		won := make([]bool, racers)
		s.together(racers, func(i int) error {
			err := stores[i].SwapPointer(s.ctx, key, fmt.Appendf(nil, "by %d", i), "")
			if won[i] = err == nil; errors.Is(err, objects.ErrConflict) {
				return nil
			}
			return err
		})
		winners := 0
		for i := range won {
			if won[i] {
				winners++
				s.token(key, fmt.Sprintf("by %d", i))
			}
		}
		if winners != 1 {
			s.Fatalf("round %d has %d winners", round, winners)
		}
	}
}

// createAndDelete: a pointer that is created, deleted and created again by many has one owner at a time.
func (s *suite) createAndDelete() {
	var owners, created atomic.Int64
	s.together(racers, func(i int) error {
		for n := 0; created.Load() < 60; n++ {
			err := s.s.SwapPointer(s.ctx, "owned/x", fmt.Appendf(nil, "%d of %d", n, i), "")
			if errors.Is(err, objects.ErrConflict) {
				continue
			}
			if err != nil {
				return err
			}
			created.Add(1)
			if owners.Add(1) != 1 {
				return errors.New("two own the pointer")
			}
			owners.Add(-1)
			if err := s.s.Delete(s.ctx, "owned/x"); err != nil {
				return err
			}
		}
		return nil
	})
	s.wantKeys("")
}
