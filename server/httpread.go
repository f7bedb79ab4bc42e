package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/node"
	"github.com/typedfold/fold/internal/nova/reader"
)

// Limits of one JSON answer, and of a long poll.
const (
	maxJSONRecords = 1000
	maxJSONBytes   = 1 << 20
	maxWait        = time.Minute
)

// errFull ends a read whose answer is full.
var errFull = errors.New("answer is full")

// readQuery is where a read begins, and how much it reads.
type readQuery struct {
	start  reader.Start
	count  uint64
	bytes  int
	wait   time.Duration
	events bool
	format format
}

func (s *Server) getRecords(w http.ResponseWriter, q *http.Request) (any, error) {
	st, err := s.streamOf(q, VerbRead)
	if err != nil {
		return nil, err
	}
	r, err := parseRead(q)
	if err != nil {
		return nil, err
	}
	ctx, cancel, err := s.ending(q.Context())
	if err != nil {
		return nil, err
	}
	defer cancel()
	var out any
	if r.events {
		err = s.sendEvents(w, ctx, st, r)
	} else {
		told := Read{Namespace: st.Log().Addr().Namespace}
		if out, err = s.pollRecords(ctx, st, r, &told); err == nil && told.Records > 0 && s.o.Events.Read != nil {
			s.o.Events.Read(told)
		}
	}
	if err != nil && errors.Is(context.Cause(ctx), errEnding) {
		err = errEnding
	}
	return out, err
}

func parseRead(q *http.Request) (r readQuery, err error) {
	v := q.URL.Query()
	number := func(name string) (n uint64, there bool) {
		text := v.Get(name)
		if text == "" || err != nil {
			return 0, false
		}
		if n, err = strconv.ParseUint(text, 10, 63); err != nil {
			err = fmt.Errorf("%w: %s=%q is no number", nova.ErrInvalid, name, text)
		}
		return n, err == nil
	}
	starts := 0
	for i, name := range []string{"seq_num", "tail_offset", "timestamp"} {
		if n, there := number(name); there {
			r.start.Kind, r.start.N = reader.StartKind(i), n
			starts++
		}
	}
	r.count, _ = number("count")
	bytes, _ := number("bytes")
	seconds, _ := number("wait")
	if err == nil && starts > 1 {
		err = fmt.Errorf("%w: a read begins at one of seq_num, tail_offset and timestamp", nova.ErrInvalid)
	}
	if err != nil {
		return r, err
	}
	r.start.Clamp, err = flag(v, "clamp")
	r.bytes = int(min(cmp.Or(bytes, maxJSONBytes), maxJSONBytes))
	r.wait = min(time.Duration(min(seconds, 3600))*time.Second, maxWait)
	if err == nil {
		r.format, err = formatOf(v)
	}
	r.events = strings.Contains(q.Header.Get("Accept"), "text/event-stream")
	if err == nil && r.events && (v.Has("bytes") || v.Has("wait")) {
		err = fmt.Errorf("%w: events are sent as they come; bytes and wait are for JSON", nova.ErrInvalid)
	}
	if last := q.Header.Get("Last-Event-ID"); r.events && last != "" && err == nil {
		n, parseErr := strconv.ParseUint(last, 10, 64)
		if parseErr != nil {
			return r, fmt.Errorf("%w: Last-Event-ID %q is no number", nova.ErrInvalid, last)
		}
		r.start = reader.Start{N: n, Clamp: r.start.Clamp}
	}
	return r, err
}

func flag(v url.Values, name string) (bool, error) {
	text, there := v[name]
	if !there {
		return false, nil
	}
	if text[0] == "" {
		return true, nil
	}
	b, err := strconv.ParseBool(text[0])
	if err != nil {
		return false, fmt.Errorf("%w: %s=%q is neither true nor false", nova.ErrInvalid, name, text[0])
	}
	return b, nil
}

// recordsJSON is the answer of a read: the next one begins at Next.
type recordsJSON struct {
	Records []recordJSON `json:"records"`
	Next    positionJSON `json:"next"`
}

// polling is where the records of one answer go.
type polling struct {
	reader.Each
	pause func() error
}

// Pause says whether the read goes on, now that it would wait.
func (p polling) Pause() error { return p.pause() }

// pollRecords reads one answer's worth, which it counts, and waits for the first record if there is none.
func (s *Server) pollRecords(ctx context.Context, st *node.Stream, r readQuery, told *Read) (any, error) {
	limit := min(cmp.Or(r.count, maxJSONRecords), maxJSONRecords)
	out := recordsJSON{Records: []recordJSON{}}
	size, reached := 0, false
	take := func(rs reader.Records) error {
		reached = true // also by none, which is the tail
		for i := range rs.Records {
			rec := &rs.Records[i]
			if size += rec.Bytes(); size > r.bytes && len(out.Records) > 0 {
				return errFull
			}
			one, err := r.format.record(rs.First+uint64(i), rec)
			if err != nil {
				return err
			}
			out.Records = append(out.Records, one)
			told.Records++
			told.Bytes += int64(rec.Bytes())
		}
		return nil
	}
	pause := func() error {
		if r.wait > 0 && len(out.Records) > 0 {
			return errFull // whoever waits wants to know soon
		}
		return nil
	}
	reading := ctx
	if r.wait > 0 {
		var cancel context.CancelFunc
		reading, cancel = context.WithTimeout(ctx, r.wait)
		defer cancel()
	}
	next, err := s.read(reading, st, r.start, limit, r.wait > 0, polling{take, pause})
	waited := errors.Is(err, context.DeadlineExceeded) && reading.Err() != nil && ctx.Err() == nil
	switch {
	case waited && !reached:
		return nil, fmt.Errorf("%w: the log said nothing for as long as the read may wait", nats.ErrTimeout) // next is not known
	case err != nil && !errors.Is(err, errFull) && !waited:
		return nil, err
	}
	out.Next = jsonOf(next)
	if n := len(out.Records); n > 0 {
		last := &out.Records[n-1]
		out.Next = positionJSON{SeqNum: last.SeqNum + 1, Timestamp: last.Timestamp}
	}
	return out, nil
}

// sendEvents follows the stream: an event for each record, whose id is where a client that comes again goes on.
func (s *Server) sendEvents(w http.ResponseWriter, ctx context.Context, st *node.Stream, r readQuery) error {
	e := &events{w: w, out: http.NewResponseController(w), format: r.format}
	_, err := s.read(ctx, st, r.start, r.count, true, s.counted(st.Log().Addr().Namespace, e))
	switch {
	case !e.begun:
		return err
	case err == nil, errors.Is(err, context.Canceled):
		return nil
	}
	e.fail(problemOf(ownDeadline(ctx, err)))
	return nil
}

// events writes records as server-sent events, and sends them before it waits for more.
type events struct {
	w      http.ResponseWriter
	out    *http.ResponseController
	format format
	begun  bool
}

func (e *events) begin() {
	if !e.begun {
		e.begun = true
		e.w.Header().Set("Content-Type", "text/event-stream")
		e.w.Header().Set("Cache-Control", "no-store")
		e.w.WriteHeader(http.StatusOK)
	}
}

// Take writes an event for each record; without records, which is the tail, the answer at least begins.
func (e *events) Take(rs reader.Records) error {
	for i := range rs.Records {
		seq := rs.First + uint64(i)
		one, err := e.format.record(seq, &rs.Records[i])
		if err != nil {
			return err
		}
		b, err := json.Marshal(one) // without a line break, also where a body had some
		if err != nil {
			return err
		}
		e.begin()
		if _, err := fmt.Fprintf(e.w, "id: %d\ndata: %s\n\n", seq+1, b); err != nil {
			return err
		}
	}
	if len(rs.Records) == 0 {
		e.begin()
	}
	return nil
}

// fail writes a problem as the last event: the answer has begun, and has no other place for it.
func (e *events) fail(p problem) {
	b, err := json.Marshal(p.json(e.w.Header().Get(RequestIDHeader)))
	if err == nil {
		_, _ = fmt.Fprintf(e.w, "event: error\ndata: %s\n\n", b) // a client that is gone needs no answer
	}
}

// Pause sends what was written.
func (e *events) Pause() error {
	if !e.begun {
		return nil
	}
	return e.out.Flush()
}
