package fold

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

const metaCount = "count."

// rowCounter is a table's number of rows. It costs a read for each update of the table, so it begins when somebody
// asks, and stays, in the store's meta records, from then on.
type rowCounter struct {
	commits *sync.Mutex // held while a batch goes into the store; guards the rest
	allowed func() bool // false while the fold hydrates: each question is then a scan
	table   string      // the message's full name: two tables may share the short one

	counting bool // deltas are kept
	known    bool // n is the number
	n        int64
	delta    int64 // of the batch that is being committed
}

// load reads the number that the store keeps.
func (c *rowCounter) load(g store.Getter) error {
	b, err := store.Meta(g, metaCount+c.table)
	if err != nil || b == nil {
		return err
	}
	n, size := binary.Uvarint(b)
	if size != len(b) {
		return fmt.Errorf("%w: row count of table %s", store.ErrCorrupt, c.table)
	}
	c.n, c.counting, c.known = int64(n), true, true
	return nil
}

// get is the number of rows; scan counts them in one view.
func (c *rowCounter) get(s store.Store, scan func(store.Getter) (uint64, error)) (uint64, error) {
	c.commits.Lock()
	if c.known {
		defer c.commits.Unlock()
		return uint64(c.n), nil
	}
	begin := c.allowed() && !c.counting
	snap, err := s.Snapshot()
	if err == nil && begin {
		c.counting, c.n = true, 0
	}
	c.commits.Unlock()
	if err != nil {
		return 0, err
	}
	n, err := scan(snap)
	closeErr := snap.Close()
	if err == nil {
		err = closeErr
	}
	if begin {
		c.commits.Lock()
		defer c.commits.Unlock()
		c.counting, c.known = err == nil, err == nil
		c.n += int64(n)
	}
	return n, err
}

// ops works out what the segments do to the number, and appends the record to commit. It is called under commits.
func (c *rowCounter) ops(g store.Getter, segs []*segment, places func(i int) []int32, ops []store.Op) ([]store.Op, error) {
	c.delta = 0
	if !c.counting {
		return ops, nil
	}
	batch := map[string]bool{} // whether the key has a row after the updates so far
	for i, s := range segs {
		for _, at := range places(i) {
			u := &s.updates[at]
			had, seen := batch[u.Key]
			if !seen {
				old, err := acceptedRecord(g, u.Key)
				if err != nil {
					return ops, err
				}
				had = old.ok
			}
			has := had
			switch {
			case u.Op == kv.OpPut && !u.Rejected:
				has = true
			case endsRow(u):
				has = false
			}
			switch {
			case has && !had:
				c.delta++
			case had && !has:
				c.delta--
			}
			batch[u.Key] = has
		}
	}
	if c.known {
		ops = append(ops, store.Op{Key: store.MetaKey(metaCount + c.table), Value: binary.AppendUvarint(nil, uint64(c.n+c.delta))})
	}
	return ops, nil
}

// endsRow reports whether there is no row after an update that changes one.
func endsRow(u *kv.Update) bool { return u.Rejected || u.Op.Removes() }

// applied takes the batch's delta once it is committed. It is called under commits.
func (c *rowCounter) applied() { c.n, c.delta = c.n+c.delta, 0 }
