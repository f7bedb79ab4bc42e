// Package modelcheck visits every state that a model can come to, breadth first, and judges its properties. The first
// counterexample is a shortest one; it prints as a trace and as a line that replays it in a test.
//
// A model calls the functions that ship for its decisions, so what is proved is proved of them.
package modelcheck

// Model is a state machine with its properties. Its functions are called from several goroutines at once, so they
// share nothing that changes, and what they return depends on nothing but their arguments.
type Model[S, A any] struct {
	Name string
	// Init are the states that it begins in.
	Init []S
	// Actions appends to out what can happen in s, always in the same order.
	Actions func(s S, out []A) []A
	// Next is the state after a. It leaves s as it was. With ok false, a cannot happen after all and is no transition.
	Next func(s S, a A) (next S, ok bool)
	// Encode appends bytes that are equal for equal states and differ for different ones. States that are alike up to
	// a symmetry are one state when it encodes their canonical form; properties then judge them alike.
	Encode     func(s S, out []byte) []byte
	Properties []Property[S]
	// Fair reports whether a belongs to the world where nothing fails any more; nil: every action does.
	Fair func(a A) bool
	// ShowState and ShowAction print for people; nil: %+v.
	ShowState  func(S) string
	ShowAction func(A) string
}

// Property is what a model promises, made by one of the functions below.
type Property[S any] struct {
	Name  string
	kind  kind
	holds func(S) bool
	step  any // a func(S, A, S) bool
}

type kind uint8

const (
	always kind = iota
	step
	sometimes
	terminal
	reachable
	fairEventually
)

// Always holds in every state.
func Always[S any](name string, holds func(S) bool) Property[S] {
	return Property[S]{Name: name, kind: always, holds: holds}
}

// Step holds of every transition. Its A is the model's.
func Step[S, A any](name string, holds func(before S, a A, after S) bool) Property[S] {
	return Property[S]{Name: name, kind: step, step: holds}
}

// Sometimes holds in at least one state. A search that meets none fails: what the model is to show never happens in it.
func Sometimes[S any](name string, holds func(S) bool) Property[S] {
	return Property[S]{Name: name, kind: sometimes, holds: holds}
}

// Terminal holds in every state that no transition leaves. One that leads back to the state itself leaves it too, so a
// Next without an effect says ok false. A search that meets no such state fails, since it judges nothing.
func Terminal[S any](name string, holds func(S) bool) Property[S] {
	return Property[S]{Name: name, kind: terminal, holds: holds}
}

// Reachable: from every state, one where goal holds can be reached.
func Reachable[S any](name string, goal func(S) bool) Property[S] {
	return Property[S]{Name: name, kind: reachable, holds: goal}
}

// FairEventually: from every state, once only fair actions happen, goal comes to hold whichever they are. No cycle of
// them avoids it, and no state without them.
func FairEventually[S any](name string, goal func(S) bool) Property[S] {
	return Property[S]{Name: name, kind: fairEventually, holds: goal}
}
