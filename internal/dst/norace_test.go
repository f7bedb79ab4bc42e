//go:build !race

package dst

const defaultEvery = 1
