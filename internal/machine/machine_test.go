package machine_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/runtime/kv"
)

var errBoom = errors.New("boom")

// world plays the shell and the log: it answers effects with any outcome that could happen, in any order, and checks
// what the machine promises.
type world struct {
	t *rapid.T
	m *machine.M

	cfg     machine.Config
	log     uint64 // revisions written so far
	watchAt uint64 // what the open watch has delivered; only valid while open
	open    bool
	opening *machine.OpenWatch
	receive *machine.Receive
	hooks   *machine.Flush
	store   *machine.Flush
	timers  map[machine.Timer]bool
	repair  bool

	received  map[uint64]machine.Segment
	order     []uint64 // segment IDs in delivery order
	seen      uint64   // the revision that they reach
	flushed   int      // how many of them are committed
	inFlush   int      // how many after those are in the flush in progress
	hooksDone bool     // of the flush in progress
	committed kv.Cursor
	stopped   bool
	stopErr   error
	hydrated  int
	nextID    uint64
	failures  int
}

func newWorld(t *rapid.T, cfg machine.Config, resume kv.Cursor) *world {
	w := &world{t: t, cfg: cfg, timers: map[machine.Timer]bool{}, received: map[uint64]machine.Segment{}, committed: resume, log: resume.Revision(), seen: resume.Revision()}
	m, effects := machine.New(cfg, resume)
	w.m = m
	w.carry(effects)
	return w
}

func (w *world) step(in machine.Input) {
	w.carry(w.m.Step(in, nil))
	if got := w.m.Committed(); got != w.committed {
		w.t.Fatalf("machine says committed %v, effects say %v", got, w.committed)
	}
}

func (w *world) carry(effects []machine.Effect) {
	for _, e := range effects {
		if w.stopped {
			w.t.Fatalf("effect %#v after Stop", e)
		}
		w.one(e)
	}
}

func (w *world) one(e machine.Effect) {
	switch e := e.(type) {
	case machine.OpenWatch:
		w.must(!w.open && w.opening == nil, "a second watch is opened")
		w.must(e.After.Revision() == w.seen, "a watch does not resume after what was received")
		w.opening = &e
	case machine.CloseWatch:
		w.open = false
	case machine.Receive:
		w.must(w.open && w.receive == nil, "a receive without a watch, or a second one")
		w.must(!e.Gather || w.hydrated == 0, "a receive gathers after the fold is hydrated")
		w.checkRoom(e)
		w.receive = &e
	case machine.RunHooks:
		w.must(w.store == nil && w.hooks == nil, "hooks run beside another flush")
		w.must(!w.hooksDone, "hooks that have returned run again")
		w.checkNext(e.Flush)
		w.hooks, w.inFlush = &e.Flush, len(e.Flush.Segments)
	case machine.ApplyStore:
		w.must(w.hooks == nil && w.store == nil, "a store apply beside another flush")
		w.must(w.hooksDone, "a store apply before the hooks have returned")
		w.checkNext(e.Flush)
		w.store = &e.Flush
	case machine.Committed:
		w.must(w.hooksDone, "committed before the hooks have returned")
		w.must(e.Flush.Cursor.Revision() >= w.committed.Revision(), "the cursor goes back")
		w.must(e.Moved == (e.Flush.Cursor != w.committed), "Moved is wrong")
		w.committed, w.hooksDone, w.failures = e.Flush.Cursor, false, 0
		w.flushed, w.inFlush = w.flushed+len(e.Flush.Segments), 0
		w.checkCovered()
	case machine.Hydrated:
		w.hydrated++
		w.must(w.hydrated == 1, "hydrated twice")
	case machine.Repair:
		w.must(w.flushed == len(w.order), "repair begins with updates that are not committed")
		w.repair = true
	case machine.Arm:
		w.timers[e.Timer] = true
	case machine.Stop:
		w.must(e.Cursor == w.committed, "Stop has another cursor")
		w.stopped, w.stopErr = true, e.Err
		if e.Err == nil {
			w.must(w.flushed == len(w.order), "a clean stop leaves received updates behind")
			w.must(w.receive == nil, "a clean stop does not wait for the receive that is out")
		}
	}
}

func (w *world) must(ok bool, what string) {
	if !ok {
		w.t.Fatalf("%s", what)
	}
}

// checkNext: a flush holds the next segments that are not committed, in order.
func (w *world) checkNext(f machine.Flush) {
	for i, id := range f.Segments {
		w.must(w.flushed+i < len(w.order) && w.order[w.flushed+i] == id, "a flush is out of order")
	}
	w.must(len(f.Segments) > 0, "an empty flush")
	w.must(!f.Bulk || w.hydrated == 0, "a bulk flush after the fold is hydrated")
	updates, bytes := w.cfg.MaxUpdates, w.cfg.MaxBytes
	if f.Bulk {
		updates, bytes = w.cfg.BulkUpdates, w.cfg.BulkBytes
	}
	w.must(len(f.Segments) == 1 || f.Updates <= updates && f.Bytes <= bytes, "a flush is larger than its bound")
}

// checkRoom: more is asked for only while what waits for a flush is below the queue's bounds, or those of one flush.
func (w *world) checkRoom(r machine.Receive) {
	waiting, bytes := 0, 0
	for _, id := range w.order[w.flushed+w.inFlush:] {
		waiting, bytes = waiting+w.received[id].Updates, bytes+w.received[id].Bytes
	}
	w.must(waiting < max(r.Max, w.cfg.QueueUpdates) && bytes < max(r.MaxBytes, w.cfg.QueueBytes), "a receive is asked for with a full queue")
}

// checkCovered: the cursor names nothing that was received and is not committed.
func (w *world) checkCovered() {
	for _, id := range w.order[w.flushed:] {
		s := w.received[id]
		if s.High.Rank() != 0 && s.High.Rank() <= w.committed.Revision() {
			w.t.Fatalf("cursor %v covers the update %v, which is not committed", w.committed, s.High)
		}
	}
}

// moves are what can happen now.
func (w *world) moves() []func() {
	var out []func()
	add := func(ok bool, f func()) {
		if ok {
			out = append(out, f)
		}
	}
	add(true, func() { w.log += uint64(rapid.IntRange(1, 3).Draw(w.t, "written")) })
	add(w.opening != nil, w.answerOpen)
	add(w.receive != nil, w.answerReceive)
	add(w.hooks != nil, w.answerHooks)
	add(w.store != nil, w.answerStore)
	add(w.repair, func() {
		w.repair = false
		w.step(machine.Repaired{Cursor: w.committed})
	})
	for _, timer := range []machine.Timer{machine.TimerOpen, machine.TimerRetry, machine.TimerWindow} {
		add(w.timers[timer], func() {
			delete(w.timers, timer)
			w.step(machine.TimerFired{Timer: timer})
		})
	}
	return out
}

func (w *world) answerOpen() {
	after := w.opening.After
	w.opening = nil
	switch rapid.IntRange(0, 9).Draw(w.t, "open") {
	case 0, 1:
		w.step(machine.OpenFailed{End: machine.EndTransient, Err: errBoom})
	case 2:
		w.step(machine.OpenFailed{End: machine.EndExpired, Err: errBoom})
	default:
		w.open, w.watchAt = true, after.Revision()
		w.step(machine.Opened{Head: w.log})
	}
}

func (w *world) answerReceive() {
	r := *w.receive
	w.receive = nil
	if !w.open || rapid.IntRange(0, 9).Draw(w.t, "receive") == 0 {
		end := machine.End(rapid.IntRange(0, 2).Draw(w.t, "end"))
		w.step(machine.WatchEnded{End: end, Err: errBoom})
		return
	}
	w.nextID++
	s := machine.Segment{ID: w.nextID, Updates: int(min(w.log-w.watchAt, uint64(rapid.IntRange(0, min(r.Max, max(r.MaxBytes/10, 1))).Draw(w.t, "n"))))}
	if s.Updates > 0 {
		w.watchAt += uint64(s.Updates)
		s.High, s.Bytes = kv.Revision(w.watchAt), s.Updates*10
		if rapid.IntRange(0, 9).Draw(w.t, "unknown") == 0 {
			s.High = kv.Version{}
		}
	}
	if w.watchAt == w.log {
		s.Frontier = w.log
	}
	w.received[s.ID] = s
	w.order = append(w.order, s.ID)
	w.seen = max(w.seen, s.High.Rank(), s.Frontier)
	w.step(machine.Received{Segment: s})
}

func (w *world) fails() (error, bool) {
	if w.failures+1 < w.cfg.MaxFailures && rapid.IntRange(0, 3).Draw(w.t, "fails") == 0 {
		w.failures++
		return errBoom, false
	}
	if rapid.IntRange(0, 199).Draw(w.t, "fatal") == 0 {
		return errBoom, true
	}
	return nil, false
}

func (w *world) answerHooks() {
	w.hooks = nil
	err, fatal := w.fails()
	w.hooksDone = err == nil
	if err == nil {
		w.failures = 0
	}
	w.step(machine.HooksDone{Err: err, Fatal: fatal})
}

func (w *world) answerStore() {
	w.store = nil
	err, fatal := w.fails()
	w.step(machine.StoreDone{Err: err, Fatal: fatal})
}

func config(t *rapid.T) machine.Config {
	c := machine.Config{
		HasStore: rapid.Bool().Draw(t, "store"), Windowed: rapid.Bool().Draw(t, "windowed"), CanRepair: rapid.Bool().Draw(t, "repair"),
		MaxUpdates: rapid.IntRange(1, 4).Draw(t, "max"), BulkUpdates: rapid.IntRange(1, 8).Draw(t, "bulk"),
		QueueUpdates: rapid.IntRange(1, 8).Draw(t, "queue"), MaxFailures: 4,
	}
	for _, bytes := range []*int{&c.MaxBytes, &c.BulkBytes, &c.QueueBytes} {
		*bytes = rapid.SampledFrom([]int{15, 35, 1000}).Draw(t, "bytes")
	}
	return c
}

// TestAnyOrder lets everything that can happen happen in any order, then asks for a shutdown and wants a stop.
func TestAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, config(t), kv.CursorAt(uint64(rapid.IntRange(0, 3).Draw(t, "resume"))))
		for range rapid.IntRange(0, 120).Draw(t, "steps") {
			if w.stopped {
				return
			}
			moves := w.moves()
			moves[rapid.IntRange(0, len(moves)-1).Draw(t, "move")]()
		}
		if w.stopped {
			return
		}
		w.step(machine.Shutdown{})
		for i := 0; !w.stopped; i++ {
			moves := w.moves()[1:] // nothing more is written
			w.must(len(moves) > 0, "the machine waits for nothing, and has not stopped")
			w.must(i < 1000, "the machine does not stop")
			moves[i%len(moves)]()
		}
	})
}

// TestCatchesUp: without faults everything written is committed, and the fold is hydrated.
func TestCatchesUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := config(t)
		m, effects := machine.New(cfg, kv.Cursor{})
		head := uint64(rapid.IntRange(0, 40).Draw(t, "head"))
		at, id, hydrated := uint64(0), uint64(0), false
		for n := 0; m.Committed().Revision() < head || !hydrated; n++ {
			if n > 1000 || len(effects) == 0 {
				t.Fatalf("stuck at %v of %d, hydrated %v", m.Committed(), head, hydrated)
			}
			var inputs []machine.Input
			for _, e := range effects {
				switch e := e.(type) {
				case machine.OpenWatch:
					inputs = append(inputs, machine.Opened{Head: head})
				case machine.Receive:
					k := min(uint64(e.Max), head-at, 3)
					if k == 0 {
						continue // blocks: there is nothing
					}
					at, id = at+k, id+1
					s := machine.Segment{ID: id, Updates: int(k), High: kv.Revision(at)}
					inputs = append(inputs, machine.Received{Segment: s})
				case machine.RunHooks:
					inputs = append(inputs, machine.HooksDone{})
				case machine.ApplyStore:
					inputs = append(inputs, machine.StoreDone{})
				case machine.Arm:
					inputs = append(inputs, machine.TimerFired{Timer: e.Timer})
				case machine.Hydrated:
					hydrated = true
				}
			}
			effects = nil
			for _, in := range inputs {
				effects = m.Step(in, effects)
			}
		}
	})
}

func flushOnce(t *testing.T, m *machine.M, effects []machine.Effect, in ...machine.Input) []machine.Effect {
	t.Helper()
	for _, i := range in {
		effects = m.Step(i, effects[:0])
	}
	return effects
}

func has[E machine.Effect](effects []machine.Effect) (e E, ok bool) {
	for _, x := range effects {
		if e, ok = x.(E); ok {
			return e, true
		}
	}
	return e, false
}

// TestFailStop: the 16th failure in a row of one flush's store apply stops with a typed error, hooks not run again.
func TestFailStop(t *testing.T) {
	cfg := machine.Config{HasStore: true, MaxUpdates: 10, MaxBytes: 100, BulkUpdates: 10, BulkBytes: 100, QueueUpdates: 10, QueueBytes: 100, MaxFailures: 16}
	m, effects := machine.New(cfg, kv.CursorAt(5))
	effects = flushOnce(t, m, effects, machine.Opened{Head: 6}, machine.Received{Segment: machine.Segment{ID: 1, Updates: 1, High: kv.Revision(6)}}, machine.HooksDone{})
	for n := 1; ; n++ {
		if _, ok := has[machine.ApplyStore](effects); !ok {
			t.Fatalf("no store apply before failure %d: %v", n, effects)
		}
		effects = m.Step(machine.StoreDone{Err: errBoom}, effects[:0])
		if stop, ok := has[machine.Stop](effects); ok {
			var fs *machine.FailStopError
			if n != 16 || !errors.As(stop.Err, &fs) || fs.Failures != 16 || fs.Cursor != kv.CursorAt(5) || !errors.Is(stop.Err, errBoom) || fs.What != machine.FailedStore {
				t.Fatalf("after %d failures: %v", n, stop.Err)
			}
			return
		}
		arm, ok := has[machine.Arm](effects)
		if !ok || arm.Timer != machine.TimerRetry || arm.Attempt != n-1 {
			t.Fatalf("failure %d armed %+v", n, arm)
		}
		effects = m.Step(machine.TimerFired{Timer: machine.TimerRetry}, effects[:0])
		if _, again := has[machine.RunHooks](effects); again {
			t.Fatal("hooks run again after a store failure")
		}
	}
}

// TestBulkEndsWithTheHydrate: what is far behind is gathered, and nothing after it has caught up.
func TestBulkEndsWithTheHydrate(t *testing.T) {
	cfg := machine.Config{MaxUpdates: 1, MaxBytes: 100, BulkUpdates: 4, BulkBytes: 400, QueueUpdates: 1, QueueBytes: 100, MaxFailures: 16}
	m, effects := machine.New(cfg, kv.CursorAt(5))
	effects = flushOnce(t, m, effects, machine.Opened{Head: 9})
	if r, ok := has[machine.Receive](effects); !ok || r != (machine.Receive{Max: 4, MaxBytes: 400, Gather: true}) {
		t.Fatalf("far behind: %+v", r)
	}
	flushOnce(t, m, effects, machine.Received{Segment: machine.Segment{ID: 1, Updates: 4, High: kv.Revision(9)}}, machine.HooksDone{})
	effects = m.Step(machine.Received{Segment: machine.Segment{ID: 2, Updates: 1, High: kv.Revision(10)}}, nil)
	if r, ok := has[machine.RunHooks](effects); !ok || r.Flush.Bulk {
		t.Errorf("caught up: %+v", r)
	}
	if r, ok := has[machine.Receive](effects); !ok || r != (machine.Receive{Max: 1, MaxBytes: 100}) {
		t.Errorf("caught up: %+v", r)
	}
}

// TestUnknownRevision: an update of unknown revision is flushed and moves nothing.
func TestUnknownRevision(t *testing.T) {
	cfg := machine.Config{MaxUpdates: 10, MaxBytes: 100, BulkUpdates: 10, BulkBytes: 100, QueueUpdates: 10, QueueBytes: 100, MaxFailures: 16}
	m, effects := machine.New(cfg, kv.CursorAt(5))
	effects = flushOnce(t, m, effects, machine.Opened{Head: 5}, machine.Received{Segment: machine.Segment{ID: 1, Updates: 1}}, machine.HooksDone{})
	c, ok := has[machine.Committed](effects)
	if !ok || c.Moved || m.Committed() != kv.CursorAt(5) {
		t.Fatalf("committed %+v, cursor %v", c, m.Committed())
	}
}

// TestMemoSurvives: the cursor's memo is carried, with the time of the message that moved it.
func TestMemoSurvives(t *testing.T) {
	cfg := machine.Config{MaxUpdates: 10, MaxBytes: 100, BulkUpdates: 10, BulkBytes: 100, QueueUpdates: 10, QueueBytes: 100, MaxFailures: 16}
	resume := kv.Cursor{Version: kv.Revision(5), SeenEvicting: true, WrittenAt: 1}
	m, effects := machine.New(cfg, resume)
	effects = flushOnce(t, m, effects, machine.Opened{Head: 9}, machine.Received{Segment: machine.Segment{ID: 1, Updates: 1, High: kv.Revision(6), HighMillis: 77}}, machine.HooksDone{})
	if want := (kv.Cursor{Version: kv.Revision(6), SeenEvicting: true, WrittenAt: 77}); m.Committed() != want {
		t.Fatalf("cursor %+v, want %+v", m.Committed(), want)
	}
	flushOnce(t, m, effects, machine.Received{Segment: machine.Segment{ID: 2, Updates: 1, High: kv.Revision(7), HighMillis: 78, Frontier: 9}}, machine.HooksDone{})
	if want := (kv.Cursor{Version: kv.Revision(9), SeenEvicting: true}); m.Committed() != want {
		t.Fatalf("cursor %+v after a frontier, want %+v", m.Committed(), want)
	}
}

func TestBackoff(t *testing.T) {
	want := []int64{50, 100, 200, 400, 800, 1600, 3200, 5000, 5000}
	for i, ms := range want {
		if got := machine.Backoff(i).Milliseconds(); got != ms {
			t.Errorf("Backoff(%d) = %d ms, want %d", i, got, ms)
		}
	}
	if got := machine.Backoff(-1).Milliseconds(); got != 50 {
		t.Errorf("Backoff(-1) = %d ms, want 50", got)
	}
	if got := machine.Backoff(1 << 40).Milliseconds(); got != 5000 {
		t.Errorf("Backoff(huge) = %d ms, want 5000", got)
	}
}
