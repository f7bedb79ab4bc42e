//go:build !protolegacy

package wire

// protoLegacy follows the protobuf runtime's build tag, which turns on message
// sets and changes where UTF-8 is enforced.
const protoLegacy = false
