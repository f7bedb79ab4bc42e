package rounds

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/typedfold/fold/runtime/artifact/transport"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

const (
	// DefaultMost is the longest pause between two exports.
	DefaultMost = 6 * time.Hour
	// The scheduler looks at the pointer and the log eight times a period, within these.
	leastLook, mostLook = time.Second, 5 * time.Minute
	// firstRetry is the pause after a round that failed; it doubles up to the period.
	firstRetry = 30 * time.Second
)

// SchedulerOptions make a Scheduler.
type SchedulerOptions struct {
	Round *Round
	// Least and Most bound the time between two exports of the fleet. Least defaults to the round's TTL, Most to
	// DefaultMost or Least, whichever is longer. Where Least is longer than the log allows, Risk tells.
	Least, Most time.Duration
	Events      Events
}

// Events are nil-safe hooks on the scheduler's goroutine; none may block for long.
type Events struct {
	// Looked: the pointer and the log were read, and this is what follows.
	Looked func(Outlook)
	// RoundDone: a round has ended, also one for which another node held the lease.
	RoundDone func(Result, error)
	// Risk: less than two periods are left until no node that is away can be restored any more, or none can be already.
	// It is called at each look while that is so.
	Risk func(Outlook)
	// LookFailed: the pointer or the log could not be read. What was seen last counts on.
	LookFailed func(error)
}

// Outlook is what the scheduler makes of the newest artifact and the log.
type Outlook struct {
	// Newest is the current artifact; HasNewest is false when there is none, or none that can be read.
	Newest    transport.Generation
	HasNewest bool
	// Period is the time between two exports that the log allows, Next when the next one is due here.
	Period time.Duration
	Next   time.Time
	// Ends reports that the newest artifact becomes useless for a restore, at ImpossibleAt by the log's turnover so far:
	// from then on the log lacks something that came after it. A time that is not after now says that it is so already.
	// Without an artifact it is so at once. It is false on a log that keeps its values, which needs no restore.
	Ends         bool
	ImpossibleAt time.Time
}

// Validate reports what is missing or wrong.
func (o SchedulerOptions) Validate() error {
	if o.Round == nil {
		return errors.New("export scheduler: no Round")
	}
	if err := o.Round.Validate(); err != nil {
		return err
	}
	if o.Least < 0 || o.Most < 0 {
		return fmt.Errorf("export scheduler: least %v and most %v must not be negative", o.Least, o.Most)
	}
	if d := o.withDefaults(); d.Least > d.Most {
		return fmt.Errorf("export scheduler: least %v is over most %v", d.Least, d.Most)
	}
	return nil
}

func (o SchedulerOptions) withDefaults() SchedulerOptions {
	if o.Least == 0 {
		o.Least = o.Round.TTL
	}
	if o.Most == 0 {
		o.Most = max(DefaultMost, o.Least)
	}
	return o
}

// Scheduler begins rounds when the newest artifact of the fleet gets too old for the log. Each node has one; the lease
// makes one export of it.
type Scheduler struct {
	o SchedulerOptions

	looks  looks
	info   kv.LogInfo // as last read
	known  bool       // info was read
	newest transport.Generation
	has    bool
	quiet  bool      // the last look found nothing in the log after newest
	since  time.Time // when newest was first seen here, or that there is none
	jitter float64
	// notBefore holds the next round back.
	notBefore time.Time
	failures  int

	mu     sync.Mutex
	status Status // guarded by mu
}

// NewScheduler makes a Scheduler. It does nothing until Run.
func NewScheduler(o SchedulerOptions) (*Scheduler, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Scheduler{o: o.withDefaults()}, nil
}

// Run looks, and runs rounds, until ctx ends, and returns why it ended. A round that is under way then gives its lease
// back. It may be called once.
func (s *Scheduler) Run(ctx context.Context) error {
	for {
		now := time.Now()
		seen, err := s.look(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil && s.o.Events.LookFailed != nil {
			s.o.Events.LookFailed(err)
		}
		pause := leastLook
		if !seen {
			s.note(func(st *Status) { st.LookErr = err })
		} else {
			out := s.outlook()
			risk := s.atRisk(out)
			s.note(func(st *Status) { st.looked(now, out, risk, err) })
			if !now.Before(out.Next) {
				s.round(ctx, out.Period)
				continue
			}
			s.tell(out, risk)
			pause = min(out.Next.Sub(now), max(leastLook, min(out.Period/8, mostLook)))
		}
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// look reads the pointer and the log; seen is that both were read, now or before.
func (s *Scheduler) look(ctx context.Context) (seen bool, err error) {
	newest, present, pointerErr := s.o.Round.Transport.Pointer(ctx)
	if pointerErr == nil {
		has := present && newest.Err == nil
		if s.since.IsZero() || has != s.has || newest.Name != s.newest.Name {
			s.since, s.jitter = time.Now(), rand.Float64()
		}
		s.newest, s.has = newest, has
	}
	info, logErr := s.o.Round.Live(ctx)
	if logErr == nil {
		s.info, s.known = info, true
		s.looks.add(info)
	}
	s.quiet = logErr == nil && s.has && s.newest.Manifest.Rank() == info.Last
	return !s.since.IsZero() && s.known, errors.Join(pointerErr, logErr)
}

// outlook is what follows from what was read.
func (s *Scheduler) outlook() Outlook {
	out := Outlook{Newest: s.newest, HasNewest: s.has}
	log := protocol.LogBounds{Log: transport.End(s.info).Log, First: s.info.First, Last: s.info.Last}
	t := s.looks.turnover(s.info.Retention)
	t.Room = s.looks.room(s.info)
	out.Period = time.Duration(protocol.ExportPeriod(t, log, s.o.Least.Nanoseconds(), s.o.Most.Nanoseconds()))
	out.Next = s.next(out.Period)
	if evicts(s.info.Retention) {
		s.foresee(&out, log, t)
	}
	return out
}

// next is when the next round is due: a period after the newest artifact, and up to a tenth later, so that one node
// is first; at once where there is none of this log. One that the log has nothing after is as good as new: more of its
// cursor would help nobody, and no prune may take them.
func (s *Scheduler) next(period time.Duration) time.Time {
	spread := time.Duration(s.jitter * float64(period/10))
	due := s.since.Add(min(spread, leastLook))
	if s.has && s.ofThisLog() {
		begin := s.since // never later, whatever the exporter's clock says
		if c := s.newest.Manifest.Created; c.Before(begin) {
			begin = c
		}
		if s.quiet {
			begin = time.Now()
		}
		due = begin.Add(period + spread)
	}
	if due.Before(s.notBefore) {
		due = s.notBefore
	}
	return due
}

// ofThisLog reports whether the log may be the one that the newest artifact is of.
func (s *Scheduler) ofThisLog() bool {
	m := &s.newest.Manifest
	answer := protocol.LogIsSame(protocol.LogSeen{NotedCreated: m.Log.CreatedUnixNano, Created: transport.End(s.info).Log, Cursor: m.Rank(), Last: s.info.Last})
	return answer != protocol.LogReplaced && answer != protocol.LogRewound
}

// foresee tells until when a restore is possible.
func (s *Scheduler) foresee(out *Outlook, log protocol.LogBounds, t protocol.Turnover) {
	clock := timeOf(s.info)
	if !s.has {
		out.Ends, out.ImpossibleAt = true, clock
		return
	}
	m := &s.newest.Manifest
	e := protocol.LastExport{At: protocol.Position{Log: m.Log.CreatedUnixNano, Revision: m.Rank()}, Whole: s.looks.whole(m)}
	if at, ok := protocol.RestoreImpossibleAt(e, log, t, clock.UnixNano()); ok {
		out.Ends, out.ImpossibleAt = true, time.Unix(0, at)
	}
}

func (s *Scheduler) tell(out Outlook, risk bool) {
	if f := s.o.Events.Looked; f != nil {
		f(out)
	}
	if f := s.o.Events.Risk; f != nil && risk {
		f(out)
	}
}

// atRisk: the first artifact of all is not missed while somebody may be at it.
func (s *Scheduler) atRisk(out Outlook) bool {
	if !out.HasNewest && s.failures == 0 && time.Since(s.since) < s.o.Round.TTL {
		return false
	}
	return out.Ends && out.ImpossibleAt.Sub(timeOf(s.info)) < 2*out.Period
}

// round runs one, and holds the next one back.
func (s *Scheduler) round(ctx context.Context, period time.Duration) {
	s.note(func(st *Status) { st.Running, st.Began = true, time.Now() })
	res, err := s.o.Round.Run(ctx)
	pause := s.o.Least
	switch {
	case err != nil:
		pause = firstRetry
		for range min(s.failures, 16) {
			pause = min(2*pause, period)
		}
		s.failures++
		pause = min(pause, period)
	case res.Ending == NotHeld:
		pause = max(s.o.Round.TTL/4, leastLook)
	default:
		s.failures = 0
	}
	s.notBefore = time.Now().Add(max(leastLook, pause-time.Duration(rand.Float64()*float64(pause/10))))
	s.note(func(st *Status) { st.ended(res, err, s.failures, s.notBefore) })
	if f := s.o.Events.RoundDone; f != nil {
		f(res, err)
	}
}
