package client_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// explain says where the search for an order got stuck: the end of the longest one that was found, the state that it ends
// in, and the calls that have no place in it, earliest return first. Whoever meets an illegal history has only this.
func explain(history []porcupine.Operation) string {
	const ends, without = 25, 25
	result, info := porcupine.CheckOperationsVerbose(specification, history, time.Minute)
	if result == porcupine.Unknown {
		return "and no search was long enough to say why"
	}
	var longest []int
	for _, order := range info.PartialLinearizations()[0] {
		if len(order) > len(longest) {
			longest = order
		}
	}
	state, placed := specification.Init(), map[int]bool{}
	var b strings.Builder
	fmt.Fprintf(&b, "an order for %d of %d calls, which ends with:\n", len(longest), len(history))
	for i, id := range longest {
		op := history[id]
		_, state = specification.Step(state, op.Input, op.Output)
		placed[id] = true
		if i >= len(longest)-ends {
			fmt.Fprintf(&b, "  %s\n    then %s\n", describe(op), specification.DescribeState(state))
		}
	}
	var left []porcupine.Operation
	for id, op := range history {
		if !placed[id] {
			left = append(left, op)
		}
	}
	slices.SortFunc(left, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	fmt.Fprintf(&b, "and %d without a place, of which the first to return:\n", len(left))
	for _, op := range left[:min(without, len(left))] {
		fmt.Fprintf(&b, "  %s\n", describe(op))
	}
	return b.String()
}

func describe(op porcupine.Operation) string {
	return fmt.Sprintf("[%d µs, %d µs] client %d: %s", op.Call/1000, op.Return/1000, op.ClientId, specification.DescribeOperation(op.Input, op.Output))
}
