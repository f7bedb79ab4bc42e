// Package lease elects who exports: one node of a fleet takes the lease for a round, and the others leave the work to it.
//
// A lease saves work, it is never a lock. Its expiry is compared with the wall clock of whoever reads it, so two nodes can
// hold it at once, and then there is one artifact too many. What is correct rests on the artifact's pointer, which never
// goes back (protocol.PointerPublishAllowed).
//
// The record is the one of the Rust library slipstream, byte for byte, so nodes of both take turns.
package lease
