//go:build !race

package pebblestore

const poolSlack = 1
