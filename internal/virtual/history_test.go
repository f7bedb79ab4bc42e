package virtual

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	foldtestv1 "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1"
	"github.com/typedfold/fold/runtime/kv"
)

// written is one message that the story's writer had acknowledged.
type written struct {
	rev    uint64
	key    string
	node   string
	delete bool
	sent   time.Time // no later than the message's own time
}

// history is everything that was written, in order. It is filled before others read it.
type history struct {
	all     []written
	byRev   map[uint64]int
	latest  map[string]uint64
	keeps   int  // messages of a key
	evicts  bool // values age out
	purges  bool // delete markers were purged
	markers bool // the server writes messages of its own, at revisions that nobody was told
}

func newHistory(keeps int) *history {
	return &history{byRev: map[uint64]int{}, latest: map[string]uint64{}, keeps: max(keeps, 1)}
}

func (h *history) add(w written) {
	h.byRev[w.rev] = len(h.all)
	h.all = append(h.all, w)
	h.latest[w.key] = w.rev
}

func (h *history) at(rev uint64) (written, bool) {
	i, ok := h.byRev[rev]
	if !ok {
		return written{}, false
	}
	return h.all[i], true
}

// supersededBy is the revision of a later write of the same key; 0 is none.
func (h *history) supersededBy(w written) uint64 {
	if l := h.latest[w.key]; l > w.rev {
		return l
	}
	return 0
}

func (h *history) mayVanish(w written) bool { return h.evicts || w.delete && h.purges }

// tells checks one update against what was written at its revision.
func (h *history) tells(u *kv.Update) error {
	rev := u.Version.Rank()
	w, ok := h.at(rev)
	if !ok {
		if h.markers && u.Op == kv.OpAgedOut {
			return nil
		}
		return fmt.Errorf("revision %d, %v of %q: nobody wrote it", rev, u.Op, u.Key)
	}
	if u.Key != w.key || (u.Op == kv.OpPut) == w.delete {
		return fmt.Errorf("revision %d is %v of %q, written was %+v", rev, u.Op, u.Key, w)
	}
	if w.delete {
		return nil
	}
	var m foldtestv1.Route
	if err := proto.Unmarshal(u.Value, &m); err != nil || m.GetNodeId() != w.node {
		return fmt.Errorf("revision %d of %q has node %q, written was %q: %v", rev, u.Key, m.GetNodeId(), w.node, err)
	}
	return nil
}

// mayShow reports whether a fold that is at upTo may have a key's row at that revision, 0 for no row, and which one it should
// have: that of every write minus every delete. Where so many of the key's writes came after upTo that the log keeps its last
// one before no more, that one is nowhere, if it was not delivered in time: the row, or none, may be an older one until a later
// write is there.
func (h *history) mayShow(key string, row, upTo uint64) (want uint64, ok bool) {
	last, later := uint64(0), 0
	for _, w := range h.all {
		switch {
		case w.key != key:
		case w.rev > upTo:
			later++
		case w.delete:
			last, want = w.rev, 0
		default:
			last, want = w.rev, w.rev
		}
	}
	return want, row == want || row < last && later >= h.keeps
}

// mayBegin reports whether the log may have begun at first when its end was last: whatever was written before first had aged
// out, or so many writes of its key had come by then that it was kept no more.
func (h *history) mayBegin(first, last uint64, when time.Time) bool {
	later := map[string]int{}
	for _, w := range slices.Backward(h.all) {
		if w.rev > last {
			continue
		}
		if w.rev < first && later[w.key] < h.keeps && w.sent.Add(maxAge).After(when) {
			return false
		}
		later[w.key]++
	}
	return true
}

// TestMayShow: a row may be an older one only where the log keeps the key's last write no more, whether that was a value or a
// delete, and only until a later write is there.
func TestMayShow(t *testing.T) {
	for _, c := range []struct {
		keeps     int
		row, upTo uint64
		ok        bool
	}{
		{1, 1, 1, true}, {1, 2, 1, false}, {1, 0, 1, true}, // the delete may have taken its place before it was there
		{1, 1, 3, true}, {1, 0, 3, true}, {1, 4, 3, false}, {1, 2, 3, false}, // the value at 4 may have taken the delete's
		{1, 1, 4, true}, {1, 4, 4, true}, {1, 0, 4, true}, {1, 5, 4, false},
		{1, 5, 5, true}, {1, 1, 5, false}, {1, 4, 5, false}, {1, 0, 5, false}, // the last one is there to be delivered
		{2, 1, 3, true}, {2, 0, 3, true}, {2, 4, 3, false}, // two came after the delete
		{2, 4, 4, true}, {2, 1, 4, false}, {2, 0, 4, false},
	} {
		h := newHistory(c.keeps)
		h.add(written{rev: 1, key: "a"})
		h.add(written{rev: 2, key: "a", delete: true})
		h.add(written{rev: 3, key: "b"})
		h.add(written{rev: 4, key: "a"})
		h.add(written{rev: 5, key: "a"})
		if _, ok := h.mayShow("a", c.row, c.upTo); ok != c.ok {
			t.Errorf("%d kept, row %d at cursor %d: %v", c.keeps, c.row, c.upTo, ok)
		}
	}
}

func TestMayBegin(t *testing.T) {
	at := func(d time.Duration) time.Time { return time.Time{}.Add(d) }
	for _, c := range []struct {
		keeps       int
		first, last uint64
		when        time.Duration
		may         bool
	}{
		{1, 1, 1, 0, true}, {1, 2, 1, 0, false}, {1, 2, 1, maxAge, true},
		{1, 2, 2, 0, false}, {1, 2, 3, 0, true}, {1, 3, 3, 0, false}, {1, 3, 3, maxAge, true}, {1, 3, 3, maxAge - 1, false},
		{2, 2, 3, 0, false}, {2, 2, 4, 0, true}, {2, 3, 4, 0, false}, {2, 4, 4, maxAge, false}, {2, 4, 4, maxAge + 1, true},
	} {
		h := newHistory(c.keeps)
		h.add(written{rev: 1, key: "a", sent: at(0)})
		h.add(written{rev: 2, key: "b", sent: at(0)})
		h.add(written{rev: 3, key: "a", sent: at(1)})
		h.add(written{rev: 4, key: "a", sent: at(1)})
		if got := h.mayBegin(c.first, c.last, at(c.when)); got != c.may {
			t.Errorf("%d kept, from %d to %d after %v: %v", c.keeps, c.first, c.last, c.when, got)
		}
	}
}
