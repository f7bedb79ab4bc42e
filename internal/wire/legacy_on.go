//go:build protolegacy

package wire

// With the protobuf runtime's legacy features on, nothing is checked on the
// wire: every type is reported as uncheckable.
const protoLegacy = true
