package modelcheck

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// maxID is the highest number that a state has.
	maxID    = math.MaxInt32
	noParent = math.MaxUint32
	// maxActions is how many actions a state may have.
	maxActions = 1 << 16
	// claimed is in every claim: then comes the number of the state that it comes from, and the action's place.
	claimed = uint64(1) << 63
	// chunkSize is how many states a worker takes at a time.
	chunkSize = 128
)

// search is one search. States have numbers in the order in which one goroutine alone would meet them: by their
// shortest way, and among those by the number of the state before, then by the action's place.
type search[S, A any] struct {
	m       Model[S, A]
	workers int
	max     int
	props   []Property[S]
	steps   []func(S, A, S) bool // by property, nil for the other kinds
	seen    table
	roots   []int    // by number, the first states' places in Init
	parents []uint32 // by number
	actions []uint16 // by number

	depth   int
	first   int // the number of the level's first state
	level   []S
	keys    []uint64
	met     []int // by property, the depth where a Sometimes was met first; else -1
	ended   bool  // a state was met that no transition leaves
	pending []found
	graph   *graph // nil when no property needs it
}

func newSearch[S, A any](m Model[S, A], o Options) *search[S, A] {
	s := &search[S, A]{m: m, workers: o.workers(), max: o.maxStates()}
	for _, p := range m.Properties {
		if slices.Contains(o.Ignore, p.Name) {
			continue
		}
		holds, _ := p.step.(func(S, A, S) bool)
		s.props, s.steps, s.met = append(s.props, p), append(s.steps, holds), append(s.met, -1)
		if s.graph == nil && (p.kind == reachable || p.kind == fairEventually) {
			s.graph = newGraph(len(m.Properties))
		}
	}
	if s.seen = table(newHashes()); o.Exact {
		s.seen = newEncodings()
	}
	return s
}

// begin makes the first level.
func (s *search[S, A]) begin() {
	var enc []byte
	for i, state := range s.m.Init {
		enc = s.m.Encode(state, enc[:0])
		key, o := s.seen.offer(enc, claimed)
		if o != fresh {
			continue
		}
		s.seen.settle(key, uint64(len(s.level)))
		s.level, s.keys, s.roots = append(s.level, state), append(s.keys, key), append(s.roots, i)
		s.parents, s.actions = append(s.parents, noParent), append(s.actions, 0)
	}
}

// chunks calls do for the parts of 0 to n, each by one of the workers.
func (s *search[S, A]) chunks(n int, do func(chunk, from, to int)) {
	s.each(chunksOf(n), func(i int) { do(i, i*chunkSize, min((i+1)*chunkSize, n)) })
}

// each calls do for 0 to n, each by one of the workers.
func (s *search[S, A]) each(n int, do func(i int)) {
	if s.workers == 1 || n == 1 {
		for i := range n {
			do(i)
		}
		return
	}
	var next atomic.Int64
	var wait sync.WaitGroup
	for range min(s.workers, n) {
		wait.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wait.Wait()
}

func chunksOf(n int) int { return (n + chunkSize - 1) / chunkSize }

// judge looks at the level's states.
func (s *search[S, A]) judge() []found {
	all := make([][]found, chunksOf(len(s.level)))
	met := make([]atomic.Bool, len(s.props))
	for p := range s.props {
		if kind := s.props[p].kind; kind == reachable || kind == fairEventually {
			s.graph.goals[p] = append(s.graph.goals[p], make([]bool, len(s.level))...)
		}
	}
	s.chunks(len(s.level), func(chunk, from, to int) {
		for i := from; i < to; i++ {
			for p := range s.props {
				switch kind := s.props[p].kind; {
				case kind == always && !s.props[p].holds(s.level[i]):
					all[chunk] = add(all[chunk], found{p, s.first + i, -1})
				case kind == sometimes && s.met[p] < 0 && !met[p].Load() && s.props[p].holds(s.level[i]):
					met[p].Store(true)
				case kind == reachable || kind == fairEventually:
					s.graph.goals[p][s.first+i] = s.props[p].holds(s.level[i])
				}
			}
		}
	})
	for p := range met {
		if met[p].Load() {
			s.met[p] = s.depth
		}
	}
	return merge(all)
}

// judgeEnds looks at those that no transition leaves.
func (s *search[S, A]) judgeEnds() []found {
	all := make([][]found, chunksOf(len(s.level)))
	s.chunks(len(s.level), func(chunk, from, to int) {
		for i := from; i < to; i++ {
			for p := range s.props {
				if s.props[p].kind == terminal && !s.props[p].holds(s.level[i]) && !s.m.leaves(s.level[i], func(A) bool { return true }) {
					all[chunk] = add(all[chunk], found{p, s.first + i, -1})
				}
			}
		}
	})
	return merge(all)
}

func merge(all [][]found) (merged []found) {
	for _, chunk := range all {
		for _, f := range chunk {
			merged = add(merged, f)
		}
	}
	return merged
}

// candidate is a state that may be new in the next level: it is if the table still has its claim at the end.
type candidate[S any] struct {
	key, claim uint64
	state      S
}

// part is what came of one chunk.
type part[S any] struct {
	candidates  []candidate[S]
	transitions int
	steps, ends []found
	ended       bool
	edges       []edge
	degrees     []uint32
	invalid     error
}

type expanded struct {
	transitions int
	steps, ends []found
	ended       bool
	truncated   bool
	invalid     error
}

// expand takes every action of the level's states, and goes on to the next level.
func (s *search[S, A]) expand() (e expanded) {
	parts := make([]part[S], chunksOf(len(s.level)))
	var met atomic.Int64
	met.Store(int64(s.first + len(s.level)))
	s.chunks(len(s.level), func(chunk, from, to int) {
		if met.Load() <= int64(s.max) {
			met.Add(int64(s.expandChunk(&parts[chunk], from, to)))
		}
	})
	if met.Load() > int64(s.max) {
		return expanded{truncated: true}
	}
	steps, ends := make([][]found, len(parts)), make([][]found, len(parts))
	for i := range parts {
		e.transitions += parts[i].transitions
		e.ended = e.ended || parts[i].ended
		steps[i], ends[i] = parts[i].steps, parts[i].ends
		if e.invalid == nil {
			e.invalid = parts[i].invalid
		}
	}
	e.steps, e.ends = merge(steps), merge(ends)
	s.settle(parts)
	return e
}

// expandChunk returns how many states it met first.
func (s *search[S, A]) expandChunk(p *part[S], from, to int) (newStates int) {
	var enc []byte
	var actions []A
	for i := from; i < to; i++ {
		state, id := s.level[i], s.first+i
		before := p.transitions
		actions = s.m.Actions(state, actions[:0])
		if len(actions) > maxActions {
			p.invalid = fmt.Errorf("a state has %d actions, at most %d are possible: %s", len(actions), maxActions, s.m.showState(state))
			return newStates
		}
		for n, a := range actions {
			next, ok := s.m.Next(state, a)
			if !ok {
				continue
			}
			p.transitions++
			for prop, holds := range s.steps {
				if holds != nil && !holds(state, a, next) {
					p.steps = add(p.steps, found{prop, id, n})
				}
			}
			enc = s.m.Encode(next, enc[:0])
			claim := claimed | uint64(id)<<16 | uint64(n)
			key, o := s.seen.offer(enc, claim)
			if o != lost {
				p.candidates = append(p.candidates, candidate[S]{key, claim, next})
			}
			if o == fresh {
				newStates++
			}
			if s.graph != nil {
				p.edges = append(p.edges, edge{key: key, fair: s.m.fair(a)})
			}
		}
		enc = s.m.Encode(state, enc[:0])
		if key, ok := s.seen.find(enc); !ok || key != s.keys[i] {
			p.invalid = fmt.Errorf("a state was changed by Actions, Next, Encode or a property, and is now %s", s.m.showState(state))
			return newStates
		}
		if p.transitions == before {
			p.ended, p.ends = true, s.ends(p.ends, state, id)
		}
		if s.graph != nil {
			p.degrees = append(p.degrees, uint32(p.transitions-before))
		}
	}
	return newStates
}

func (s *search[S, A]) ends(all []found, state S, id int) []found {
	for p := range s.props {
		if s.props[p].kind == terminal && !s.props[p].holds(state) {
			all = add(all, found{p, id, -1})
		}
	}
	return all
}

// settle gives the new states their numbers and makes them the level.
func (s *search[S, A]) settle(parts []part[S]) {
	offsets := make([]int, len(parts)+1)
	s.each(len(parts), func(i int) {
		p := &parts[i]
		p.candidates = slices.DeleteFunc(p.candidates, func(c candidate[S]) bool { return s.seen.at(c.key) != c.claim })
		offsets[i+1] = len(p.candidates)
	})
	for i := range parts {
		offsets[i+1] += offsets[i]
	}
	count, from := offsets[len(parts)], s.first+len(s.level)
	level, keys := make([]S, count), make([]uint64, count)
	s.parents = append(s.parents, make([]uint32, count)...)
	s.actions = append(s.actions, make([]uint16, count)...)
	s.each(len(parts), func(i int) {
		for n, c := range parts[i].candidates {
			at := offsets[i] + n
			level[at], keys[at] = c.state, c.key
			s.parents[from+at], s.actions[from+at] = uint32(c.claim&^claimed>>16), uint16(c.claim)
			s.seen.settle(c.key, uint64(from+at))
		}
	})
	if s.graph != nil {
		for i := range parts {
			s.graph.add(parts[i].edges, parts[i].degrees, s.seen)
		}
	}
	s.level, s.keys, s.first = level, keys, from
	s.depth++
}
