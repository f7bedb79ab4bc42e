package fold

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
)

// stillLoop is a loop whose steps a test takes one by one.
func stillLoop(resume kv.Cursor) *loop {
	l := &loop{cfg: loopConfig{log: slog.New(slog.DiscardHandler), sink: deafSink{}}}
	l.m, _ = machine.New(machine.Config{HasStore: true, CanRepair: true, MaxUpdates: 1, MaxBytes: 1}, resume, kv.Owed{})
	return l
}

// deafSink takes updates as they are.
type deafSink struct{ sink }

func (deafSink) prepare(*segment, int) {}

// scriptedWatch tells what it has, and then that it is lost.
type scriptedWatch struct {
	info  kv.LogInfo
	tells []kv.Delivery
}

func (w *scriptedWatch) Info() kv.LogInfo { return w.info }

func (w *scriptedWatch) Next(_ context.Context, into kv.Delivery, _, _ int) (kv.Delivery, error) {
	if len(w.tells) == 0 {
		return into, kv.ErrWatchLost
	}
	d := w.tells[0]
	w.tells = w.tells[1:]
	d.Updates = append(into.Updates, d.Updates...)
	return d, nil
}

func (w *scriptedWatch) Close(context.Context) error { return nil }

// TestAnAuditThatIsOverChangesNothing: what it had on its way is refused, and what the repair after it sends is not.
func TestAnAuditThatIsOverChangesNothing(t *testing.T) {
	l := stillLoop(kv.CursorAt(5))
	_, l.mending.stopAudit = context.WithCancel(t.Context())
	l.mending.audit = 1
	if err := l.overtaken(1); err != nil {
		t.Errorf("an audit that is under way: %v", err)
	}
	l.endAudit()
	if err := l.overtaken(1); !errors.Is(err, errAuditOver) {
		t.Errorf("an audit that is over: %v", err)
	}
	if err := l.overtaken(0); err != nil {
		t.Errorf("a repair: %v", err)
	}
	if l.mending.stopAudit != nil {
		t.Error("it can be ended twice")
	}
}

// TestAnAuditHeedsAnEvictionToldMeanwhile: one that began before the fold heard that retention took values settles nothing,
// and one that knew it does.
func TestAnAuditHeedsAnEvictionToldMeanwhile(t *testing.T) {
	l := stillLoop(kv.Cursor{Version: kv.Revision(5), SeenEvicting: true})
	l.mending.asked = kv.CursorAt(5)
	if in, ok := l.audited(machine.Audited{Before: 5}, event{}).(machine.Audited); !ok || !errors.Is(in.Err, errEvictedSince) {
		t.Errorf("unaware: %+v", in)
	}
	l.mending.asked.SeenEvicting = true
	if in, ok := l.audited(machine.Audited{Before: 5}, event{}).(machine.Audited); !ok || in.Err != nil {
		t.Errorf("aware: %+v", in)
	}
}

// TestNoWatchStoodWhereARepairGoes: what the last watch knew of its place is of no use at another cursor.
func TestNoWatchStoodWhereARepairGoes(t *testing.T) {
	l := stillLoop(kv.CursorAt(5))
	lost, stood := time.Unix(7, 0), kv.Stood{Revision: 5, UnixNano: 8}
	l.lostAt, l.stood = lost, stood
	l.takeOver()
	if l.lostAt != lost || l.stood != stood {
		t.Error("forgotten, and no repair is taken over")
	}
	l.mending.known = &kv.Incarnation{CreatedUnixNano: 9}
	l.takeOver()
	if !l.lostAt.IsZero() || l.stood != (kv.Stood{}) || l.log.get().CreatedUnixNano != 9 || l.mending.known != nil {
		t.Errorf("lost %v, stood %+v, log %+v", l.lostAt, l.stood, l.log.get())
	}
}

// TestHeadIsOfTheLogThatIsThere: a re-list may be of another log, whose end is lower; a resume is of the same.
func TestHeadIsOfTheLogThatIsThere(t *testing.T) {
	l := stillLoop(kv.CursorAt(5))
	open := func(after kv.Cursor, head uint64) {
		l.take(event{in: machine.Opened{Head: head}, watch: &openWatch{w: &scriptedWatch{}, after: after}})
	}
	open(kv.Cursor{}, 9)
	open(kv.CursorAt(5), 7) // an answer of a replica that is behind
	if l.head != 9 {
		t.Errorf("head %d, want 9", l.head)
	}
	open(kv.Cursor{}, 3)
	if l.head != 3 {
		t.Errorf("head %d, want the new log's 3", l.head)
	}
}

// TestWhatWasToldBeforeAnErrorCounts: a frontier moves the cursor, and may leave something owed, though nothing else came
// before the watch was lost.
func TestWhatWasToldBeforeAnErrorCounts(t *testing.T) {
	l := stillLoop(kv.CursorAt(5))
	w := &scriptedWatch{info: kv.LogInfo{Last: 9}, tells: []kv.Delivery{{Frontier: 9, Pending: 1}}}
	unsealed := func() protocol.MarkerRules { return protocol.MarkerRules{Purge: true} }
	ow := &openWatch{w: w, told: 5, gaps: newGaps(kv.OpenRequest{After: kv.CursorAt(5)}, w.info, unsealed)}
	ask := machine.Receive{Max: 100, MaxBytes: 1 << 20, Gather: true}
	in, ok := l.next(t.Context(), ow, ask).in.(machine.Received)
	if !ok || in.Segment.Frontier != 9 || in.Segment.Owes != kv.OwesMarkers {
		t.Errorf("received: %t, %+v", ok, in.Segment)
	}
	if end, ok := l.next(t.Context(), ow, ask).in.(machine.WatchEnded); !ok || !errors.Is(end.Err, kv.ErrWatchLost) {
		t.Errorf("ended: %t, %v", ok, end.Err)
	}
}

// TestTwoCountsAtOnce: the second one scans for itself, and what the first one began to keep stays right.
func TestTwoCountsAtOnce(t *testing.T) {
	s, err := logstore.Open(filepath.Join(t.TempDir(), "fold.log"), logstore.Options{Durability: logstore.None})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	c := rowCounter{commits: &sync.Mutex{}, allowed: func() bool { return true }, table: "x.v1.X"}
	three := func(store.Getter) (uint64, error) { return 3, nil }
	within := func(store.Getter) (uint64, error) {
		if n, err := c.get(s, three); n != 3 || err != nil {
			t.Errorf("the second: %d, %v", n, err)
		}
		return 3, nil
	}
	if n, err := c.get(s, within); n != 3 || err != nil {
		t.Errorf("the first: %d, %v", n, err)
	}
	never := func(store.Getter) (uint64, error) { return 0, errors.New("scanned again") }
	if n, err := c.get(s, never); n != 3 || err != nil {
		t.Errorf("kept: %d, %v", n, err)
	}
}
