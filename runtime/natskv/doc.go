// Package natskv is the JetStream adapter of package kv: a bucket's reads, writes, listings and watches over a
// nats.go connection.
//
// It reads a bucket with consumers of its own, never with nats.go's KV watcher: that one skips messages that it can't
// parse, re-creates its consumer without a window check and says nothing when its bucket is gone. Reads and checks go
// to the stream's leader. What is decided is decided by package protocol; this package only asks and obeys.
package natskv
