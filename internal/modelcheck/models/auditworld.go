package models

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/internal/modelcheck"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// A fold whose log may turn out to be another one, and whose delete markers may vanish before it sees them: it owes audits,
// and settles them beside what goes on. The machine is the one that ships; identity, gaps, audits and the adoption of
// another log come in the order of package natskv, of package fold's shell and of package repair.
//
// Hooks and store answer at once. The watch hands out one message at a time, and its guard and frontier have a model of
// their own. Left out are scopes, restores and rejected updates.

const (
	auditRevs = 5
	auditKeys = 2
)

// auditKind is what a message is on the wire.
type auditKind uint8

const (
	auditPut auditKind = iota
	auditEmptyPut
	auditDel
	auditPurgeOp
	auditAged    // the server's marker of what aged out
	auditRemoved // the server's marker of what was removed
	auditPurged  // and of what was purged
	auditKindsEnd
)

// auditMessage is one message: its key and kind, and in which writing of the log's past it was written. A log that lost its
// end, or was created anew, is in another one from then on. With its revision that is its time.
type auditMessage struct {
	kind     auditKind
	key, era uint8
}

type auditLog struct {
	written [auditRevs + 1]auditMessage
	there   revs
	last    uint8
	// created numbers the logs under this name, era the writings of its past.
	created, era uint8
	// ages are in ticks.
	ages [auditRevs + 1]uint8
}

// auditRow is a row: the revision and the era of its message; 0 is none.
type auditRow struct{ rev, era uint8 }

type auditRows [auditKeys]auditRow

func (l *auditLog) latest(key uint8) uint8 {
	for r := l.last; r > 0; r-- {
		if l.written[r].key == key {
			return r
		}
	}
	return 0
}

func (l *auditLog) write(key uint8, kind auditKind) {
	if was := l.latest(key); was != 0 {
		l.there &^= 1 << was
	}
	l.last++
	l.written[l.last] = auditMessage{kind, key, l.era}
	l.there |= 1 << l.last
}

// rewind takes the log's end away: a backup of it is put back.
func (l *auditLog) rewind(to uint8) {
	clear(l.written[to+1:])
	clear(l.ages[to+1:])
	l.last, l.there, l.era = to, 0, l.era+1
	for k := range uint8(auditKeys) {
		if r := l.latest(k); r != 0 {
			l.there |= 1 << r
		}
	}
}

func (l *auditLog) after(rev uint8) uint8 {
	if rest := l.there >> (rev + 1); rest != 0 {
		return rev + 1 + uint8(bits.TrailingZeros16(uint16(rest)))
	}
	return 0
}

func (l *auditLog) first() uint8 {
	if l.there == 0 && l.last > 0 {
		return l.last + 1
	}
	return l.after(0)
}

func (l *auditLog) row(rev uint8) auditRow { return auditRow{rev, l.written[rev].era} }

// means is what the writer of a message meant: a value, a delete, or nothing.
func (w *auditWorld) means(k auditKind) (value, deletes bool) {
	switch k {
	case auditPut:
		return true, false
	case auditEmptyPut:
		return !w.emptyDeletes, w.emptyDeletes
	case auditAged:
		return false, false
	}
	return false, true
}

// truth is every write minus every delete, of the log as it is now.
func (w *auditWorld) truth(l *auditLog) (t auditRows) {
	for r := uint8(1); r <= l.last; r++ {
		m := l.written[r]
		switch value, deletes := w.means(m.kind); {
		case value:
			t[m.key] = l.row(r)
		case deletes:
			t[m.key] = auditRow{}
		}
	}
	return t
}

// decode is what the client makes of a message.
func (w *auditWorld) decode(k auditKind) protocol.EventKind {
	op, reason, empty, tombstone := protocol.KVOperationNone, protocol.MarkerNone, k != auditPut, w.emptyDeletes
	switch k {
	case auditDel:
		op = protocol.KVOperationDel
	case auditPurgeOp:
		op = protocol.KVOperationPurge
	case auditAged:
		reason = protocol.MarkerMaxAge
	case auditRemoved:
		reason = protocol.MarkerRemove
	case auditPurged:
		reason = protocol.MarkerPurge
	}
	if w.forge.event != nil {
		w.forge.event(&op, &reason, &empty, &tombstone)
	}
	return protocol.EventKindOf(op, reason, empty, tombstone)
}

// auditKnown is what is remembered of the log: its creation, and the first and the last message that was applied.
type auditKnown struct {
	created uint8
	samples [2]auditRow
}

type auditDisk struct {
	rows   auditRows
	cursor kv.Cursor
	owed   kv.Owed
	known  auditKnown
}

type auditWatch struct {
	// pos is what it has handed out. A re-list owes nothing up to floor.
	pos, floor uint8
	// dead: its log was taken from under it.
	dead bool
}

type auditState struct {
	log   auditLog
	p     process
	disk  auditDisk
	known auditKnown // of the process; what a repair makes of it waits in takes
	takes auditKnown
	watch auditWatch
	mend  auditing
	// listed is where the listing of the last repair began, relist: a re-list is to be opened.
	listed uint8
	relist bool
	// away is how long ago the last message was applied that is known.
	away uint8

	// same: nothing has happened to the log since the fold began with it.
	same                                   bool
	rewinds, recreates, cuts, crashes      uint8 // that may still happen
	purges, ageOuts, ticks, shorts, writes uint8
	saw                                    auditSaw
}

// auditSaw is what one step showed.
type auditSaw uint16

const (
	auditSawPhantom auditSaw = 1 << iota
	auditSawFalseAlarm
	auditSawZombieGone
	auditSawSuspectSpared
	auditSawIdentityOwed
	auditSawReplaced
	auditSawRewound
	auditSawContradiction
	auditSawMissing
	auditSawAdopted
	auditSawUnsure
	auditSawSkipped
	auditSawImplausible
	auditSawSettled
	auditSawStayed
)

type auditWorld struct {
	name   string
	revs   uint8
	kinds  []auditKind
	rules  protocol.MarkerRules
	bounds auditState // how much may happen
	adopts bool
	// uncounted: the log does not say how many keys it has, and each key stands for eleven.
	uncounted    bool
	emptyDeletes bool
	// young: the fold has not run for long, and remembers no message but the last.
	young bool
	// witnesses have to happen.
	witnesses []auditSaw
	forge     auditForge
}

// auditForge is what a mutation does to it.
type auditForge struct {
	event   func(op *protocol.KVOperation, reason *protocol.MarkerReason, empty, tombstone *bool)
	same    func(*protocol.LogSeen)
	markers func(r *protocol.MarkerRules, away *int64)
	gap     func(*protocol.Gap)
	plan    func(owed *bool)
	truth   func(*protocol.Truth)
	listing func(*protocol.Listing)
	key     func(*protocol.AuditSeen)
	suspect func(value *bool, last, applied *uint64)
	brake   func(deletes, rows *uint64)
	audited func(*machine.Audited)
	repair  func(*protocol.PlanInput)

	owedLost, knownLost, identityFree, earlyRows, noExpect, adoptKeepsKnown, relistFree, auditsOn bool
}

type auditVerb uint8

const (
	auditWrite auditVerb = iota
	auditVanish
	auditAgeOut
	auditTick
	auditRewind
	auditRecreate
	auditCut
	auditCrash
	auditStart
	auditOpen
	auditDeliver
	auditProgress
	auditEnd
	auditDue
	auditGo
	auditGoShort
)

var auditNames = [...]string{"write", "the marker vanishes", "age out", "a tick passes", "the log loses its end after", "the log is created anew", "cut", "crash",
	"start", "open", "deliver", "progress", "the watch ends", "an audit is due", "go on with it", "list short of a key"}

type auditAct struct {
	verb auditVerb
	n    uint8
	kind auditKind
}

func (a auditAct) String() string {
	switch a.verb {
	case auditWrite:
		return fmt.Sprintf("write %c as %d", 'a'+a.n, a.kind)
	case auditVanish, auditAgeOut, auditRewind:
		return fmt.Sprintf("%s %d", auditNames[a.verb], a.n)
	}
	return auditNames[a.verb]
}

func fairAudit(a auditAct) bool { return a.verb >= auditStart && a.verb != auditGoShort }

func (w *auditWorld) machine() machine.Config {
	return machine.Config{HasStore: true, CanRepair: true, MaxUpdates: 1, MaxBytes: 1, BulkUpdates: 100, BulkBytes: 1, QueueUpdates: 1, QueueBytes: 1, MaxFailures: 2}
}

func (w *auditWorld) actions(s auditState, out []auditAct) []auditAct {
	l := &s.log
	for k := uint8(0); k < auditKeys && l.last < w.revs && s.writes > 0; k++ {
		for _, kind := range w.kinds {
			if value, _ := w.means(kind); value || w.truth(l)[k].rev != 0 {
				out = append(out, auditAct{auditWrite, k, kind})
			}
		}
	}
	for r := uint8(1); r <= l.last; r++ {
		there := l.there>>r&1 == 1
		if _, deletes := w.means(l.written[r].kind); there && s.purges > 0 && deletes && (w.rules.Purge || w.rules.Delete || w.rules.Rollup) {
			out = append(out, auditAct{verb: auditVanish, n: r})
		}
		if there && l.written[r].kind == auditAged && l.ages[r] >= uint8(w.rules.MarkerTTL) && w.rules.MarkerTTL > 0 {
			out = append(out, auditAct{verb: auditVanish, n: r})
		}
		if there && s.ageOuts > 0 && l.written[r].kind != auditAged && l.last < w.revs {
			out = append(out, auditAct{verb: auditAgeOut, n: r})
		}
	}
	for r := uint8(0); s.rewinds > 0 && r < l.last && w.mayRewind(&s); r++ {
		out = append(out, auditAct{verb: auditRewind, n: r})
	}
	add := func(ok bool, verb auditVerb) {
		if ok {
			out = append(out, auditAct{verb: verb})
		}
	}
	add(s.ticks > 0, auditTick)
	add(s.recreates > 0, auditRecreate)
	if !s.p.up() {
		add(s.p.stop != stoppedFinal, auditStart)
		return out
	}
	receiving, open := s.p.has(askedReceive), s.p.watching && !s.watch.dead
	add(s.crashes > 0, auditCrash)
	add(receiving && open && s.cuts > 0, auditCut)
	add(s.p.has(askedOpen), auditOpen)
	add(receiving && open && l.after(s.watch.pos) != 0, auditDeliver)
	add(receiving && open && l.after(s.watch.pos) == 0 && l.last > s.watch.pos, auditProgress)
	add(receiving && !open, auditEnd)
	add(s.p.has(askedTimer(machine.TimerAudit)), auditDue)
	add(s.mend.step != auditIdle && w.canGo(&s), auditGo)
	add(s.shorts > 0 && s.writes == 0 && s.purges == 0 && w.info(l) == s.mend.before && (s.mend.step == auditListA || s.mend.step == auditListB), auditGoShort)
	return out
}

// mayRewind: not while the fold, past a gap, waits for what closed it. That may be taken back with the log's end, and a
// message that it superseded come back, which the fold was never given and that is below its cursor. Nor between
// a repair's listing and the re-list after it. Nothing tells of either.
func (w *auditWorld) mayRewind(s *auditState) bool {
	cursor := s.disk.cursor.Revision()
	if s.p.up() && (s.mend.repair || s.p.has(askedOpen) && s.p.opening.Relist) {
		return false
	}
	if !s.same || cursor > uint64(s.log.last) {
		return true
	}
	was := s.log
	was.rewind(uint8(cursor))
	return s.disk.rows == w.truth(&was)
}

func (w *auditWorld) next(s auditState, a auditAct) (auditState, bool) {
	s.saw = 0
	l := &s.log
	switch a.verb {
	case auditWrite:
		s.writes--
		l.write(a.n, a.kind)
	case auditVanish:
		if l.written[a.n].kind != auditAged {
			s.purges--
		}
		l.there &^= 1 << a.n
	case auditAgeOut:
		s.ageOuts--
		l.write(l.written[a.n].key, auditAged)
	case auditTick:
		s.ticks--
		for r := uint8(1); r <= l.last; r++ {
			l.ages[r]++
		}
		s.away++
	case auditRewind:
		s.rewinds, s.same, s.watch.dead = s.rewinds-1, false, true
		l.rewind(a.n)
	case auditRecreate:
		s.recreates, s.same, s.watch.dead = s.recreates-1, false, true
		s.log = auditLog{created: l.created + 1, era: l.era + 1}
	case auditCut:
		s.cuts--
		s.watch.dead = true
	case auditCrash:
		s.crashes--
		s.p.crash()
		s.gone()
	case auditStart:
		w.start(&s)
	default:
		w.inside(&s, a.verb)
	}
	return s, true
}

func (w *auditWorld) start(s *auditState) {
	owed := s.disk.owed
	if w.forge.owedLost {
		owed = kv.Owed{}
	}
	if s.known = s.disk.known; w.forge.knownLost {
		s.known = auditKnown{}
	}
	w.carry(s, s.p.start(w.machine(), s.disk.cursor, owed))
}

// gone forgets what a process had in memory.
func (s *auditState) gone() {
	s.known, s.takes, s.watch, s.mend, s.listed, s.relist = auditKnown{}, auditKnown{}, auditWatch{}, auditing{}, 0, false
}

func (s auditState) appendState(out []byte) []byte {
	l := &s.log
	for r := uint8(1); r <= l.last; r++ {
		out = append(out, byte(l.written[r].kind)|l.written[r].key<<3|l.written[r].era<<4, l.ages[r])
	}
	out = append(out, byte(l.there), l.last, l.created, l.era)
	out = appendRows(out, s.disk.rows)
	out = append(out, byte(s.disk.cursor.Revision()), byte(s.disk.owed.Why), byte(s.disk.owed.At), flags(s.disk.cursor.SeenEvicting, s.relist, s.same, s.watch.dead))
	for _, k := range []*auditKnown{&s.disk.known, &s.known, &s.takes} {
		out = append(out, k.created, k.samples[0].rev|k.samples[0].era<<4, k.samples[1].rev|k.samples[1].era<<4)
	}
	out = append(out, s.watch.pos, s.watch.floor, s.listed, s.away, s.rewinds, s.recreates, s.cuts, s.crashes, s.purges, s.ageOuts, s.ticks, s.shorts, s.writes,
		byte(s.saw), byte(s.saw>>8))
	return s.p.appendState(s.mend.appendState(out))
}

func appendRows(out []byte, rows auditRows) []byte {
	for _, r := range rows {
		out = append(out, r.rev|r.era<<4)
	}
	return out
}

func (s auditState) String() string {
	var b strings.Builder
	for r := uint8(1); r <= s.log.last; r++ {
		m := s.log.written[r]
		format := " %c%d@%d.%d"
		if s.log.there>>r&1 == 0 {
			format = " (%c%d@%d.%d)"
		}
		fmt.Fprintf(&b, format, 'a'+m.key, m.kind, r, m.era)
	}
	return fmt.Sprintf("log %d:%s, fold %v at %v owes %v, knows %v, watch at %d dead %v, %v, %v", s.log.created, b.String(), s.disk.rows, s.disk.cursor, s.disk.owed,
		s.known, s.watch.pos, s.watch.dead, &s.p, s.mend)
}

func (w *auditWorld) model(properties []modelcheck.Property[auditState]) modelcheck.Model[auditState, auditAct] {
	first := w.bounds
	first.same = true
	first.log.created, first.log.era = 1, 0
	first.log.write(0, auditPut)
	first.disk = auditDisk{cursor: kv.CursorAt(1), known: auditKnown{created: 1, samples: [2]auditRow{{1, 0}, {1, 0}}}}
	if w.young {
		first.disk.known.samples[0] = auditRow{}
	}
	first.disk.rows[0] = auditRow{1, 0}
	return modelcheck.Model[auditState, auditAct]{
		Name: w.name, Init: []auditState{first}, Actions: w.actions, Next: w.next,
		Encode:     func(s auditState, out []byte) []byte { return s.appendState(out) },
		Properties: properties, Fair: fairAudit,
		ShowState: auditState.String, ShowAction: auditAct.String,
	}
}
