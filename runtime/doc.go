// Package fold holds the state of a NATS JetStream KV bucket locally, durable and typed.
//
// A Fold follows one bucket from a cursor: it receives updates, runs the hooks of their tables, and commits raw
// values and cursor to a store in one atomic step. Its first rule is that a cursor follows the apply:
//
//	A cursor C that is persisted or reported implies that the hooks have returned for every update at or below C,
//	and that the store holds their outcome.
//
// so that a restart resumes right after C, and only the delta arrives.
//
//	JetStream → natskv → kv.Update → receive goroutine (dispatch, parse or wire check)
//	          → worker goroutine (hooks → store.Apply(batch, cursor)) → committed cursor
//	          → Resident tables, Watch feeds, WaitApplied, OnApplied → reads
//
// Schemas are proto messages with the options of fold/v1/options.proto; protoc-gen-fold emits small typed names over
// the generic types of this package. Users write fold.NewBuilder, Register each table, Start, and then read: Get and
// List from the store, Peek from memory for tables registered with Resident.
//
// WatchApplied is the same loop without tables, for any kv.Watcher and the caller's own parse and apply.
package fold
