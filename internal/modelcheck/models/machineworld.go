package models

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/runtime/kv"
)

// A process of a fold: the machine that ships, and a shell around it that does what its effects ask for, one answer at a
// time. Crashes drop it whole. It is a value: stepping it leaves a copy as it was.
//
// Left out are times. A timer fires when the model says so, and how long it was armed for counts for nothing.

var (
	errWatch = errors.New("the watch is lost")
	errFlush = errors.New("a flush failed")
	errFinal = errors.New("a repair is refused")
)

// change is one update as a segment has it. The zero change is none.
type change uint16

func changeOf(key, rev uint8, del bool) change {
	c := change(1) | change(key)<<1 | change(rev)<<3
	if del {
		c |= 1 << 7
	}
	return c
}

func (c change) key() uint8 { return uint8(c>>1) & 3 }

// rev is the revision of the change's message; 0 is a repair's delete.
func (c change) rev() uint8    { return uint8(c>>3) & 15 }
func (c change) deletes() bool { return c>>7&1 == 1 }

// unknown is the change without a version that can be read.
func (c change) unknown() change    { return c | 1<<8 }
func (c change) isUnknown() bool    { return c>>8&1 == 1 }
func (c change) repairs() bool      { return c>>9&1 == 1 }
func (c change) hasExpect() bool    { return c>>10&1 == 1 }
func (c change) expect() uint8      { return uint8(c>>11) & 15 }
func (c change) unexpected() change { return c &^ (31 << 10) }

// repair is the change as a repair's, decided on a row of this revision; 0 is none, which expects nothing.
func (c change) repair(row uint8) change {
	c |= 1 << 9
	if row != 0 {
		c |= 1<<10 | change(row)<<11
	}
	return c
}

// segment is the ID of a receive's updates, which says what they are: up to four, in order. So equal segments have equal
// IDs, and the machine looks into none.
type segment uint64

func segmentOf(changes ...change) (s segment) {
	for i, c := range changes {
		s |= segment(c) << (16 * i)
	}
	return s
}

func (s segment) changes() (all []change) {
	for ; s != 0; s >>= 16 {
		all = append(all, change(s))
	}
	return all
}

// received is the segment as the machine gets it, as the shell in package fold counts it.
func (s segment) received() machine.Segment {
	m := machine.Segment{ID: uint64(s)}
	for _, c := range s.changes() {
		m.Updates++
		if v := kv.Revision(uint64(c.rev())); !c.isUnknown() && v.Rank() > m.High.Rank() {
			m.High = v
		}
	}
	return m
}

// asked is what an effect asked for and nobody has answered yet.
type asked uint16

const (
	askedOpen asked = 1 << iota
	askedReceive
	askedHooks
	askedStore
	askedRepair
	askedAudit
	askedTimers // and the next three bits
)

func askedTimer(t machine.Timer) asked { return askedTimers << t }

// maxQueued is how many segments can be received and not committed.
const maxQueued = 6

type process struct {
	m     *machine.M // nil: it is down
	asked asked
	// watching: a watch is open.
	watching bool
	// hooked: the hooks of the flush in progress have returned.
	hooked  bool
	opening machine.OpenWatch
	receive machine.Receive
	flush   machine.Flush
	repair  machine.Repair
	// queue is what was received and is not committed, in order.
	queue  [maxQueued]segment
	queued uint8
	stop   stopped
}

// stopped is how the last process ended, if it ended itself.
type stopped uint8

const (
	stoppedNot stopped = iota
	stoppedClean
	stoppedFailing // a flush failed too often
	stoppedLate    // the deadline passed
	stoppedFinal   // a repair is refused, or there is none
)

func (s stopped) String() string {
	return [...]string{"", "stopped", "fail-stopped", "stopped late", "refused"}[s]
}

func (p *process) up() bool         { return p.m != nil }
func (p *process) has(a asked) bool { return p.asked&a != 0 }

// start begins a process.
func (p *process) start(cfg machine.Config, resume kv.Cursor, owed kv.Owed) []machine.Effect {
	m, effects := machine.New(cfg, resume, owed)
	*p = process{m: m}
	p.carry(effects)
	return effects
}

// crash ends it as it is.
func (p *process) crash() { *p = process{} }

// step gives the machine one input, and takes note of what it asks for. Answering takes the question back first.
func (p *process) step(in machine.Input) []machine.Effect {
	p.answered(in)
	p.m = p.m.Clone()
	effects := p.m.Step(in, nil)
	p.carry(effects)
	return effects
}

func (p *process) answered(in machine.Input) {
	switch in := in.(type) {
	case machine.Opened:
		p.asked &^= askedOpen
		p.watching = true
	case machine.OpenFailed:
		p.asked &^= askedOpen
	case machine.Received:
		p.asked &^= askedReceive
		p.enqueue(segment(in.Segment.ID))
	case machine.WatchEnded:
		p.asked &^= askedReceive
		p.watching = false
	case machine.Injected:
		p.enqueue(segment(in.Segment.ID))
	case machine.HooksDone:
		p.asked &^= askedHooks
		p.hooked = in.Err == nil
	case machine.StoreDone:
		p.asked &^= askedStore
	case machine.Repaired, machine.RepairFailed:
		p.asked &^= askedRepair
	case machine.Audited:
		p.asked &^= askedAudit
	case machine.TimerFired:
		p.asked &^= askedTimer(in.Timer)
	}
}

func (p *process) enqueue(s segment) {
	p.queue[p.queued] = s
	p.queued++
}

func (p *process) carry(effects []machine.Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case machine.OpenWatch:
			p.asked |= askedOpen
			p.opening = e
		case machine.CloseWatch:
			p.watching = false
		case machine.Receive:
			p.asked |= askedReceive
			p.receive = e
		case machine.RunHooks:
			p.asked |= askedHooks
			p.flush = e.Flush
		case machine.ApplyStore:
			p.asked |= askedStore
			p.flush = e.Flush
		case machine.Committed:
			p.committed(len(e.Flush.Segments))
		case machine.Repair:
			p.asked |= askedRepair
			p.repair = e
		case machine.Audit:
			p.asked |= askedAudit
		case machine.Arm:
			p.asked |= askedTimer(e.Timer)
		case machine.Stop:
			*p = process{stop: stopOf(e.Err)}
		}
	}
}

func (p *process) committed(segments int) {
	n := copy(p.queue[:], p.queue[segments:p.queued])
	clear(p.queue[n:])
	p.queued = uint8(n)
	p.hooked, p.flush = false, machine.Flush{}
}

func stopOf(err error) stopped {
	var failed *machine.FailStopError
	var late *machine.ShutdownError
	switch {
	case err == nil:
		return stoppedClean
	case errors.As(err, &failed):
		return stoppedFailing
	case errors.As(err, &late):
		return stoppedLate
	}
	return stoppedFinal
}

// changes are those of the flush in progress, in order.
func (p *process) changes() (all []change) {
	for _, id := range p.flush.Segments {
		all = append(all, segment(id).changes()...)
	}
	return all
}

func (p *process) appendState(out []byte) []byte {
	out = append(out, byte(p.stop), byte(p.asked), byte(p.asked>>8), flags(p.up(), p.watching, p.hooked), p.queued)
	if !p.up() {
		return out
	}
	for _, s := range p.queue[:p.queued] {
		out = binary.LittleEndian.AppendUint64(out, uint64(s))
	}
	if p.has(askedOpen) {
		out = append(out, byte(p.opening.After.Revision()), flags(p.opening.Relist, p.opening.After.SeenEvicting))
	}
	if p.has(askedReceive) {
		out = append(out, byte(p.receive.Max))
	}
	if p.has(askedRepair) {
		out = append(out, byte(p.repair.Committed.Revision()), byte(p.repair.End), flags(p.repair.Committed.SeenEvicting), byte(p.repair.Owed.Why), byte(p.repair.Owed.At))
	}
	return p.m.AppendState(out)
}

func flags(all ...bool) (b byte) {
	for i, f := range all {
		if f {
			b |= 1 << i
		}
	}
	return b
}

// String tells what is going on, for traces.
func (p *process) String() string {
	if !p.up() {
		return "down " + p.stop.String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%v", p.m.Phase())
	for i, name := range []string{"open", "receive", "hooks", "store", "repair", "audit", "open timer", "retry timer", "window timer", "audit timer"} {
		if p.asked>>i&1 == 1 {
			b.WriteString(" " + name + "?")
		}
	}
	if p.queued > 0 {
		fmt.Fprintf(&b, " queue %v", p.queue[:p.queued])
	}
	return b.String()
}

func (s segment) String() string { return fmt.Sprint(s.changes()) }

func (c change) String() string {
	s := fmt.Sprintf("%c@%d", 'a'+c.key(), c.rev())
	if c.deletes() {
		s = "-" + s
	}
	if c.isUnknown() {
		s += "?"
	}
	if c.repairs() {
		s = "repair " + s
	}
	if c.hasExpect() {
		s += fmt.Sprintf(" of %d", c.expect())
	}
	return s
}
