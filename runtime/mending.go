package fold

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
	"github.com/typedfold/fold/runtime/repair"
	"github.com/typedfold/fold/runtime/store"
)

const (
	// retentionPoll is how often a running fold reads what its log can evict: eviction that comes and goes between two
	// reads is not seen (the seed's axiom).
	retentionPoll = 60 * time.Second
	// auditShare bounds audits to this part of the time: a pause is at least so many times the last one's length.
	auditShare = 50
)

// mending is the shell's part of repairs and audits.
type mending struct {
	repairer *repair.Repairer
	markers  atomic.Pointer[protocol.MarkerRules] // as last read
	// evicts: the log could evict current values when the last watch was opened, or at a reading since.
	evicts atomic.Bool

	// The loop's goroutine has the rest.
	report      *repair.Report  // of the last repair
	known       *kv.Incarnation // what the last repair has the fold remember of the log, until it is taken over
	auditReport *repair.Report
	listed      uint64    // repair.Outcome.Listed of the last repair, until the re-list has begun
	asked       kv.Cursor // what the last repair, or audit, was asked with
	audit       uint64    // the audit that is under way; another one's changes are refused
	stopAudit   context.CancelFunc
	auditEnded  time.Time
	auditTook   time.Duration
}

// markersNow are the log's rules for markers as they were last read; before the first reading nothing is sealed.
func (m *mending) markersNow() protocol.MarkerRules {
	if r := m.markers.Load(); r != nil {
		return *r
	}
	return protocol.MarkerRules{Purge: true, Delete: true, Rollup: true, MessageTTL: true}
}

// canRepair reports whether a loop with this configuration has what a repair needs.
func (c *loopConfig) canRepair() bool { return c.reader != nil && c.store != nil }

func (l *loop) beginMending() {
	if !l.cfg.canRepair() {
		return
	}
	if l.cfg.repair.AdoptNewLog {
		l.cfg.log.Warn("fold: AdoptNewLog is on: should the bucket be re-created, what it lists then replaces the fold")
	}
	if m := l.cfg.repair.Mode; m == repair.Auto || m == repair.Relist {
		l.wg.Go(l.pollRetention)
	}
}

// pollRetention reads the log's settings from time to time, until the loop ends: what they allow retention to take is
// remembered for good.
func (l *loop) pollRetention() {
	t := time.NewTicker(retentionPoll)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			l.readRetention(false)
		case <-l.ctx.Done():
			return
		}
	}
}

// readRetention tells the machine what the log can evict now. A reading that fails is made up for by the next one.
func (l *loop) readRetention(relisted bool) {
	info, err := l.cfg.watcher.Info(l.ctx)
	if err != nil {
		return
	}
	l.mending.markers.Store(&info.Markers)
	if info.Retention.EvictsCurrentValues {
		l.mending.evicts.Store(true)
	}
	l.log.read(info)
	in := machine.RetentionRead{Evicted: protocol.HasEvicted(info.Retention.Kernel()), Head: info.Last}
	if relisted {
		in.Owes, in.Whole = owesListing(info), listingIsWhole(info)
	}
	l.post(event{in: in})
}

func (l *loop) startRepair(e machine.Repair) {
	l.endAudit()
	l.mending.asked = e.Committed
	q := repair.Request{Cursor: e.Committed, Known: l.log.get(), Owed: e.Owed, Err: e.Err, Fits: l.cfg.fits}
	switch e.End {
	case machine.EndNoCursor:
		q.Cause = protocol.CauseNoCursor
	case machine.EndLogChanged:
		if q.Cause = protocol.CauseRewound; errors.Is(e.Err, kv.ErrLogReplaced) {
			q.Cause = protocol.CauseReplaced
		}
	}
	if f := l.cfg.events.RepairStarted; f != nil && e.Err != nil {
		f(e.Err)
	}
	l.wg.Go(func() {
		report := &repair.Report{}
		out, err := l.mending.repairer.Repair(l.ctx, q, report)
		if report.Evicted {
			l.post(event{in: machine.RetentionRead{Evicted: true}})
		}
		ev := event{report: report}
		switch {
		case err == nil:
			ev.known, ev.listed = &out.Known, out.Listed
			ev.in = machine.Repaired{Cursor: out.Cursor, Owed: out.Owed, Relist: out.Relist, NewLog: out.Known.CreatedUnixNano != q.Known.CreatedUnixNano}
		case finalRepairError(err):
			ev.in = machine.Repaired{Err: err}
		default:
			ev.in = machine.RepairFailed{Err: err}
		}
		l.post(ev)
	})
}

// finalRepairError reports whether another try of a repair would end in the same way.
func finalRepairError(err error) bool {
	for _, final := range []error{repair.ErrRefused, store.ErrCorrupt, store.ErrFormat, store.ErrPoisoned, store.ErrClosed} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}

func (l *loop) repaired(in machine.Repaired, ev event) machine.Input {
	if in.Err == nil && l.unaware(in.Cursor) {
		ev.report.Error = errEvictedSince.Error()
		failed := machine.RepairFailed{Err: errEvictedSince}
		l.repairFailed(failed, ev)
		return failed
	}
	l.mending.known, l.mending.listed = ev.known, ev.listed
	l.reported(&l.mending.report, ev.report, l.cfg.events.RepairDone, "repair", in.Err)
	return in
}

func (l *loop) repairFailed(in machine.RepairFailed, ev event) {
	l.lastErr = in.Err
	keepReport(&l.mending.report, ev.report, l.cfg.events.RepairDone)
	l.cfg.log.Warn("fold: repair failed, another try follows", "err", in.Err)
}

// errEvictedSince ends a repair and an audit that take a listing for the truth, and the fold has been told better.
var errEvictedSince = errors.New("retention was seen to take current values since it began")

// unaware reports whether the fold knows that retention took current values, and who has this cursor does not.
func (l *loop) unaware(c kv.Cursor) bool { return l.m.SeenEvicting() && !c.SeenEvicting }

// overtaken is why an audit's changes, or with 0 a repair's, are refused.
func (l *loop) overtaken(audit uint64) error {
	switch {
	case audit != 0 && audit != l.mending.audit:
		return errAuditOver
	case l.unaware(l.mending.asked):
		return errEvictedSince
	}
	return nil
}

// takeOver has the log's identity go into the commit that moves the cursor to it, and into none before. No live watch stood
// at that cursor.
func (l *loop) takeOver() {
	if l.mending.known != nil {
		l.log.set(*l.mending.known)
		l.mending.known, l.lostAt, l.stood = nil, time.Time{}, kv.Stood{}
	}
}

// reported keeps a report and tells of it. One that had nothing to do is not worth a word.
func (l *loop) reported(keep **repair.Report, r *repair.Report, tell func(*RepairReport), what string, err error) {
	if r == nil || r.Plan == "" && err == nil {
		return
	}
	switch {
	case err != nil:
		l.cfg.log.Error("fold: "+what+" failed", "report", r)
	case r.Plan == protocol.PlanAdopt.String():
		l.cfg.log.Warn("fold: another log replaced the fold; take AdoptNewLog out again", "report", r)
	default:
		l.cfg.log.Info("fold: "+what+" done", "report", r)
	}
	keepReport(keep, r, tell)
}

func keepReport(keep **repair.Report, r *repair.Report, tell func(*RepairReport)) {
	*keep = r
	if tell != nil {
		tell(r)
	}
}

// auditPause is the time until the next audit; below 0 there is none.
func (l *loop) auditPause() time.Duration {
	every := l.cfg.repair.AuditEvery
	if every == 0 {
		every = repair.DefaultAuditEvery
	}
	if every < 0 {
		return -1
	}
	if l.mending.auditEnded.IsZero() {
		return time.Duration(rand.Int64N(int64(every) + 1))
	}
	next := l.mending.auditEnded.Add(max(every, auditShare*l.mending.auditTook))
	return max(time.Until(next), 0)
}

func (l *loop) startAudit(e machine.Audit) {
	l.mending.audit++
	l.mending.asked = e.Committed
	id := l.mending.audit
	ctx, cancel := context.WithCancel(l.ctx)
	l.mending.stopAudit = cancel
	auditor := repair.New(l.cfg.reader, l.cfg.store, &folder{loop: l, audit: id}, l.cfg.scope, l.cfg.repair)
	q := repair.AuditRequest{Cursor: e.Committed, Known: l.log.get(), Owed: e.Owed, WaitApplied: l.applied.wait}
	l.wg.Go(func() {
		defer cancel()
		report := &repair.Report{}
		out, err := auditor.Audit(ctx, q, report)
		if report.Evicted {
			l.post(event{in: machine.RetentionRead{Evicted: true}})
		}
		in := machine.Audited{Before: out.Before, Unproven: err == nil && out.Plan == protocol.AuditUnproven, Err: err}
		if errors.Is(err, kv.ErrLogRewound) || errors.Is(err, kv.ErrLogReplaced) {
			in.Contradiction = err
		}
		l.post(event{in: in, report: report})
	})
}

// endAudit takes back the leave of an audit that is under way: a repair begins, and settles more; or a watch was opened
// again, perhaps on a log that has lost what was listed.
func (l *loop) endAudit() {
	if l.mending.stopAudit != nil {
		l.mending.stopAudit()
		l.mending.stopAudit = nil
		l.mending.audit++
	}
}

func (l *loop) audited(in machine.Audited, ev event) machine.Input {
	if in.Err == nil && !in.Unproven && l.unaware(l.mending.asked) {
		in.Err = errEvictedSince
	}
	l.mending.stopAudit = nil
	l.mending.auditEnded = time.Now()
	if ev.report != nil {
		l.mending.auditTook = ev.report.Ended.Sub(ev.report.Began)
	}
	l.reported(&l.mending.auditReport, ev.report, l.cfg.events.AuditDone, "audit", in.Err)
	return in
}

var errAuditOver = errors.New("the audit is over: a repair has begun, or another watch")

// folder takes a repair's or an audit's changes into the loop.
type folder struct {
	loop  *loop
	audit uint64
}

// injection is what a segment of a repair's changes still waits for.
type injection struct {
	changes  []repair.Change
	prepared bool
	done     chan error
}

func (i *injection) end(err error) {
	if i != nil {
		i.done <- err
	}
}

// Fold commits the changes, and returns when they are.
func (f *folder) Fold(ctx context.Context, changes []repair.Change) error {
	l := f.loop
	seg := l.free.get()
	seg.injected = &injection{changes: changes, done: make(chan error, 1)}
	done := seg.injected.done
	s := machine.Segment{Updates: len(changes), Alone: true}
	for i := range changes {
		s.Bytes += changes[i].Size()
	}
	if !l.post(event{in: machine.Injected{Segment: s}, seg: seg, audit: f.audit}) {
		return l.ctx.Err()
	}
	// Not ctx: the changes are in the loop's hands until it says so, or ends.
	select {
	case err := <-done:
		return err
	case <-l.ctx.Done():
		return fmt.Errorf("fold %d changes: %w", len(changes), l.ctx.Err())
	}
}

// prepareInjected turns a flush's injected changes into updates, on the worker: all that came before is committed, so a
// change whose row is no longer the one that it was decided on is seen, and left out.
func (l *loop) prepareInjected() error {
	for _, s := range l.flush.segs {
		in := s.injected
		if in == nil || in.prepared {
			continue
		}
		s.updates = s.updates[:0]
		for i := range in.changes {
			ok, err := l.holds(&in.changes[i])
			if err != nil {
				return fmt.Errorf("read the row before a repair's change: %w", err)
			}
			if ok {
				s.updates = append(s.updates, in.changes[i].Update)
			}
		}
		l.cfg.sink.prepare(s, 0)
		in.prepared = true
	}
	return nil
}

// holds reports whether the row that a change was decided on is still there.
func (l *loop) holds(c *repair.Change) (bool, error) {
	if c.Expect.IsUnknown() && !c.ExpectUnknown {
		return true, nil
	}
	var v store.Value
	ok, err := l.cfg.store.Get(store.AppendKey(nil, store.SpaceData, c.Key), &v)
	if err != nil || !ok {
		return false, err
	}
	defer v.Release()
	r, err := store.ParseRecord(v.Bytes)
	return err == nil && r.Version == c.Expect, err
}

// progress is the committed revision, for those who wait for one. Its zero value is at 0.
type progress struct {
	mu      sync.Mutex
	rev     uint64
	changed chan struct{} // nil while nobody waits
}

func (p *progress) set(rev uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rev = rev
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

func (p *progress) wait(ctx context.Context, rev uint64) error {
	for {
		p.mu.Lock()
		if p.rev >= rev {
			p.mu.Unlock()
			return nil
		}
		if p.changed == nil {
			p.changed = make(chan struct{})
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for revision %d: %w", rev, ctx.Err())
		}
	}
}
