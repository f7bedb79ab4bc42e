// Package lint holds the rules of this repository as tests: which package may import which, what a user's binary must
// not pull in, what library code must not do, and that the documents show code that compiles.
package lint
