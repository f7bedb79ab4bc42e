package protocol

// EventKind is what one message of a bucket's log means for its key.
type EventKind uint8

const (
	// EventPut: a value, which may be empty.
	EventPut EventKind = iota
	// EventDelete: somebody deleted the key.
	EventDelete
	// EventPurge: somebody deleted the key and its history.
	EventPurge
	// EventAgedOut: retention removed the key's value; nobody deleted it.
	EventAgedOut
)

// KVOperation is the message's KV-Operation header.
type KVOperation uint8

const (
	KVOperationNone KVOperation = iota
	KVOperationDel
	KVOperationPurge
)

// MarkerReason is the message's Nats-Marker-Reason header, which the server sets on its own delete markers.
type MarkerReason uint8

const (
	MarkerNone MarkerReason = iota
	MarkerMaxAge
	MarkerPurge
	MarkerRemove
)

// EventKindOf (event_kind) tells a value from a delete from retention's own removal. A server marker outranks the
// KV header. A message with neither is a value even when it has no bytes, since a message of defaults is empty on
// the wire; only in a bucket that the Rust library slipstream writes (emptyIsTombstone) an empty one is a delete.
func EventKindOf(op KVOperation, reason MarkerReason, empty, emptyIsTombstone bool) EventKind {
	switch reason {
	case MarkerMaxAge:
		return EventAgedOut
	case MarkerPurge:
		return EventPurge
	case MarkerRemove:
		return EventDelete
	}
	switch op {
	case KVOperationDel:
		return EventDelete
	case KVOperationPurge:
		return EventPurge
	}
	if empty && emptyIsTombstone {
		return EventDelete
	}
	return EventPut
}
