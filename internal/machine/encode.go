package machine

import (
	"encoding/binary"

	"github.com/typedfold/fold/runtime/kv"
)

// AppendState appends the machine's state: equal for two machines with the same Config that go on alike, but for how long
// their timers run and for which errors they stop with.
func (m *M) AppendState(out []byte) []byte {
	out = append(out, byte(m.phase), byte(m.stage),
		bits(m.memo, m.relisting, m.hydrated, m.bulk, m.bulked, m.windowArmed, m.windowOver, m.receiving),
		bits(m.retryArmed, m.ended, m.ended && m.end != nil, m.repairing, m.decided, m.reopen, m.newLog, m.stopWith != nil),
		bits(m.auditing, m.auditing && m.overtaken, m.auditArmed, m.auditDue, m.unproven, m.caughtUp, m.headKnown))
	out = appendCursor(appendCursor(out, m.committed), m.seen)
	out = appendOwed(appendOwed(out, m.owed), m.stored)
	out = binary.AppendUvarint(out, uint64(m.failures))
	if m.headKnown && !m.caughtUp {
		out = binary.AppendUvarint(out, m.head)
	}
	if m.ended {
		out = append(out, byte(m.endKind))
	}
	if m.repairing || m.decided {
		out = appendOwed(out, m.since)
	}
	if m.decided || m.reopen {
		o := &m.outcome
		out = appendOwed(appendCursor(append(out, bits(o.Relist, o.NewLog)), o.Cursor), o.Owed)
	}
	out = binary.AppendUvarint(out, uint64(len(m.pending)))
	for i := range m.pending {
		out = appendSegment(out, &m.pending[i])
	}
	if m.stage == stageIdle {
		return out
	}
	return appendFlush(out, &m.flush)
}

func bits(flags ...bool) (b byte) {
	for i, f := range flags {
		if f {
			b |= 1 << i
		}
	}
	return b
}

func appendCursor(out []byte, c kv.Cursor) []byte {
	out = c.Version.AppendBytes(append(out, byte(c.Version.Len())))
	return binary.AppendUvarint(append(out, bits(c.SeenEvicting)), c.WrittenAt)
}

func appendOwed(out []byte, o kv.Owed) []byte {
	return binary.AppendUvarint(append(out, byte(o.Why)), o.At)
}

func appendSegment(out []byte, s *Segment) []byte {
	out = append(out, bits(s.Alone))
	for _, n := range []uint64{s.ID, uint64(s.Updates), uint64(s.Bytes), s.High.Rank(), s.HighMillis, s.Frontier} {
		out = binary.AppendUvarint(out, n)
	}
	return out
}

func appendFlush(out []byte, f *Flush) []byte {
	out = appendOwed(appendCursor(append(out, bits(f.Bulk)), f.Cursor), f.Owed)
	for _, n := range []int{f.Updates, f.Bytes, len(f.Segments)} {
		out = binary.AppendUvarint(out, uint64(n))
	}
	for _, id := range f.Segments {
		out = binary.AppendUvarint(out, id)
	}
	return out
}
