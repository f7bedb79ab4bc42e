package rounds

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Status is what a Scheduler knows and does at one moment.
type Status struct {
	// Running: a round is under way here. Began is when it, or the last one, began.
	Running bool
	Began   time.Time
	// Outlook is the last one, made at Looked; the zero time is that there is none yet, since the pointer or the log was
	// never read. AtRisk is what Events.Risk tells.
	Outlook Outlook
	Looked  time.Time
	AtRisk  bool
	// LookErr is why the pointer or the log could not be read last time; nil when both could. What was seen before counts
	// on.
	LookErr error
	// Last is what the last round here did, with its error, and Ended is when; the zero time is that there was none.
	Last  Result
	Err   error
	Ended time.Time
	// Failures is how many rounds in a row failed here, not counting those for which another node held the lease.
	Failures int
	// Next is when the next round is due here. A newer artifact, of any node, puts it off.
	Next time.Time
	// Hint says what a person can do; "" when there is nothing to do.
	Hint string
}

// Status is what the Scheduler knows and does now. It is safe for concurrent use, never waits for a round, and works
// before, during and after Run.
func (s *Scheduler) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

func (s *Scheduler) note(change func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.status)
	s.status.Hint = s.status.hint()
}

func (st *Status) looked(now time.Time, out Outlook, risk bool, err error) {
	st.Outlook, st.AtRisk, st.LookErr, st.Next, st.Looked = out, risk, err, out.Next, now
}

func (st *Status) ended(res Result, err error, failures int, notBefore time.Time) {
	st.Running, st.Last, st.Err, st.Failures, st.Next, st.Ended = false, res, err, failures, notBefore, time.Now()
}

func (st *Status) hint() string {
	var all []string
	if out := &st.Outlook; st.AtRisk && out.HasNewest {
		all = append(all, fmt.Sprintf("no node can be restored from %s on, by the log's turnover so far: see that an export succeeds before that, or let the log keep more",
			out.ImpossibleAt.UTC().Format(time.RFC3339)))
	} else if st.AtRisk {
		all = append(all, "no node can be restored, since there is no artifact: see that an export succeeds")
	}
	if st.Outlook.Newest.Err != nil {
		all = append(all, "the pointer is no manifest that this build reads, and the next round replaces it: see that all nodes that publish under its key are of one build")
	}
	if st.LookErr != nil {
		all = append(all, "the object store or the log can't be read: "+hintOf(st.LookErr))
	}
	if st.Failures > 0 {
		all = append(all, fmt.Sprintf("%d export rounds in a row failed here: %s", st.Failures, hintOf(st.Err)))
	}
	return strings.Join(all, "; ")
}

// hintOf is what an error says that a person can do, or the error.
func hintOf(err error) string {
	if err == nil {
		return "another node holds the lease now"
	}
	var h interface{ Hint() string }
	if errors.As(err, &h) && h.Hint() != "" {
		return h.Hint()
	}
	return err.Error()
}
