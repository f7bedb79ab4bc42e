package natskv

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/typedfold/fold/runtime/kv"
)

// pullExpires is how long the server keeps a request.
const pullExpires = 30 * time.Second

type pullRequest struct {
	Batch     int           `json:"batch"`
	MaxBytes  int           `json:"max_bytes,omitempty"`
	Expires   time.Duration `json:"expires"`
	Heartbeat time.Duration `json:"idle_heartbeat,omitempty"`
}

func pullBody(batch, maxBytes int, heartbeat time.Duration) []byte {
	body, err := json.Marshal(pullRequest{Batch: batch, MaxBytes: maxBytes, Expires: max(pullExpires, 3*heartbeat), Heartbeat: heartbeat})
	if err != nil { // can't be: integers only
		return nil
	}
	return body
}

// onMessage is called by the connection, one message after the other.
func (w *watch) onMessage(m *nats.Msg) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.activity++
	if w.lost != nil {
		return
	}
	if n := len(w.b.prefix); len(m.Subject) > n && m.Subject[:n] == w.b.prefix {
		w.deliverLocked(m, m.Subject[n:])
	} else {
		w.statusLocked(m)
	}
}

// deliverLocked takes in one delivery. It must follow the one before: a hole in the consumer's own count is a lost
// message, and ends the watch before the reader can pass it.
func (w *watch) deliverLocked(m *nats.Msg, key string) {
	w.outstanding = max(w.outstanding-1, 0)
	w.oversized = false
	w.behind, w.cutAt = w.behind || !w.cutAt.IsZero(), time.Time{}
	ack, ok := w.parser.parse(m.Reply)
	switch {
	case !ok:
		w.received++
	case ack.consumerSeq != w.received+1:
		w.loseLocked(fmt.Sprintf("delivery %d came after %d", ack.consumerSeq, w.received), nil)
		return
	case ack.streamSeq <= w.lastRev:
		w.loseLocked(fmt.Sprintf("revision %d came after %d", ack.streamSeq, w.lastRev), nil)
		return
	default:
		w.received = ack.consumerSeq
		w.gapped = w.gapped || ack.streamSeq != w.lastRev+1
		w.lastRev, w.lastNano, w.pending = ack.streamSeq, ack.unixNano, ack.pending
	}
	if w.exact || w.req.Scope.Contains(key) {
		w.in = append(w.in, kv.Update{
			Key: key, Value: m.Data, Version: kv.Revision(ack.streamSeq), UnixNano: ack.unixNano, Op: kv.OpPut, Reason: kv.ReasonUser,
		})
		w.inBytes += len(key) + len(m.Data)
		if m.Header != nil || len(m.Data) == 0 {
			applyHeaders(&w.in[len(w.in)-1], m.Header, statedSize(m.Header, m.Data), w.b.cfg.EmptyPut)
		}
		if len(w.in) == 1 {
			w.signal()
		}
	}
	w.pullLocked()
}

// pullLocked keeps two requests' worth of messages in flight, less what waits for the reader.
func (w *watch) pullLocked() {
	c := &w.b.cfg.Watch
	for w.lost == nil && w.outstanding+len(w.in) <= c.Batch && w.inBytes <= c.MaxBytes {
		body, n := w.pullBody, c.Batch
		if w.oversized {
			if w.outstanding > 0 {
				return
			}
			body, n = pullBody(1, 0, c.Heartbeat), 1
		}
		reply := w.inbox + "." + strconv.FormatUint(w.epoch, 10)
		if err := w.b.api.nc.PublishRequest(w.nextSubject, reply, body); err != nil {
			w.loseLocked("pull", err)
			return
		}
		w.outstanding += n
		w.activity++
		w.pulledAt = time.Now()
	}
}

// recountLocked begins again with the requests when the server, asked at a time, had none waiting though some were sent
// well before. A request whose bytes are used up to the last one ends without a status, and what it had left of its
// messages would be counted for ever.
func (w *watch) recountLocked(waiting int, asked time.Time) {
	if waiting > 0 || w.outstanding == 0 || asked.Sub(w.pulledAt) < hydrateProbeEvery {
		return
	}
	w.epoch++
	w.outstanding = 0
	w.pullLocked()
}

// statusLocked takes in what the server says of a request or of the consumer.
func (w *watch) statusLocked(m *nats.Msg) {
	current := m.Subject == w.inbox+"."+strconv.FormatUint(w.epoch, 10)
	text := first(m.Header, headerDescription)
	switch code := first(m.Header, headerStatus); code {
	case "100":
		if n, ok := headerNumber(m.Header, "Nats-Last-Consumer"); ok && n > w.received {
			w.loseLocked(fmt.Sprintf("the server delivered %d messages, %d arrived", n, w.received), nil)
		}
	case "404", "408":
		w.releaseLocked(m.Header, current)
	case "409":
		switch text {
		case "Message Size Exceeds MaxBytes":
			left, ok := headerNumber(m.Header, "Nats-Pending-Bytes")
			w.oversized = ok && left == uint64(w.b.cfg.Watch.MaxBytes)
			w.releaseLocked(m.Header, current)
		case "Batch Completed":
			w.releaseLocked(m.Header, current)
		default: // consumer deleted, leadership change, server shutdown, ...
			w.loseLocked(text, nil)
		}
	case "503":
		w.loseLocked("the consumer is gone", nats.ErrNoResponders)
	default:
		w.loseLocked(fmt.Sprintf("status %q %s", code, text), nil)
	}
}

// releaseLocked takes what an ended request had left out of the count, and asks again.
func (w *watch) releaseLocked(h nats.Header, current bool) {
	if !current {
		return
	}
	left, ok := headerNumber(h, "Nats-Pending-Messages")
	if !ok || left > uint64(w.outstanding) {
		left = uint64(w.outstanding)
	}
	w.outstanding -= int(left)
	w.pullLocked()
}

func headerNumber(h nats.Header, name string) (uint64, bool) {
	n, err := strconv.ParseUint(first(h, name), 10, 64)
	return n, err == nil
}
