package machine_test

import (
	"errors"
	"reflect"

	"pgregory.net/rapid"

	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/runtime/kv"
)

var errFatal = errors.New("fatal")

// world plays the shell and the log, and checks what the machine promises.
type world struct {
	t    *rapid.T
	m    *machine.M
	cfg  machine.Config
	saw  map[string]int // how often what was reached, over all runs
	calm bool           // nothing fails any more

	log     uint64 // revisions written so far
	watchAt uint64 // what the last watch has delivered
	open    bool
	opening *machine.OpenWatch
	receive *machine.Receive
	hooks   bool // out
	store   bool // out
	timers  map[machine.Timer]bool

	segments map[uint64]machine.Segment
	injected map[uint64]bool
	order    []uint64 // segment IDs as they came
	seen     uint64   // the revision that the received ones reach
	flushed  int      // how many of them are committed
	nextID   uint64
	failures int

	flush     *machine.Flush // in progress
	hooksDone bool           // of that
	takes     bool           // it commits what a repair came to

	committed kv.Cursor
	stored    kv.Owed
	owed      kv.Owed // what has to be committed
	memo      bool

	head              uint64
	headKnown, caught bool
	relisted          bool // the last watch asked for
	hydrated          bool
	bulk, bulked      bool

	repair   bool // out
	end      machine.End
	since    kv.Owed           // told since the repair was asked for
	outcome  *machine.Repaired // not taken over yet
	reopen   *machine.Repaired // taken over, and its watch is to come
	injects  int               // of the repair or audit that is out
	audit    *machine.Audit
	before   uint64 // the log's end when it began
	overtake bool   // what it finds counts no more
	unproven bool

	shutdown, stopping, deadline, stopped bool
	stopErr                               error
}

func newWorld(t *rapid.T, saw map[string]int) *world {
	cfg := config(t)
	resume := kv.CursorAt(uint64(rapid.IntRange(0, 3).Draw(t, "resume")))
	resume.SeenEvicting = rapid.IntRange(0, 4).Draw(t, "memo") == 0
	owed := kv.Owed{}.Add(drawOwes(t), resume.Revision())
	w := &world{
		t: t, cfg: cfg, saw: saw, timers: map[machine.Timer]bool{}, segments: map[uint64]machine.Segment{}, injected: map[uint64]bool{},
		committed: resume, log: resume.Revision(), seen: resume.Revision(), memo: resume.SeenEvicting, owed: owed, stored: owed, end: machine.EndNoCursor,
	}
	m, effects := machine.New(cfg, resume, owed)
	w.m = m
	w.carry(effects)
	w.note(w.repair, "a start without a cursor asks for a repair")
	return w
}

func drawOwes(t *rapid.T) kv.Owes {
	return rapid.SampledFrom([]kv.Owes{0, 0, 0, kv.OwesIdentity, kv.OwesMarkers, kv.OwesListing}).Draw(t, "owes")
}

func (w *world) must(ok bool, what string) {
	if !ok {
		w.t.Helper()
		w.t.Fatalf("%s", what)
	}
}

func (w *world) note(reached bool, what string) {
	if reached {
		w.saw[what]++
	}
}

func (w *world) step(in machine.Input) {
	w.carry(w.m.Step(in, nil))
	owed, unproven := w.m.Owed()
	w.must(w.m.Committed() == w.committed, "the machine says another committed cursor than its effects")
	w.must(owed == w.stored && unproven == (w.unproven && owed.Why != 0), "the machine says another mark than its effects")
	w.must(w.m.SeenEvicting() == w.memo, "the machine says another memo than it was told")
	if w.stopped {
		w.must(w.m.Phase() == machine.PhaseStopped, "a machine that stopped is in another phase")
		return
	}
	w.must(w.m.Repairing() == w.repair, "Repairing is wrong")
	w.must((w.m.Phase() == machine.PhaseStopping) == w.stopping, "PhaseStopping is wrong")
	w.must(w.m.Hydrated() == w.hydrated, "Hydrated is wrong")
	w.must(w.caught || !w.open || w.committed.Revision() < w.head, "caught up, and it does not say so")
	w.must(w.flush != nil || len(w.order) > w.flushed || w.settled(), "a cursor or a mark is left uncommitted")
}

// settled: what has to be committed beside the updates is.
func (w *world) settled() bool { return w.stored == w.owed && w.committed.SeenEvicting == w.memo }

func (w *world) carry(effects []machine.Effect) {
	for _, e := range effects {
		w.must(!w.stopped, "an effect after Stop")
		w.one(e)
	}
}

func (w *world) one(e machine.Effect) {
	switch e := e.(type) {
	case machine.OpenWatch:
		w.openWatch(e)
	case machine.CloseWatch:
		w.open = false
	case machine.Receive:
		w.must(w.open && w.receive == nil && !w.repair, "a receive without a watch, or a second one")
		w.must(e.Gather == w.bulk, "a receive gathers, or does not, at the wrong time")
		w.checkRoom(e)
		w.receive = &e
	case machine.RunHooks:
		w.must(!w.hooks && !w.store && !w.hooksDone, "hooks run beside another flush, or again")
		w.must(len(e.Flush.Segments) > 0, "hooks run for nothing")
		w.flushBegins(e.Flush)
		w.hooks = true
	case machine.ApplyStore:
		w.must(w.cfg.HasStore && !w.hooks && !w.store, "a store apply beside another flush, or without a store")
		w.must(w.hooksDone || len(e.Flush.Segments) == 0, "a store apply before the hooks have returned")
		w.flushBegins(e.Flush)
		w.store = true
	case machine.Committed:
		w.commit(e)
	case machine.CaughtUp:
		w.must(w.headKnown && !w.caught && w.committed.Revision() >= w.head, "caught up, and it is not so")
		w.must(e == machine.CaughtUp{Cursor: w.committed, First: !w.hydrated, Bulk: w.bulked, Relisted: w.relisted || w.owed.Why&kv.OwesListing != 0}, "CaughtUp is wrong")
		w.note(!e.First, "caught up again")
		w.note(!e.First && e.Bulk, "bulk flushes after the first hydrate")
		w.note(!e.First && e.Relisted, "caught up with a re-list that a repair asked for")
		w.caught, w.hydrated, w.bulk, w.bulked = true, true, false, false
	case machine.Repair:
		w.repairBegins(e)
	case machine.Audit:
		w.auditBegins(e)
	case machine.Arm:
		w.must(!w.timers[e.Timer], "a timer is armed twice")
		w.timers[e.Timer] = true
	case machine.Stop:
		w.stop(e)
	}
}

func (w *world) withMemo(c kv.Cursor) kv.Cursor {
	c.SeenEvicting = w.memo
	return c
}

// take makes what a repair came to the fold's own.
func (w *world) take() {
	w.reopen, w.outcome = w.outcome, nil
	w.seen = w.reopen.Cursor.Revision()
	w.owed = w.reopen.Owed.Add(w.since.Why, w.since.At)
	w.note(w.since.Why != 0, "a mark told beside a repair outlives it")
}

func (w *world) openWatch(e machine.OpenWatch) {
	w.must(!w.open && w.opening == nil && w.receive == nil, "a second watch is opened")
	w.must(!w.repair && !w.stopping, "a watch is opened beside a repair, or while stopping")
	if w.outcome != nil {
		w.note(true, "a repair's outcome has nothing to commit")
		w.must(!w.outcome.NewLog, "a watch is opened on a log that is not committed")
		w.take()
	}
	want := machine.OpenWatch{After: w.withMemo(e.After)}
	if w.reopen != nil {
		want = machine.OpenWatch{After: w.withMemo(w.reopen.Cursor), Relist: w.reopen.Relist}
		w.must(w.committed == want.After && w.stored == w.owed, "a watch is opened before the repair's cursor is committed")
		w.reopen = nil
	} else {
		w.must(!e.After.IsNone() || !w.cfg.CanRepair, "a watch without a cursor, and no repair before it")
	}
	w.must(e == want && e.After.Revision() == w.seen, "a watch does not resume after what was received, or repaired")
	w.relisted = e.Relist || e.After.IsNone()
	w.opening = &e
}

// flushBegins checks a flush that begins, or that it is retried as it was.
func (w *world) flushBegins(f machine.Flush) {
	if w.flush != nil {
		w.must(reflect.DeepEqual(*w.flush, f), "a flush is retried, and not as it was")
		return
	}
	w.flush, w.takes = &f, false
	from := w.committed
	if len(f.Segments) == 0 {
		w.must(w.flushed == len(w.order), "a cursor is committed alone before what was queued")
		newLog := false
		if w.outcome != nil {
			newLog = w.outcome.NewLog
			w.note(newLog && w.withMemo(w.outcome.Cursor) == w.committed && w.outcome.Owed == w.stored, "only the log's identity is committed")
			w.note(w.withMemo(w.outcome.Cursor) != w.committed, "a repair's cursor is committed")
			w.take()
			w.takes, from = true, w.reopen.Cursor
		}
		w.must(f.Cursor == w.withMemo(from), "a cursor alone is another one")
		w.must(f.Cursor != w.committed || f.Owed != w.stored || newLog, "a commit of nothing")
		w.note(!w.takes && f.Cursor != w.committed, "a memo is committed alone")
		w.note(!w.takes && f.Owed.Why != 0 && f.Owed != w.stored, "a mark is committed alone")
		w.note(!w.takes && f.Owed.Why == 0 && w.stored.Why != 0, "a settled mark is committed alone")
		w.note(!w.cfg.HasStore, "a cursor alone without a store")
	}
	w.must(f.Owed == w.owed, "a flush has another mark than what is owed")
	w.must(f.Cursor.SeenEvicting == w.memo, "a flush is without the memo")
	w.must(f.Bulk == (w.bulk && len(f.Segments) > 0), "a flush is bulk, or is not, at the wrong time")
	w.checkSegments(f)
}

// checkSegments: a flush holds the next segments that are not committed, in order and within its bounds.
func (w *world) checkSegments(f machine.Flush) {
	updates, bytes, to := 0, 0, w.committed.Revision()
	for i, id := range f.Segments {
		w.must(w.flushed+i < len(w.order) && w.order[w.flushed+i] == id, "a flush is out of order")
		s := w.segments[id]
		w.must(!s.Alone && !w.injected[id] || len(f.Segments) == 1, "a segment that goes alone does not")
		w.note(w.injected[id], "injected changes are flushed")
		updates, bytes = updates+s.Updates, bytes+s.Bytes
		if !w.injected[id] {
			to = max(to, s.High.Rank(), s.Frontier)
		}
	}
	w.must(len(f.Segments) == 0 || f.Cursor.Revision() == to, "a flush moves the cursor to where it does not reach")
	w.must(f.Updates == updates && f.Bytes == bytes, "a flush counts wrong")
	most, mostBytes := w.cfg.MaxUpdates, w.cfg.MaxBytes
	if f.Bulk {
		most, mostBytes = w.cfg.BulkUpdates, w.cfg.BulkBytes
	}
	w.must(len(f.Segments) <= 1 || f.Updates <= most && f.Bytes <= mostBytes, "a flush is larger than its bound")
}

func (w *world) commit(e machine.Committed) {
	if len(e.Flush.Segments) == 0 && !w.cfg.HasStore {
		w.flushBegins(e.Flush)
	} else {
		w.must(w.flush != nil && reflect.DeepEqual(*w.flush, e.Flush), "another flush is committed than was begun")
		w.must(!w.hooks && !w.store && (w.hooksDone || len(e.Flush.Segments) == 0), "committed before hooks and store have returned")
	}
	w.must(w.takes || e.Flush.Cursor.Revision() >= w.committed.Revision(), "the cursor goes back, and no repair said so")
	w.must(e.Moved == (e.Flush.Cursor != w.committed), "Moved is wrong")
	w.note(e.Flush.Cursor.IsNone() && !w.committed.IsNone(), "the cursor goes back to none")
	w.note(w.takes && w.failures > 0, "a repair's cursor is committed after a failure")
	w.note(!w.takes && len(e.Flush.Segments) == 0 && w.failures > 0, "a cursor alone is committed after a failure")
	w.committed, w.stored = e.Flush.Cursor, e.Flush.Owed
	w.flushed += len(e.Flush.Segments)
	w.bulked = w.bulked || e.Flush.Bulk
	w.flush, w.hooksDone, w.takes, w.failures = nil, false, false, 0
	for _, id := range w.order[w.flushed:] {
		if s := w.segments[id]; !w.injected[id] && s.High.Rank() != 0 {
			w.must(s.High.Rank() > w.committed.Revision(), "the cursor covers an update that is not committed")
		}
	}
}

// checkRoom: more is asked for only while what waits for a flush is below the queue's bounds, or those of one flush.
func (w *world) checkRoom(r machine.Receive) {
	waiting, bytes := w.waiting()
	w.must(waiting < max(r.Max, w.cfg.QueueUpdates) && bytes < max(r.MaxBytes, w.cfg.QueueBytes), "a receive is asked for with a full queue")
}

// waiting is what is in no flush yet.
func (w *world) waiting() (updates, bytes int) {
	first := w.flushed
	if w.flush != nil {
		first += len(w.flush.Segments)
	}
	for _, id := range w.order[first:] {
		updates, bytes = updates+w.segments[id].Updates, bytes+w.segments[id].Bytes
	}
	return updates, bytes
}

func (w *world) repairBegins(e machine.Repair) {
	w.must(w.cfg.CanRepair && !w.repair && w.outcome == nil && w.reopen == nil, "a repair that must not be, or a second one")
	w.must(!w.open && w.opening == nil && w.receive == nil && !w.stopping, "a repair beside a watch, or while stopping")
	w.must(w.flushed == len(w.order) && w.flush == nil && w.settled(), "a repair begins before everything received is committed")
	want := machine.Repair{Committed: w.committed, Owed: w.stored, End: w.end, Err: errBoom}
	if w.end == machine.EndNoCursor {
		w.must(w.seen == 0, "a repair for want of a cursor, and there is one")
		want.Err = nil
	}
	w.must(e == want, "a repair is asked for with something else than what is")
	w.note(e.End == machine.EndExpired, "a repair of an expired cursor")
	w.note(e.End == machine.EndLogChanged, "a repair of a log that changed")
	w.note(w.audit != nil, "a repair overtakes an audit")
	w.repair, w.since, w.injects, w.overtake = true, kv.Owed{}, 0, true
}

func (w *world) auditBegins(e machine.Audit) {
	w.must(w.cfg.CanRepair && w.audit == nil && !w.repair && w.open && w.caught, "an audit that must not be, or a second one")
	w.must(e == machine.Audit{Committed: w.committed, Owed: w.stored} && e.Owed.Why != 0 && !w.unproven, "an audit of what is not owed")
	w.must(w.saw["audit timer, this run"] > 0, "an audit without a pause")
	w.saw["audit timer, this run"] = 0
	w.audit, w.before, w.injects, w.overtake = &e, w.log, 0, false
}

func (w *world) stop(e machine.Stop) {
	w.must(e.Cursor == w.committed, "Stop has another cursor")
	w.stopped, w.stopErr = true, e.Err
	var late *machine.ShutdownError
	var failed *machine.FailStopError
	switch {
	case w.deadline:
		waiting, _ := w.waiting()
		if w.flush != nil {
			waiting += w.flush.Updates
		}
		w.must(errors.As(e.Err, &late) && late.Pending == waiting && late.Committed == w.committed, "a deadline counts wrong")
		w.note(w.repair, "a deadline beside a repair")
		w.note(w.flush != nil && len(w.flush.Segments) == 0, "a deadline beside a commit of a cursor alone")
		return
	case errors.As(e.Err, &failed):
		w.must(failed.Failures == w.cfg.MaxFailures && w.failures == w.cfg.MaxFailures, "a fail-stop counts wrong")
		w.note(len(w.flush.Segments) == 0, "a commit of a cursor alone fails too often")
		w.note(w.takes, "a repair's cursor can't be committed")
		return
	case errors.Is(e.Err, errFatal):
		w.note(len(w.flush.Segments) == 0, "a commit of a cursor alone fails for good")
		return
	}
	w.must(w.flushed == len(w.order) && w.flush == nil && w.settled(), "a stop leaves something behind")
	w.must(w.receive == nil, "a stop does not wait for the receive that is out")
	switch e.Err {
	case nil:
		w.must(w.shutdown, "a clean stop that nobody asked for")
		w.note(w.repair, "a shutdown beside a repair")
		w.note(w.audit != nil, "a shutdown beside an audit")
	case errFinal:
		w.must(w.stopping, "a repair's error out of nothing")
		w.note(w.memo, "a refused repair leaves the memo")
	default:
		w.must(e.Err == errBoom && !w.cfg.CanRepair && w.end != machine.EndTransient, "a stop that must not be")
	}
}
