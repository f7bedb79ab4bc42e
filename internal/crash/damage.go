package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
	"github.com/typedfold/fold/runtime/store/storetest"
)

// written is a log, the revision at the end of each of its groups, and where these ends are.
type written struct {
	truth     *truth
	data      []byte
	ends      []int
	revisions []uint64
}

const logPath = storeDir + "/log"

// writeLog is a log with a base at revision base and a group for each later batch up to last.
func writeLog(ctx context.Context, t *truth, d logstore.Durability, base, last uint64) (*written, error) {
	tree := newTree()
	s, err := logstore.Open(logPath, logstore.Options{Durability: d, CompactBytes: 1 << 40, FS: treeFS{tree: tree}})
	if err != nil {
		return nil, err
	}
	w := &written{truth: t}
	for n := uint64(1); n <= last; n++ {
		b, c := t.batch(n)
		if err := s.Apply(ctx, b, c); err != nil {
			return nil, err
		}
		if n == base {
			if err := s.Settle(ctx); err != nil {
				return nil, err
			}
		}
		if n >= base {
			w.revisions = append(w.revisions, n)
			w.ends = append(w.ends, len(tree.file(logPath)))
		}
	}
	w.data = bytes.Clone(tree.file(logPath))
	return w, s.Close()
}

// disk is one with data as its log.
func (w *written) disk(data []byte) *logDisk {
	d := newLogDisk()
	dir := d.tree.root
	for _, name := range []string{"stores", "one"} {
		dir.names[name] = newDir()
		dir = dir.names[name]
	}
	dir.names["log"] = &node{data: bytes.Clone(data), synced: bytes.Clone(data)}
	return d
}

// look opens a damaged log. It is refused, with the file as it was, or is the fold at one of the revisions from low to
// high. refused says which.
func (w *written) look(data []byte, low, high uint64) (refused bool, err error) {
	d := w.disk(data)
	s, err := d.open(storeDir, storetest.ModeNone, nil)
	if err != nil {
		if !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrFormat) {
			return true, fmt.Errorf("refused by no reason of a damaged file: %w", err)
		}
		if !bytes.Equal(d.tree.file(logPath), data) {
			return true, errors.New("a refused file was changed")
		}
		return true, nil
	}
	return false, errors.Join(w.truth.checkAt(s, low, high), s.Close())
}

// at is the index of the last group that ends at or before a place; -1 before the base's end.
func (w *written) at(place int) int {
	i := -1
	for i+1 < len(w.ends) && w.ends[i+1] <= place {
		i++
	}
	return i
}

// damage damages logs in all ways.
type damage struct {
	name  string
	line  string // the command that does it again
	seed  uint64
	tally *tally
	deep  bool
	only  string // the one place to damage; else all
}

func (g *damage) replay(place string) string { return g.line + " -place " + place }

// skips reports whether another place is the one to damage.
func (g *damage) skips(place string) bool { return g.only != "" && g.only != place }

// placeOf is a place's name in a command: what is done, where, and what else tells it from others there.
func placeOf(what string, at ...any) string {
	for _, a := range at {
		what += fmt.Sprintf(":%v", a)
	}
	return what
}

// judge looks at one damaged log and counts it. must says that only to "open" it is right, or only to "refuse" it.
func (g *damage) judge(w *written, what, place string, data []byte, low, high uint64, must string) {
	if g.skips(place) {
		return
	}
	refused, err := w.look(data, low, high)
	switch {
	case err == nil && refused && must == "open":
		err = errors.New("it was refused")
	case err == nil && !refused && must == "refuse":
		err = errors.New("it opened")
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", place, err)
	}
	name := g.name + ", " + what
	g.tally.clone(name, err, g.replay(place))
	if refused {
		g.tally.note(name + ", refused")
	}
}

func (g *damage) logs(ctx context.Context) {
	t := newTruth(g.seed, false)
	t.narrow = !g.deep
	w, err := writeLog(ctx, t, logstore.Sync, 1, 5)
	if err != nil {
		g.tally.failed(g.name, err, g.line)
		return
	}
	g.cuts(w)
	g.flips(w)
	if w, err = writeLog(ctx, newTruth(g.seed+1, false), logstore.None, 3, 24); err != nil {
		g.tally.failed(g.name, err, g.line)
		return
	}
	g.holes(w)
}

// cuts ends the file at every byte: it is what it was after the last whole group.
func (g *damage) cuts(w *written) {
	for n := range w.data {
		if i := w.at(n); i >= 0 {
			g.judge(w, "cut", placeOf("cut", n), w.data[:n], w.revisions[i], w.revisions[i], "open")
		} else {
			g.judge(w, "cut", placeOf("cut", n), w.data[:n], 0, 0, "refuse")
		}
	}
}

// flips changes one bit of every byte, or all of them one at a time: that is seen, and passes only for a torn write of the
// last batch.
func (g *damage) flips(w *written) {
	last := len(w.ends) - 1
	for n := range w.data {
		for bit := range 8 {
			if !g.deep && bit != n%8 {
				continue
			}
			data := bytes.Clone(w.data)
			data[n] ^= 1 << bit
			must := "refuse"
			if n >= w.ends[last-1] {
				must = "open"
			}
			g.judge(w, "flip", placeOf("flip", n, bit), data, w.revisions[last-1], w.revisions[last-1], must)
		}
	}
}

// holeBlock is the size of what a disk writes as a whole.
const holeBlock = 4096

// holes makes zeros of blocks of a log that was never synced since its base, after each group in turn: it is the fold at
// a revision not before that group's.
func (g *damage) holes(w *written) {
	rng := rand.New(rand.NewPCG(g.seed, 3))
	last := w.revisions[len(w.revisions)-1]
	for i, end := range w.ends {
		first := end / holeBlock
		blocks := (len(w.data)+holeBlock-1)/holeBlock - first
		if i == len(w.ends)-1 {
			break // nothing is left to lose
		}
		subsets := 24
		if g.deep {
			subsets = 400
		}
		for subset := range subsets {
			data := bytes.Clone(w.data)
			lost := rng.Uint64() & rng.Uint64()
			if rng.IntN(3) == 0 {
				lost = 1 << rng.IntN(min(blocks, 64))
			}
			for b := range blocks {
				if b < 64 && lost&(1<<b) != 0 {
					from := max((first+b)*holeBlock, end)
					clear(data[from:min((first+b+1)*holeBlock, len(data))])
				}
			}
			if rng.IntN(2) == 0 {
				data = data[:end+rng.IntN(len(data)-end+1)]
			}
			g.judge(w, "holes", placeOf("holes", end, subset), data, w.revisions[i], last, "open")
		}
	}
}
