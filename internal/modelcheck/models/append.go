package models

import (
	"github.com/typedfold/fold/internal/modelcheck"
	"github.com/typedfold/fold/runtime/protocol"
)

// The leader of a stream: nodes that take one log over from each other, chain frames into it with several in flight, and
// answer writers, in the order of internal/nova/sequencer. The log does what JetStream was seen to do: it stores a message
// only if its last sequence, and the newest message of one subject, are those that the message names. The network delays
// and reorders messages without end, and whatever never arrives is lost. Reads are answered by a log of any age, since a
// partitioned leader of the log answers them.
//
// One control entry stands for all control subjects, and one record for a batch. Begins with node 0 that leads.
//
// Left out: frames of several batches, timestamps, and the bytes that a leader holds.

const (
	apNodes    = 2
	apLog      = 20
	apLinks    = 3
	apNet      = 4
	apRequests = 4
	apFences   = 2
	apProbe    = apRequests // a batch that only calm sends
)

// apStanding is what a frame says of the stream.
type apStanding struct{ next, token, fence uint8 }

type apKind uint8

const (
	apNothing apKind = iota
	apControl        // a takeover
	apRenewal        // it proves a lead, and nothing checks it
	apOpening
	apRecord
	apFencing
)

func (k apKind) isFrame() bool { return k >= apOpening }

// apEntry is one message of the log; entries[i] has sequence i+1.
type apEntry struct {
	kind  apKind
	node  uint8
	epoch uint8
	// at is the state before a frame's record; of a fence frame it carries what it installs.
	at apStanding
	// of is the request, or the fence, that it is of.
	of uint8
}

func (e apEntry) after() apStanding {
	s := e.at
	if e.kind == apRecord {
		s.next++
	}
	return s
}

type apReply uint8

const (
	apUnsent apReply = iota
	apWaits
	apUnknown
	apStored
	apRefused
)

// apLink is one message of a leader's chain, until it is settled.
type apLink struct {
	kind  apKind
	reply apReply
	place uint8
	epoch uint8
	at    apStanding
	of    uint8
	// proves are the requests that wait for it as a proof, by number, and apAsks for who asks what stands. early are those
	// of them that came after it was sent.
	proves, early uint8
	again         bool // it was sent before
}

// apAsks is the bit of who asks what stands.
const apAsks = 1 << 7

func (l apLink) after() apStanding { return apEntry{kind: l.kind, at: l.at}.after() }

type apPhase uint8

const (
	apIdle    apPhase = iota
	apTook            // the takeover is in the log
	apOpens           // the opening frame is under way
	apSettles         // it leads anew, with links to settle
	apLeads           // or is in trouble
)

type apNode struct {
	phase apPhase
	// troubled: it sends nothing until it has led anew. In the phases before apLeads: it leads anew.
	troubled bool
	epoch    uint8
	control  uint8 // the sequence that the control entry has
	last     uint8 // the log's last sequence, with all that was sent
	opened   uint8
	got      apStanding // what the newest frame says
	cursor   apStanding
	commit   apStanding
	n        uint8
	links    [apLinks]apLink
}

// apMessage is one on its way to the log, or its answer on the way back.
type apMessage struct {
	kind  apKind
	node  uint8
	reply apReply // apWaits: on its way
	last  uint8
	check uint8 // the sequence of the control entry, or of the newest frame for an opening one
	epoch uint8
	at    apStanding
	of    uint8
	seq   uint8 // where it was stored
}

type apAnswer uint8

const (
	apNone     apAnswer = iota
	apAdmitted          // and not answered
	apAwaits            // the proof that it is fenced out, or what stands
	apAcked
	apNothingWritten
	apIndefinite
	apFencedOut
	apMissed
	apEqual // a fence that changed nothing
)

// apRequest is what came of a batch, a fence or a question.
type apRequest struct {
	answer apAnswer
	number uint8 // where it was acknowledged; of a fence, its tail; of a question, the token
	// seen are the tokens in force since it came, by bit.
	seen uint8
	// other: since it came, the log's token was another one, or the session's fence was not the log's.
	other bool
}

type apSession struct {
	open, over bool // over: its leader has ended
	node       uint8
	fence      uint8
}

// apSaw are things that the last action has shown.
type apSaw uint16

const (
	apSawStaleOpening apSaw = 1 << iota
	apSawEpochOnly          // refused by the epoch, though the chain matches
	apSawResent             // a link that was sent again is acknowledged
	apSawFoundStored        // settled by a read
	apSawBeyond             // settled by the place alone
	apSawOutdated           // a read that settled nothing
	apSawLedBetween
	apSawRemoved // settled as unknown
	apSawABA     // a session's token is installed again, and it is refused
	apSawProofLost
	apSawStray
)

type apState struct {
	done    bool
	damaged bool
	n       uint8 // entries
	purged  uint8 // frames before this sequence are removed
	takes   uint8 // takeovers that are left
	strays  uint8
	purges  uint8
	saw     apSaw
	log     [apLog]apEntry
	nodes   [apNodes]apNode
	net     [apNet]apMessage
	batches [apRequests + 1]apRequest
	fences  [apFences]apRequest
	asked   apRequest
	session apSession
}

// apBatch is what a writer asks for.
type apBatch struct {
	token   uint8
	session bool
	matches bool
	match   uint8
}

// apWorld is what the search goes through.
type apWorld struct {
	name    string
	deep    bool
	window  uint8
	takes   uint8
	strays  uint8
	purges  uint8
	batches []apBatch
	fences  []uint8 // the tokens they install
	// asks: a writer opens a session with a token, by asking what stands.
	asks      bool
	asksToken uint8
	witnesses []apSaw
	forge     apForge
}

// apForge is what a mutation does to it.
type apForge struct {
	admit    func(*protocol.Append, *protocol.AppendSeen)
	installs func(token, installed *string)
	proof    func(p *protocol.Proof, requested *uint64)
	settle   func(*protocol.PendingFrame, *protocol.PlaceSeen)

	noChain, noEpoch, noNewest, noOpeningLast bool
	fenceAtOnce, refusalAtOnce, standsAtOnce  bool
	proofsByOlder, renumbers, resendsAlways   bool
	settlesUnled, unknownIsNothing, leadsOn   bool
	// renewsControl: a renewal is written over the control entry.
	renewsControl bool
}

type apVerb uint8

const (
	apCalm apVerb = iota
	apTake
	apStray
	apRead
	apDeliver
	apReceive
	apTimeout
	apRetake
	apSettle
	apEnd
	apAppend
	apFence
	apAsk
	apPurge
)

type apAction struct {
	verb apVerb
	n    uint8
	arg  uint8
}

func (w *apWorld) actions(s apState, out []apAction) []apAction {
	if s.done {
		return out
	}
	out = append(out, apAction{verb: apCalm}, apAction{verb: apPurge})
	for i := range s.net {
		out = append(out, apAction{apDeliver, 0, uint8(i)}, apAction{apReceive, 0, uint8(i)})
	}
	for n := range uint8(apNodes) {
		out = append(out, apAction{apTake, n, 0}, apAction{apStray, n, 0}, apAction{apTimeout, n, 0}, apAction{apRetake, n, 0}, apAction{apEnd, n, 0}, apAction{apAsk, n, 0})
		phase := s.nodes[n].phase
		for seq := uint8(1); seq <= s.n; seq++ {
			if phase == apTook {
				out = append(out, apAction{apRead, n, seq})
			}
			if phase == apSettles || phase == apLeads && w.forge.settlesUnled {
				out = append(out, apAction{apSettle, n, seq})
			}
		}
		for i := range w.batches {
			out = append(out, apAction{apAppend, n, uint8(i)})
		}
		for i := range w.fences {
			out = append(out, apAction{apFence, n, uint8(i)})
		}
	}
	return out
}

func (w *apWorld) next(s apState, a apAction) (apState, bool) {
	ok := false
	s.saw = 0
	switch a.verb {
	case apCalm:
		return apState{done: true}, w.recovers(s)
	case apTake:
		ok = s.nodes[a.n].phase == apIdle && s.takes > 0 && s.take(a.n)
	case apStray:
		if ok = s.strays > 0; ok {
			s.strays--
			s.saw |= apSawStray
			s.store(w, apEntry{kind: apControl, node: a.n})
		}
	case apRead:
		ok = s.read(a.n, a.arg)
	case apDeliver:
		ok = w.deliver(&s, a.arg)
	case apReceive:
		ok = w.receive(&s, a.arg)
	case apTimeout:
		ok = s.timeout(a.n)
	case apRetake:
		m := &s.nodes[a.n]
		ok = m.phase == apLeads && m.troubled && m.answered() && s.takes > 0 && !w.forge.settlesUnled && s.take(a.n)
	case apSettle:
		ok = w.settle(&s, a.n, a.arg)
	case apEnd:
		ok = w.end(&s, a.n)
	case apAppend:
		ok = w.append(&s, a.n, a.arg)
	case apFence:
		ok = w.fence(&s, a.n, a.arg)
	case apAsk:
		ok = w.ask(&s, a.n)
	case apPurge:
		if newest := s.newest(s.n); s.purges > 0 && s.purged < newest {
			s.purges--
			s.purged, ok = newest, true
		}
	}
	if !ok {
		return s, false
	}
	for n := range s.nodes {
		w.flush(&s, uint8(n))
	}
	s.tidy()
	return s, true
}

func (w *apWorld) initial() apState {
	s := apState{takes: w.takes, strays: w.strays, purges: w.purges, n: 3}
	s.log[0] = apEntry{kind: apOpening}
	s.log[1] = apEntry{kind: apControl}
	s.log[2] = apEntry{kind: apOpening, epoch: 2}
	s.nodes[0] = apNode{phase: apLeads, epoch: 2, control: 2, last: 3, opened: 3}
	return s
}

func (w *apWorld) model() modelcheck.Model[apState, apAction] {
	return modelcheck.Model[apState, apAction]{
		Name: w.name, Init: []apState{w.initial()}, Actions: w.actions, Next: w.next, Encode: apEncode, Properties: w.properties(),
		ShowState: apShow, ShowAction: apShowAction,
	}
}

var (
	apFrames = apWorld{
		name: "append/frames", window: 2, takes: 2, batches: []apBatch{{}, {matches: true, match: 1}},
		witnesses: []apSaw{apSawStaleOpening, apSawEpochOnly, apSawResent, apSawFoundStored, apSawBeyond, apSawOutdated, apSawLedBetween},
	}
	apFencings = apWorld{
		name: "append/fences", window: 2, takes: 1, batches: []apBatch{{}, {token: 1}}, fences: []uint8{1},
		witnesses: []apSaw{apSawEpochOnly, apSawResent, apSawFoundStored, apSawOutdated, apSawProofLost},
	}
	apSessions = apWorld{
		name: "append/sessions", window: 2, takes: 1, batches: []apBatch{{session: true}, {session: true}}, fences: []uint8{1, 0}, asks: true,
		witnesses: []apSaw{apSawABA, apSawFoundStored, apSawOutdated},
	}
	apOrder = apWorld{
		name: "append/order", window: 1, takes: 2, batches: []apBatch{{session: true}, {session: true}, {}}, asks: true,
		witnesses: []apSaw{apSawLedBetween, apSawResent, apSawFoundStored},
	}
	apStrays = apWorld{
		name: "append/strays", window: 2, takes: 1, strays: 1, batches: []apBatch{{}, {matches: true}},
		witnesses: []apSaw{apSawStray, apSawResent, apSawEpochOnly},
	}
	apPurged = apWorld{
		name: "append/purges", window: 1, takes: 2, purges: 1, batches: []apBatch{{}}, fences: []uint8{1},
		witnesses: []apSaw{apSawRemoved, apSawFoundStored, apSawLedBetween},
	}
)

// apBetween and apRivals are where another node leads and writes before the first one leads anew.
var (
	apBetween = apWorld{
		name: "append/between", window: 2, takes: 2, batches: []apBatch{{}, {matches: true}},
		witnesses: []apSaw{apSawStaleOpening, apSawLedBetween, apSawResent},
	}
	apRivals = apWorld{
		name: "append/rivals", window: 2, takes: 2, batches: []apBatch{{}, {token: 1}}, fences: []uint8{1},
		witnesses: []apSaw{apSawStaleOpening, apSawLedBetween, apSawResent, apSawProofLost},
	}
)

func appendModels() (all []modelcheck.Case) {
	wide, rivals := apFrames, apRivals
	wide.name, wide.deep, wide.batches = "append/frames, three", true, []apBatch{{}, {}, {matches: true, match: 1}}
	rivals.deep = true
	three := apWorld{
		name: "append/three in flight", deep: true, window: 3, takes: 1, batches: []apBatch{{}, {matches: true, match: 1}, {token: 1}}, fences: []uint8{1},
		witnesses: []apSaw{apSawEpochOnly, apSawResent, apSawFoundStored, apSawProofLost},
	}
	for _, w := range []apWorld{apFrames, apFencings, apSessions, apOrder, apStrays, apPurged, apBetween, wide, rivals, three} {
		all = append(all, modelcheck.CaseOf(w.model(), modelcheck.Options{MaxStates: 20_000_000}))
		all[len(all)-1].Deep = w.deep
	}
	return all
}
