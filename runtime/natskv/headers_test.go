package natskv

import (
	"bytes"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/typedfold/fold/runtime/kv"
)

// opSpec is what a message of a bucket means, row by row; the first that fits counts.
var opSpec = []struct {
	reason, operation string
	op                kv.Op
	why               kv.Reason
}{
	{"MaxAge", "*", kv.OpAgedOut, kv.ReasonMaxAge},
	{"Purge", "*", kv.OpPurge, kv.ReasonPurge},
	{"Remove", "*", kv.OpDelete, kv.ReasonRemove},
	{"*", "DEL", kv.OpDelete, kv.ReasonUser},
	{"*", "PURGE", kv.OpPurge, kv.ReasonUser},
}

func specOp(reason, operation string, empty bool, puts EmptyPut) (kv.Op, kv.Reason) {
	for _, row := range opSpec {
		if (row.reason == "*" || row.reason == reason) && (row.operation == "*" || row.operation == operation) {
			return row.op, row.why
		}
	}
	if empty && puts == EmptyPutIsTombstone {
		return kv.OpDelete, kv.ReasonUser
	}
	return kv.OpPut, kv.ReasonUser
}

// FuzzStoredHeaders reads messages as the leader hands them out: a header block of any bytes and a value.
func FuzzStoredHeaders(f *testing.F) {
	for _, block := range []string{
		"", "NATS/1.0\r\n\r\n", "NATS/1.0\r\nKV-Operation: DEL\r\n\r\n", "NATS/1.0\r\nKV-Operation: PURGE\r\nNats-Rollup: sub\r\n\r\n",
		"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: 1m0s\r\n\r\n", "NATS/1.0\r\nNats-Marker-Reason: Remove\r\n\r\n",
		"NATS/1.0\r\nNats-Marker-Reason: Purge\r\nKV-Operation: DEL\r\n\r\n", "NATS/1.0\r\nkv-operation: DEL\r\n\r\n",
		"NATS/1.0\r\nKV-Operation: DEL\r\nKV-Operation: PUT\r\n\r\n", "NATS/1.0\r\nNats-Msg-Size: 12\r\n\r\n",
		"NATS/1.0\r\nContent-Type: application/x-protobuf\r\n\r\n", "NATS/1.0 503 No Responders\r\n\r\n", "NATS/1.0\r\nKV-Operation:",
		"NATS/1.0\r\n: x\r\n\r\n", "HTTP/1.1\r\nKV-Operation: DEL\r\n\r\n",
	} {
		f.Add([]byte(block), []byte(nil))
		f.Add([]byte(block), []byte("value"))
	}
	at := time.Unix(1700000000, 7)
	f.Fuzz(func(t *testing.T, block, data []byte) {
		for _, puts := range []EmptyPut{EmptyPutIsValue, EmptyPutIsTombstone} {
			b := &Bucket{prefix: "$KV.b.", cfg: BucketConfig{EmptyPut: puts}}
			u, err := b.decodeStored(storedMsg{Subject: "$KV.b.k", Seq: 9, Header: block, Data: data, Time: at})
			if err != nil {
				return // refused, and so nothing was decided
			}
			if u.Key != "k" || u.Version != kv.Revision(9) || u.UnixNano != at.UnixNano() || !bytes.Equal(u.Value, data) {
				t.Fatalf("headers changed the message itself: %+v", u)
			}
			var h nats.Header
			if len(block) > 0 {
				if h, err = nats.DecodeHeadersMsg(block); err != nil {
					t.Fatal(err)
				}
			}
			op, why := specOp(first(h, "Nats-Marker-Reason"), first(h, "KV-Operation"), len(data) == 0, puts)
			if u.Op != op || u.Reason != why || u.ContentType != first(h, "Content-Type") {
				t.Fatalf("%q with %d bytes: %v for %v, content type %q; want %v for %v", block, len(data), u.Op, u.Reason, u.ContentType, op, why)
			}
		}
	})
}
