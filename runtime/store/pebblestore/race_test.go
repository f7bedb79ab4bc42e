//go:build race

package pebblestore

// poolSlack: under the race detector sync.Pool drops a part of what it is given, so what it saves is allocated again.
const poolSlack = 5
