package jslog

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/nats-io/nats.go/jetstream"
)

// ack is what the log answers a message.
type ack struct {
	Seq   uint64              `json:"seq"`
	Error *jetstream.APIError `json:"error"`
}

// readAck reads an answer. Nearly every one has the form that storedSeq reads.
func readAck(b []byte) (ack, error) {
	if seq, ok := storedSeq(b); ok {
		return ack{Seq: seq}, nil
	}
	return readAnyAck(b)
}

func readAnyAck(b []byte) (a ack, err error) {
	if err := json.Unmarshal(b, &a); err != nil {
		return ack{}, fmt.Errorf("answer of the log: %w", err)
	}
	return a, nil
}

// storedSeq is the sequence in an answer of exactly the form {"stream":"S","seq":N} or {"stream":"S","domain":"D","seq":N},
// with names that need no unquoting.
func storedSeq(b []byte) (seq uint64, ok bool) {
	b, ok = afterName(b, `{"stream":"`)
	if !ok {
		return 0, false
	}
	if rest, ok := afterName(b, `"domain":"`); ok {
		b = rest
	}
	const head = `"seq":`
	if len(b) < len(head)+2 || string(b[:len(head)]) != head || b[len(b)-1] != '}' {
		return 0, false
	}
	digits := b[len(head) : len(b)-1]
	if digits[0] == '0' && len(digits) > 1 {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' || seq > (math.MaxUint64-9)/10 {
			return 0, false
		}
		seq = seq*10 + uint64(c-'0')
	}
	return seq, true
}

// afterName is what follows head, a name, and `",`.
func afterName(b []byte, head string) ([]byte, bool) {
	if len(b) < len(head) || string(b[:len(head)]) != head {
		return nil, false
	}
	for i, c := range b[len(head):] {
		switch {
		case c == '"':
			b = b[len(head)+i+1:]
			if len(b) == 0 || b[0] != ',' {
				return nil, false
			}
			return b[1:], true
		case c < ' ' || c >= 0x7f || c == '\\':
			return nil, false
		}
	}
	return nil, false
}
