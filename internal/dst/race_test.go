//go:build race

package dst

// defaultEvery plays a sample under the race detector, which takes ten times as long.
const defaultEvery = 20
