package streamchaos

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// fault is one fault of a plan: when, what, to which one, and for how long.
type fault struct {
	At     time.Duration
	Kind   Kind
	Target int // of size
	// Other is the nats-server at the end of a line, or the stream whose leader is meant.
	Other int
	// Front: the clients' connections to the node, and not the node's to the nats-servers.
	Front bool
	// Leader: the leader of stream Other in place of Target, if there is one.
	Leader bool
	// Up, Down: which directions are held back. Breaks: and lost with the connection then, in place of let through.
	Up, Down, Breaks bool
	Hold             time.Duration
}

func (f fault) String() string {
	text := fmt.Sprintf("%s %d", f.Kind, f.Target)
	switch {
	case f.Kind == StepDown || f.Leader:
		text = fmt.Sprintf("%s the leader of stream %d, or %d", f.Kind, f.Other, f.Target)
	case f.Kind == KillAllNATS || f.Kind == StepDownMeta:
		text = string(f.Kind)
	case f.Front:
		text += " from its clients"
	case f.Kind == Cut || f.Kind == Isolate || f.Kind == Stall:
		text += " from the nats-servers"
	}
	if f.Kind == Stall {
		for _, w := range []struct {
			is   bool
			text string
		}{{f.Up, ", up"}, {f.Down, ", down"}, {f.Breaks, ", and break"}} {
			if w.is {
				text += w.text
			}
		}
	}
	if f.Hold > 0 {
		text += fmt.Sprint(" for ", f.Hold.Round(10*time.Millisecond))
	}
	return text
}

// plan is the faults of a run; equal arguments give equal plans. Kinds come as cards of a deck do, so that a run of some
// length has each of them.
func plan(seed uint64, o Options) (all []fault) {
	if o.faults != nil {
		return o.faults
	}
	r := rand.New(rand.NewPCG(seed, 1))
	var deck []Kind
	for at := time.Duration(0); at < o.Duration; {
		if len(deck) == 0 {
			deck = append(deck, o.Kinds...)
			r.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		f := fault{At: at, Kind: deck[0], Target: r.IntN(size), Other: r.IntN(size), Front: r.IntN(3) == 0, Leader: r.IntN(2) == 0}
		deck = deck[1:]
		f.Up, f.Down = r.IntN(3) > 0, r.IntN(2) == 0
		f.Up = f.Up || !f.Down
		f.Breaks = r.IntN(3) == 0
		f.Hold = min(holdOf(f.Kind, r), max(o.Duration-at, 2*time.Second))
		if f.Kind != KillNATS && f.Kind != PauseNATS && f.Kind != Split {
			f.Leader = false
		}
		if f.Kind != Cut && f.Kind != Isolate && f.Kind != Stall {
			f.Front = false
		}
		all = append(all, f)
		at += o.Gap/4 + time.Duration(r.Int64N(int64(3*o.Gap/2)+1))
	}
	return all
}

// holdOf is how long a fault lasts. A node that is silent for longer than two answers of 5 s take is replaced: some faults
// are there for that long, so that what they held back comes late.
func holdOf(k Kind, r *rand.Rand) time.Duration {
	between := func(low, high time.Duration) time.Duration { return low + time.Duration(r.Int64N(int64(high-low))) }
	switch k {
	case StepDown, StepDownMeta, Cut:
		return 0
	case KillNATS, KillAllNATS, KillNova:
		return between(100*time.Millisecond, 2*time.Second)
	}
	if r.IntN(3) == 0 {
		return between(5500*time.Millisecond, 9*time.Second)
	}
	return between(200*time.Millisecond, 3*time.Second)
}
