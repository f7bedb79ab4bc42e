// Package streamchaos runs three nats-servers and three nova nodes as processes, breaks them under load, and judges what is
// left by the log itself: every frame of every replica is read, and held against what each client asked for, was told, and
// when. The order of the log is the witness; nothing that a client says is taken for true but the times of its calls.
//
// A program that uses it calls Child first: the processes are that program, run again.
package streamchaos

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind is a kind of fault.
type Kind string

const (
	// KillNATS kills a nats-server, often the one that leads a stream, and starts it again with its data.
	KillNATS Kind = "kill-nats"
	// KillAllNATS does that to all of them at once.
	KillAllNATS Kind = "kill-all-nats"
	// KillNova kills a node and starts it again.
	KillNova Kind = "kill-nova"
	// StepDown has the JetStream leader of a stream give its lead up, StepDownMeta that of the cluster.
	StepDown     Kind = "step-down"
	StepDownMeta Kind = "step-down-meta"
	// Cut breaks connections, with all that is on its way in them, of a node to the nats-servers or of clients to a node.
	Cut Kind = "cut"
	// Isolate does that and refuses new ones for a while.
	Isolate Kind = "isolate"
	// Stall holds bytes back, of one direction or both, and lets them through later, or breaks the connection.
	Stall Kind = "stall"
	// Split cuts a nats-server off from the others, and not from nodes: the bytes between them are held back. If it led, it
	// goes on as if it did for some seconds.
	Split Kind = "split"
	// PauseNATS and PauseNova stop a process for a while, as a machine that hangs does; it goes on where it was.
	PauseNATS Kind = "pause-nats"
	PauseNova Kind = "pause-nova"
)

// Kinds are all kinds of faults that this system can do.
func Kinds() []Kind {
	all := []Kind{KillNATS, KillAllNATS, KillNova, StepDown, StepDownMeta, Cut, Isolate, Stall, Split}
	if canPause {
		all = append(all, PauseNATS, PauseNova)
	}
	return all
}

// Options shape a run. Zero values are the defaults.
type Options struct {
	// Seed is that of the faults' plan and of what the clients choose; default 1. The same seed gives the same plan, and
	// not the same run: processes are not played again to the byte.
	Seed uint64
	// Duration is how long there are faults; default 2 min.
	Duration time.Duration
	// Kinds are the faults; default all of Kinds.
	Kinds []Kind
	// Gap is the mean time from one fault to the next; default 1.2 s.
	Gap time.Duration
	// Settle bounds the time until every stream takes appends again when all faults have ended; default 60 s. Each part of
	// the run that waits for something else is bounded by it, too.
	Settle time.Duration
	// Dir is where data and logs of the processes go; default a temporary folder, which is removed if nothing is wrong.
	Dir string
	// Progress is called every Every, default 5 s, on one goroutine; may be nil.
	Progress func(Progress)
	Every    time.Duration

	// unchecked are headers that are taken out of what the nodes send to the log: a planted bug. faults are done in place of
	// the plan's.
	unchecked []string
	faults    []fault
}

func (o Options) withDefaults() Options {
	o.Seed = cmp.Or(o.Seed, 1)
	o.Duration = cmp.Or(o.Duration, 2*time.Minute)
	o.Gap = cmp.Or(o.Gap, 1200*time.Millisecond)
	o.Settle = cmp.Or(o.Settle, time.Minute)
	o.Every = cmp.Or(o.Every, 5*time.Second)
	if len(o.Kinds) == 0 {
		o.Kinds = Kinds()
	}
	return o
}

// Validate reports the first option that makes no run.
func (o Options) Validate() error {
	for _, k := range o.Kinds {
		if !slices.Contains(Kinds(), k) {
			return fmt.Errorf("streamchaos: no fault %q; there are %s", k, join(Kinds()))
		}
	}
	if o.Duration < 0 || o.Gap < 0 || o.Settle < 0 || o.Every < 0 {
		return errors.New("streamchaos: a negative duration")
	}
	return nil
}

func join(kinds []Kind) string {
	texts := make([]string, len(kinds))
	for i, k := range kinds {
		texts[i] = string(k)
	}
	return strings.Join(texts, ",")
}

// Progress is what has happened so far.
type Progress struct {
	Since  time.Duration
	Calls  map[string]int // by verdict
	Faults int
	// Last is the newest fault.
	Last string
}
