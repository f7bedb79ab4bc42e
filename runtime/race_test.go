//go:build race

package fold_test

// poolSlack: under the race detector sync.Pool drops some of what it is given.
const poolSlack = 2
