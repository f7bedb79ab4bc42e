package modelcheck

// graph is what the search met, kept for properties of whole runs. States are numbers.
type graph struct {
	// first is by state the place of its first edge in edges; one more at the end.
	first []int
	// edges are the states that they lead to, with the fair bit.
	edges []uint32
	// goals is by property, of those that need it, and state.
	goals [][]bool
}

// edge is one transition, while its level is searched.
type edge struct {
	key  uint64
	fair bool
}

const fairBit = 1 << 31

func newGraph(props int) *graph { return &graph{first: []int{0}, goals: make([][]bool, props)} }

// add takes the transitions of some states, whose numbers follow those that it has.
func (g *graph) add(edges []edge, degrees []uint32, seen table) {
	for _, e := range edges {
		to := uint32(seen.at(e.key))
		if e.fair {
			to |= fairBit
		}
		g.edges = append(g.edges, to)
	}
	for _, d := range degrees {
		g.first = append(g.first, g.first[len(g.first)-1]+int(d))
	}
}

func (g *graph) states() int { return len(g.first) - 1 }

func (g *graph) from(state int) []uint32 { return g.edges[g.first[state]:g.first[state+1]] }

// stuck is the first state from which no goal can be reached; -1 if there is none.
func (g *graph) stuck(goal []bool) int {
	first := make([]int, g.states()+1) // as in graph, of the edges turned round
	for _, to := range g.edges {
		first[to&^fairBit+1]++
	}
	for i := range g.states() {
		first[i+1] += first[i]
	}
	back, next := make([]uint32, len(g.edges)), make([]int, g.states())
	copy(next, first)
	for state := range g.states() {
		for _, to := range g.from(state) {
			to &^= fairBit
			back[next[to]] = uint32(state)
			next[to]++
		}
	}
	reaches := make([]bool, g.states())
	var queue []uint32
	for state, is := range goal {
		if is {
			reaches[state] = true
			queue = append(queue, uint32(state))
		}
	}
	for len(queue) > 0 {
		state := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, before := range back[first[state]:first[state+1]] {
			if !reaches[before] {
				reaches[before] = true
				queue = append(queue, before)
			}
		}
	}
	for state, ok := range reaches {
		if !ok {
			return state
		}
	}
	return -1
}

// avoids is the first state where fair actions need not lead to the goal, -1 if there is none: no fair one leaves it, or
// it lies on a cycle of them.
func (g *graph) avoids(goal []bool) int {
	worst := g.cycle(goal)
	for state := range g.states() {
		if state == worst {
			break
		}
		if !goal[state] && !g.fairLeaves(state) {
			return state
		}
	}
	return worst
}

func (g *graph) fairLeaves(state int) bool {
	for _, to := range g.from(state) {
		if to&fairBit != 0 {
			return true
		}
	}
	return false
}

// next is the first fair edge of a state, from the place at, that leads to no goal; ok is false without one.
func (g *graph) next(state, at int, goal []bool) (to, place int, ok bool) {
	for ; at < g.first[state+1]; at++ {
		if e := g.edges[at]; e&fairBit != 0 && !goal[e&^fairBit] {
			return int(e &^ fairBit), at, true
		}
	}
	return 0, at, false
}

// cycle is the first state that lies on a cycle of fair edges that avoids the goal; -1 if none does. It is Tarjan's
// algorithm for strongly connected components, with a stack of its own.
func (g *graph) cycle(goal []bool) int {
	type frame struct{ state, at int }
	var (
		worst = -1
		count = uint32(0)
		order = make([]uint32, g.states()) // of the first visit, from 1
		low   = make([]uint32, g.states())
		open  = make([]bool, g.states()) // on the stack
		stack []int
		calls []frame
		visit = func(state int) {
			count++
			order[state], low[state], open[state] = count, count, true
			stack = append(stack, state)
			calls = append(calls, frame{state, g.first[state]})
		}
		note = func(state int) {
			if worst < 0 || state < worst {
				worst = state
			}
		}
	)
	for root := range g.states() {
		if order[root] != 0 {
			continue
		}
		for visit(root); len(calls) > 0; {
			f := &calls[len(calls)-1]
			if to, place, ok := g.next(f.state, f.at, goal); ok {
				f.at = place + 1
				switch {
				case to == f.state:
					note(to)
				case order[to] == 0:
					visit(to)
				case open[to]:
					low[f.state] = min(low[f.state], order[to])
				}
				continue
			}
			state := f.state
			calls = calls[:len(calls)-1]
			if len(calls) > 0 {
				up := calls[len(calls)-1].state
				low[up] = min(low[up], low[state])
			}
			if low[state] != order[state] {
				continue
			}
			for alone := stack[len(stack)-1] == state; ; {
				last := stack[len(stack)-1]
				stack, open[last] = stack[:len(stack)-1], false
				if !alone {
					note(last)
				}
				if last == state {
					break
				}
			}
		}
	}
	return worst
}

// round is a shortest way of fair edges from a state back to it that avoids the goal, without the state at its
// beginning; nil if there is none.
func (g *graph) round(state int, goal []bool) []int {
	before := map[int]int{}
	for queue := []int{state}; len(queue) > 0; queue = queue[1:] {
		for to, at, ok := g.next(queue[0], g.first[queue[0]], goal); ok; to, at, ok = g.next(queue[0], at+1, goal) {
			if _, met := before[to]; met {
				continue
			}
			before[to] = queue[0]
			if to != state {
				queue = append(queue, to)
				continue
			}
			way := []int{to}
			for s := before[to]; s != state; s = before[s] {
				way = append([]int{s}, way...)
			}
			return way
		}
	}
	return nil
}
