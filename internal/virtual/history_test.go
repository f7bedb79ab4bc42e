package virtual

import (
	"fmt"

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
}

// history is everything that was written, in order. It is filled before others read it.
type history struct {
	all     []written
	byRev   map[uint64]int
	latest  map[string]uint64
	evicts  bool // values age out
	purges  bool // delete markers were purged
	markers bool // the server writes messages of its own, at revisions that nobody was told
}

func newHistory() *history { return &history{byRev: map[uint64]int{}, latest: map[string]uint64{}} }

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

// truth is every write minus every delete, up to a revision: the node of each domain.
func (h *history) truth(upTo uint64) map[string]written {
	rows := map[string]written{}
	for _, w := range h.all {
		switch {
		case w.rev > upTo:
			return rows
		case w.delete:
			delete(rows, w.key)
		default:
			rows[w.key] = w
		}
	}
	return rows
}
