package models

import (
	"github.com/typedfold/fold/internal/modelcheck"
	"github.com/typedfold/fold/runtime/protocol"
)

// The beginning of a stream's log, in the order of internal/nova/jslog and sequencer: a creation that may be cut off between
// any two steps, nodes that begin and lead the log, and servers that lose all its messages and keep its settings. Who leads,
// of several nodes, is the model of the leader's matter.

const (
	lgNodes   = 2
	lgRecords = 2
)

type lgPhase uint8

const (
	lgIdle lgPhase = iota
	lgBegins
	lgWrites
	lgMarks
	lgLeads
	lgDamaged
)

type lgState struct {
	framed, marked bool
	next           uint8 // the number that the log's newest frame names
	given          uint8 // numbers that were acknowledged
	loses          uint8
	lost, twice    bool
	nodes          [lgNodes]lgPhase // the first one creates the stream
}

type lgVerb uint8

const (
	lgLook lgVerb = iota
	lgLookStale
	lgStep
	lgAppend
	lgCut
	lgLose
)

type lgAction struct {
	verb lgVerb
	n    uint8
}

type lgForge struct {
	start               func(*protocol.LogStartSeen)
	noProbe, marksFirst bool
}

// Properties of the log's beginning.
const (
	lgOnce     = "no number of a log is given twice"
	lgLeadable = "a log that has lost nothing can be led"
	lgTold     = "a log that has lost its frames is found damaged"
)

func lgModel(forge lgForge) modelcheck.Model[lgState, lgAction] {
	first := lgState{loses: 1}
	first.nodes[0] = lgWrites
	if forge.marksFirst {
		first.nodes[0] = lgMarks
	}
	return modelcheck.Model[lgState, lgAction]{
		Name: "logstart", Init: []lgState{first}, Next: forge.next,
		Actions: func(_ lgState, out []lgAction) []lgAction {
			out = append(out, lgAction{lgLose, 0})
			for n := range uint8(lgNodes) {
				for v := lgLook; v < lgLose; v++ {
					out = append(out, lgAction{v, n})
				}
			}
			return out
		},
		Encode: func(s lgState, out []byte) []byte {
			bits := byte(0)
			for i, b := range []bool{s.framed, s.marked, s.lost, s.twice} {
				if b {
					bits |= 1 << i
				}
			}
			return append(out, bits, s.next, s.given, s.loses, byte(s.nodes[0]), byte(s.nodes[1]))
		},
		Properties: []modelcheck.Property[lgState]{
			modelcheck.Always(lgOnce, func(s lgState) bool { return !s.twice }),
			modelcheck.Reachable(lgLeadable, func(s lgState) bool { return s.lost || s.nodes[0] == lgLeads || s.nodes[1] == lgLeads }),
			modelcheck.Sometimes(lgTold, func(s lgState) bool { return s.nodes[0] == lgDamaged }),
		},
	}
}

func (w lgForge) next(s lgState, a lgAction) (lgState, bool) {
	m := &s.nodes[a.n]
	switch a.verb {
	case lgLose: // whoever leads is refused by the log that is there now
		ok := s.loses > 0 && s.framed
		s.loses--
		s.lost = s.lost || s.marked
		s.framed, s.next, s.nodes = false, 0, [lgNodes]lgPhase{}
		return s, ok
	case lgCut:
		ok := *m != lgIdle
		*m = lgIdle
		return s, ok
	case lgAppend:
		ok := *m == lgLeads && s.next < lgRecords
		s.twice = s.twice || s.next < s.given
		s.next++
		s.framed, s.given = true, max(s.given, s.next)
		return s, ok
	case lgStep:
		return w.step(s, a.n)
	}
	if *m != lgIdle {
		return s, false
	}
	seen := protocol.LogStartSeen{Begun: s.marked && a.verb == lgLook, HasFrame: s.framed}
	if w.start != nil {
		w.start(&seen)
	}
	*m = map[protocol.LogStart]lgPhase{protocol.LogBegins: lgBegins, protocol.LogLeads: lgLeads, protocol.LogDamaged: lgDamaged}[protocol.StartLog(seen)]
	return s, true
}

// step is the next one of who begins the log.
func (w lgForge) step(s lgState, n uint8) (lgState, bool) {
	m := &s.nodes[n]
	switch *m {
	case lgBegins:
		if *m = lgWrites; s.marked && !w.noProbe {
			*m = lgIdle
		}
	case lgWrites:
		s.framed = true
		if *m = lgMarks; w.marksFirst {
			*m = lgIdle
		}
	case lgMarks:
		s.marked = true
		if *m = lgIdle; w.marksFirst {
			*m = lgWrites
		}
	default:
		return s, false
	}
	return s, true
}

func logStartModels() []modelcheck.Case {
	return []modelcheck.Case{modelcheck.CaseOf(lgModel(lgForge{}), modelcheck.Options{})}
}

func logStartMutations() (all []modelcheck.Mutation) {
	add := func(name, property string, forge lgForge, ignore ...string) {
		all = append(all, modelcheck.MutationOf("logstart/"+name, lgModel(forge), modelcheck.Options{Ignore: ignore}, property, 20))
	}
	type seen = protocol.LogStartSeen
	add("that it has begun is not read", lgLeadable, lgForge{start: func(s *seen) { s.Begun = false }}, lgTold)
	add("every log is taken for begun", lgLeadable, lgForge{start: func(s *seen) { s.Begun = true }})
	add("every log with a frame is taken for begun", lgOnce, lgForge{start: func(s *seen) { s.Begun = s.Begun || s.HasFrame }})
	add("an empty log is taken for one with a frame", lgOnce, lgForge{start: func(s *seen) { s.HasFrame = true }}, lgTold)
	add("JetStream is not asked whether it has begun", lgOnce, lgForge{noProbe: true})
	add("it is marked before it has a frame", lgLeadable, lgForge{marksFirst: true})
	return all
}
