package streamchaos

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"sync"
	"time"

	"github.com/typedfold/fold/client"
)

// verb is what a call asks for.
type verb string

const (
	verbAppend verb = "append"
	verbFence  verb = "fence"
	verbTail   verb = "tail"
	verbToken  verb = "token"
	verbOpen   verb = "open"
)

// verdict is what a call was told.
type verdict string

const (
	told    verdict = "ok"
	missed  verdict = "missed"
	fenced  verdict = "fenced"
	refused verdict = "refused" // nothing was written
	unknown verdict = "unknown"
	// denied is an answer that no fault explains: the stream is not there, the input is invalid.
	denied verdict = "denied"
)

// op is one call of a client, or one submitted batch. Times are since the run began.
type op struct {
	id      uint64
	verb    verb
	session *session // nil of a one-shot
	// token is presented, or by a fence installed.
	token    string
	hasMatch bool
	match    uint64
	records  int

	call, ret  time.Duration
	verdict    verdict
	start, end uint64 // where it lies
	tail       uint64 // that a miss, a fence or a tail told
	installed  string // that a refusal or a token told
	resent     bool
	err        error
}

func (o *op) String() string {
	text := fmt.Sprintf("%s %s", o.verb, name(o.id))
	if o.session != nil {
		text += fmt.Sprintf(" in session %d", o.session.id)
	}
	if o.token != "" {
		text += fmt.Sprintf(" token %q", o.token)
	}
	if o.hasMatch {
		text += fmt.Sprintf(" at %d", o.match)
	}
	return fmt.Sprintf("%s, called %v, %s %v", text, o.call, o.verdict, o.ret)
}

// session is one producer of a client: opens are the times of its attempts to open a session with a server, each until it
// was answered.
type session struct {
	id    int
	token string

	mu    sync.Mutex
	opens []span
}

// span is a time from one moment to another; to is 0 if it never ended.
type span struct{ from, to time.Duration }

// opensIn is how many attempts began in a time.
func (s *session) opensIn(from, to time.Duration) (n int) {
	for _, o := range s.opens {
		if o.from >= from && o.from <= to {
			n++
		}
	}
	return n
}

// openAfter reports whether any attempt was answered, or never, after a time.
func (s *session) openAfter(t time.Duration) bool {
	for _, o := range s.opens {
		if o.to == 0 || o.to >= t {
			return true
		}
	}
	return false
}

// conclude notes what a call was told. The result of a success is the caller's to note.
func (o *op) conclude(err error, now time.Duration) {
	o.ret = now
	var seq *client.SequenceError
	var out *client.FenceError
	switch o.err = err; {
	case err == nil:
		o.verdict = told
	case errors.As(err, &seq):
		o.verdict, o.tail, o.resent = missed, seq.Tail.SeqNum, seq.Resent
	case errors.As(err, &out):
		o.verdict, o.installed, o.resent = fenced, out.Installed, out.Resent
	case errors.Is(err, client.ErrOutcomeUnknown):
		o.verdict = unknown
	case errors.Is(err, client.ErrUnavailable):
		o.verdict = refused
	case o.verb == verbTail || o.verb == verbToken || o.verb == verbOpen:
		o.verdict = refused // a question that got no answer
		if errors.Is(err, client.ErrNotFound) {
			o.verdict = denied
		}
	default:
		o.verdict = denied
	}
}

// placed notes where an append lies.
func (o *op) placed(r *client.AppendResult) { o.start, o.end = r.Start.SeqNum, r.End.SeqNum }

// An id is a writer's number and the number of its call. name is how it stands in a record's body.
func idOf(writer int, n uint32) uint64 { return uint64(writer)<<32 | uint64(n) }

func name(id uint64) string { return fmt.Sprintf("%d.%d", id>>32, uint32(id)) }

// body is that of record i of n of an append: its name, its place, and filling that follows from them.
func body(id uint64, i, n int) []byte {
	b := fmt.Appendf(nil, "%d.%d.%d.%d ", id>>32, uint32(id), i, n)
	fill := (id*7919 + uint64(i)*104729) % 241
	for k := range fill {
		b = append(b, byte('a'+(id+uint64(i)+k)%26))
	}
	return b
}

// readBody is the inverse of body; ok is false for bytes that no client has sent.
func readBody(b []byte) (id uint64, i, n int, ok bool) {
	head, _, found := bytes.Cut(b, []byte(" "))
	parts := bytes.Split(head, []byte("."))
	if !found || len(parts) != 4 {
		return 0, 0, 0, false
	}
	var numbers [4]uint64
	for k, p := range parts {
		var err error
		if numbers[k], err = strconv.ParseUint(string(p), 10, 32); err != nil {
			return 0, 0, 0, false
		}
	}
	id, i, n = idOf(int(numbers[0]), uint32(numbers[1])), int(numbers[2]), int(numbers[3])
	return id, i, n, bytes.Equal(b, body(id, i, n))
}

// seen is one record as a reader got it.
type seen struct {
	number uint64
	hash   uint64
	time   int64
}

func hashOf(b []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(b)
	return h.Sum64()
}

// reading is what one reader got of a stream, in order. A follower's begins at record 0 and has no gap.
type reading struct {
	what   string
	follow bool
	got    []seen
	wrong  []string // what it saw at once
}

func (r *reading) take(rec client.SequencedRecord) {
	if n := len(r.got); n > 0 {
		last := r.got[n-1]
		if rec.SeqNum != last.number+1 || rec.Timestamp < last.time {
			r.wrong = append(r.wrong, fmt.Sprintf("record %d at %d comes after record %d at %d", rec.SeqNum, rec.Timestamp, last.number, last.time))
		}
	}
	r.got = append(r.got, seen{number: rec.SeqNum, hash: hashOf(rec.Body), time: rec.Timestamp})
}
