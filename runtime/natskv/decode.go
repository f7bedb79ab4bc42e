package natskv

import (
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// Headers of a bucket's messages, spelled as they stand on the wire.
const (
	headerOperation    = "KV-Operation"
	headerMarkerReason = "Nats-Marker-Reason"
	headerContentType  = "Content-Type"
	headerMsgSize      = "Nats-Msg-Size"
	headerTTL          = "Nats-TTL"
	headerRollup       = "Nats-Rollup"
	headerExpectedSeq  = "Nats-Expected-Last-Subject-Sequence"
	headerExpectedOf   = "Nats-Expected-Last-Subject-Sequence-Subject"
	headerStatus       = "Status"
	headerDescription  = "Description"

	operationDel   = "DEL"
	operationPurge = "PURGE"
	rollupSubject  = "sub"
)

// applyHeaders sets what a message's headers and size say of it: its operation, reason and content type. A message
// without headers is the common case and costs nothing here.
func applyHeaders(u *kv.Update, h nats.Header, size int, emptyPut EmptyPut) {
	u.Op, u.Reason = kv.OpPut, kv.ReasonUser
	if len(h) == 0 {
		if size == 0 {
			u.Op = kindToOp(protocol.EventKindOf(protocol.KVOperationNone, protocol.MarkerNone, true, emptyPut == EmptyPutIsTombstone))
		}
		return
	}
	op := protocol.KVOperationNone
	switch first(h, headerOperation) {
	case operationDel:
		op = protocol.KVOperationDel
	case operationPurge:
		op = protocol.KVOperationPurge
	}
	marker := protocol.MarkerNone
	switch first(h, headerMarkerReason) {
	case "MaxAge":
		marker, u.Reason = protocol.MarkerMaxAge, kv.ReasonMaxAge
	case "Purge":
		marker, u.Reason = protocol.MarkerPurge, kv.ReasonPurge
	case "Remove":
		marker, u.Reason = protocol.MarkerRemove, kv.ReasonRemove
	}
	u.ContentType = first(h, headerContentType)
	u.Op = kindToOp(protocol.EventKindOf(op, marker, size == 0, emptyPut == EmptyPutIsTombstone))
}

// first is a header's first value. The map is read as it is: these names are not canonical in Go's sense.
func first(h nats.Header, name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// statedSize is the size of a value that a headers-only delivery left out, and otherwise the data's own.
func statedSize(h nats.Header, data []byte) int {
	if s := first(h, headerMsgSize); s != "" && len(data) == 0 {
		if n, err := strconv.Atoi(s); err == nil {
			return n
		}
	}
	return len(data)
}
