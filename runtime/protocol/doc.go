// Package protocol holds every decision that a fold's correctness rests on, each as one pure function: no I/O, no
// clock, no context. Production and the models call the same functions, so a model run speaks of the code that
// ships (docs/adr/0001-pure-decisions.md).
//
// Revisions are JetStream stream sequences: they start at 1, and 0 means "none". Times are Unix nanoseconds.
package protocol
