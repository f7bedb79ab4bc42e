package main

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/typedfold/fold/runtime/store"
)

const (
	// intervalFlush is the flush interval of stores whose durability is an interval.
	intervalFlush = 2 * time.Millisecond
	storeDir      = "stores/one"
)

// plan says when the power is cut.
type plan struct {
	// every is one cut for so many operations that change the disk, and syncs one for so many syncs.
	every, syncs int
	// percents are how much of what was not synced is kept. Where it is neither 0 nor 100, each seed keeps another part.
	percents []int
	seeds    []uint64
	// nested is one disk in so many that are looked at which is opened with power cuts of its own; 0 is none.
	nested int
	// op, where it is not 0, is the one operation to cut the power before.
	op int
}

func (p *plan) due(op, syncs int, sync bool) bool {
	switch {
	case p.op != 0:
		return op == p.op
	case sync && p.syncs != 0 && syncs%p.syncs == 0:
		return true
	}
	return p.every != 0 && op%p.every == 0
}

// moment is what a power cut before one operation left.
type moment struct {
	disk    disk
	op      int
	what    string
	percent int
	seed    uint64
	// durable is the revision that had been promised to be, and no batch past begun had been begun.
	durable, begun uint64
	exports        []export
}

func (m *moment) String() string {
	return fmt.Sprintf("operation %d, %s, with %d%% of what was not synced", m.op, m.what, m.percent)
}

// export is a copy that the store was told to write.
type export struct {
	dir      string
	revision uint64
	done     bool
}

// watch cuts the power of one disk as its plan says. It is safe for concurrent use.
type watch struct {
	plan plan
	disk disk
	out  func(moment)

	mu             sync.Mutex
	op, syncs      int
	store          store.Store
	durable, begun uint64
	exports        []export
}

// tell is the disk's teller.
func (w *watch) tell(op, path string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.op++
	if op == opSync {
		w.syncs++
	}
	if w.plan.due(w.op, w.syncs, op == opSync) {
		w.cut(op + " of " + path)
	}
	return nil
}

// cut takes what a power cut now leaves, in each of the plan's forms. The caller holds mu.
func (w *watch) cut(what string) {
	if w.store != nil {
		w.durable = max(w.durable, w.store.Durable().Revision()) // before the cut: it only grows
	}
	for _, percent := range w.plan.percents {
		for i, seed := range w.plan.seeds {
			if i > 0 && (percent == 0 || percent == 100) {
				break // nothing is left to chance
			}
			rng := rand.New(rand.NewPCG(seed, uint64(w.op)<<8|uint64(percent)))
			w.out(moment{
				disk: w.disk.cut(percent, rng), op: w.op, what: what, percent: percent, seed: seed,
				durable: w.durable, begun: w.begun, exports: append([]export(nil), w.exports...),
			})
		}
	}
}

// end cuts the power once more, after the last operation.
func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.op++
	if w.plan.op == 0 || w.plan.op == w.op {
		w.cut("end")
	}
}

func (w *watch) begin(n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun = n
}

// promised notes what the store is bound to have made durable by what it returned.
func (w *watch) promised(n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.durable = max(w.durable, n)
}

// uses notes the store whose word on what is durable counts; nil for none.
func (w *watch) uses(s store.Store) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.store = s
}

// exporting notes an export, and exported that it is done.
func (w *watch) exporting(dir string, revision uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.exports = append(w.exports, export{dir: dir, revision: revision})
}

func (w *watch) exported() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.exports[len(w.exports)-1].done = true
}
