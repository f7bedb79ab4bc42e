package repair

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// Decision is one kernel's answer and what it was asked.
type Decision struct {
	Kernel string         `json:"kernel"`
	Inputs map[string]any `json:"inputs"`
	Answer string         `json:"answer"`
}

// Report is what one repair or audit saw, decided and did. Counts are of keys.
type Report struct {
	Cause string `json:"cause"`
	Scope string `json:"scope"`
	// Cursor is where the fold was, NewCursor where it goes on.
	Cursor    string `json:"cursor"`
	NewCursor string `json:"new_cursor,omitempty"`
	Plan      string `json:"plan,omitempty"`
	Artifact  string `json:"artifact,omitempty"`
	First     uint64 `json:"first,string"`
	Last      uint64 `json:"last,string"`
	// Evicted: the log can evict current values, and has.
	Evicted   bool       `json:"evicted"`
	Decisions []Decision `json:"decisions"`
	// Rows is how many rows of the fold were compared, Listed how many keys the bucket listed.
	Rows   uint64 `json:"rows"`
	Listed uint64 `json:"listed"`
	// Deleted and Put are the changes; in a dry run those that would have been made.
	Deleted uint64 `json:"deleted"`
	Put     uint64 `json:"put"`
	// Examples are a few of the changed keys.
	Examples []string  `json:"examples,omitempty"`
	Began    time.Time `json:"began"`
	Ended    time.Time `json:"ended,omitzero"`
	Error    string    `json:"error,omitempty"`
}

const maxExamples = 5

func (r *Report) begin(q Request, scope kv.Scope, now time.Time) {
	*r = Report{Cause: q.Cause.String(), Scope: scope.String(), Cursor: q.Cursor.String(), Began: now}
}

func (r *Report) saw(info kv.LogInfo) { r.First, r.Last = info.First, info.Last }

func (r *Report) plan(p protocol.Plan) { r.Plan = p.String() }

// decide writes down a decision; inputs are names and values in turn.
func (r *Report) decide(kernel, answer string, inputs ...any) {
	d := Decision{Kernel: kernel, Answer: answer, Inputs: map[string]any{}}
	for i := 0; i+1 < len(inputs); i += 2 {
		d.Inputs[fmt.Sprint(inputs[i])] = inputs[i+1]
	}
	r.Decisions = append(r.Decisions, d)
}

// changed counts changes that were handed to the folder.
func (r *Report) changed(changes []Change) {
	for i := range changes {
		c := &changes[i]
		if c.Op.Removes() {
			r.Deleted++
		} else {
			r.Put++
		}
		if len(r.Examples) < maxExamples {
			r.Examples = append(r.Examples, c.Op.String()+" "+c.Key)
		}
	}
}

func (r *Report) end(out Outcome, err error, now time.Time) {
	r.Ended = now
	if err != nil {
		r.Error = err.Error()
		return
	}
	r.NewCursor = out.Cursor.String()
}

// LogValue is the report as one structured log line. It names no keys.
func (r *Report) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.String("cause", r.Cause), slog.String("plan", r.Plan), slog.String("scope", r.Scope),
		slog.String("cursor", r.Cursor), slog.String("new_cursor", r.NewCursor),
		slog.Uint64("first", r.First), slog.Uint64("last", r.Last),
		slog.Uint64("rows", r.Rows), slog.Uint64("listed", r.Listed), slog.Uint64("deleted", r.Deleted), slog.Uint64("put", r.Put),
		slog.Duration("took", r.Ended.Sub(r.Began)),
	}
	attrs = append(attrs, slog.Any("decisions", r.Decisions))
	if r.Error != "" {
		attrs = append(attrs, slog.String("err", r.Error))
	}
	return slog.GroupValue(attrs...)
}
