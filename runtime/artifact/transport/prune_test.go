package transport

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/protocol"
)

// line publishes artifacts at these revisions, one after the other.
func line(t *testing.T, tr *Transport, revs ...uint64) []exported {
	t.Helper()
	var all []exported
	for _, rev := range revs {
		e := export(t, spec{log: logA, rev: rev})
		wantPublished(t, tr, e, liveAt(logA, 1, rev))
		all = append(all, e)
	}
	return all
}

func TestPruneKeepsTheNewest(t *testing.T) {
	eachStore(t, func(t *testing.T, s objects.Store) {
		tr := transportOn(t, s)
		all := line(t, tr, 1, 2, 3, 4, 5)
		must(t, s.Put(bounded(t), tr.payloadFolder()+"notes.txt", strings.NewReader("somebody's")))
		live := liveAt(logA, 1, 5)
		done, err := tr.Prune(bounded(t), PruneOptions{TTL: time.Hour, Live: live})
		must(t, err)
		if len(done.Names) != 0 || done.Bytes != 0 {
			t.Errorf("pruned %+v within the grace", done)
		}
		later := time.Now().Add(4*time.Hour + time.Minute)
		done, err = tr.Prune(bounded(t), PruneOptions{TTL: time.Hour, Live: live, Now: later})
		must(t, err)
		wantNames(t, done.Names, all[0], all[1])
		if want := all[0].m.PackedSize() + all[1].m.PackedSize(); done.Bytes != want {
			t.Errorf("pruned %d bytes, want %d", done.Bytes, want)
		}
		left, err := tr.Manifests(bounded(t), protocol.Position{Log: logA, Revision: 5})
		must(t, err)
		wantNames(t, names(left), all[4], all[3], all[2])
		wantWhole(t, tr)
		if n := len(keys(t, s)); n != 3*2+2 {
			t.Errorf("left %q", keys(t, s))
		}
		done, err = tr.Prune(bounded(t), pruneOf(live))
		must(t, err)
		wantNames(t, done.Names, all[2], all[3])
		wantPointer(t, tr, all[4])
	})
}

// TestPruneNeedsAPointer: without one that can be read nothing says what can't be published any more.
func TestPruneNeedsAPointer(t *testing.T) {
	s := memory(t)
	tr := transportOn(t, s)
	line(t, tr, 1, 2, 3)
	before := len(keys(t, s))
	for _, pointer := range []struct {
		state string
		spoil func()
	}{
		{"lost", func() {}},
		{"broken", func() { must(t, s.Put(bounded(t), tr.pointerKey(), strings.NewReader("{"))) }},
		{"gone", func() { must(t, s.Delete(bounded(t), tr.pointerKey())) }},
	} {
		pointer.spoil()
		for _, log := range []int64{logA, logB} {
			if log == logA && pointer.state == "lost" {
				continue
			}
			done, err := tr.Prune(bounded(t), pruneOf(liveAt(log, 1, 3)))
			if err != nil || len(done.Names) > 0 {
				t.Errorf("a pointer that is %s: %+v, %v", pointer.state, done, err)
			}
		}
	}
	if now := len(keys(t, s)); now != before-1 {
		t.Errorf("%d objects of %d are left", now, before)
	}
}

func TestPruneWithoutTheLog(t *testing.T) {
	tr := transportOn(t, memory(t))
	all := line(t, tr, 1, 2, 3)
	done, err := tr.Prune(bounded(t), PruneOptions{Keep: 1, Live: unreadable})
	if err != nil || !errors.Is(done.Unread, errLog) || len(done.Names) > 0 {
		t.Errorf("%+v, %v", done, err)
	}
	done, err = tr.Prune(bounded(t), PruneOptions{Keep: 1, Live: unreadable, Now: time.Now().Add(25 * time.Hour)})
	must(t, err)
	wantNames(t, done.Names, all[0], all[1])
}

// TestPruneOfAnotherLog: what is left of a log that is gone goes, however large its revisions, since nobody may publish it
// any more. The names don't tell the log, the manifests do.
func TestPruneOfAnotherLog(t *testing.T) {
	tr := transportOn(t, memory(t))
	old := export(t, spec{log: logA, rev: 900})
	wantPublished(t, tr, old, liveAt(logA, 1, 900))
	fresh := export(t, spec{log: logB, rev: 3})
	wantPublished(t, tr, fresh, liveAt(logB, 1, 1000))
	done, err := tr.Prune(bounded(t), pruneOf(liveAt(logB, 1, 1000)))
	must(t, err)
	wantNames(t, done.Names, old)
	wantPointer(t, tr, fresh)
}

// TestPruneFailsAtEveryCall: after a crash at any call all that is announced is whole, and the next prune finishes.
func TestPruneFailsAtEveryCall(t *testing.T) {
	errCrash := errors.New("crash")
	for at := 0; ; at++ {
		crashed := false
		for _, done := range []bool{false, true} {
			h := &hooked{Store: memory(t)}
			tr := transportOn(t, h.Store)
			all := line(t, tr, 1, 2, 3)
			n := -1
			h.call = func(string, string) fate {
				n++
				switch {
				case n < at:
					return fate{}
				case n == at:
					return fate{err: errCrash, done: done}
				}
				return fate{err: errCrash}
			}
			live := liveAt(logA, 1, 3)
			_, err := transportOn(t, h).Prune(bounded(t), pruneOf(live))
			if n >= at {
				crashed = true
				if !errors.Is(err, errCrash) {
					t.Errorf("call %d: %v", at, err)
				}
			}
			wantPointer(t, tr, all[2])
			wantWhole(t, tr)
			_, err = tr.Prune(bounded(t), pruneOf(live))
			must(t, err)
			if left := keys(t, h.Store); len(left) != 3 {
				t.Errorf("call %d: left %q", at, left)
			}
		}
		if !crashed {
			if at != 14 { // two lists, the pointer, two manifests, the pointer twice, four deletes, three clean-ups
				t.Errorf("%d calls were crashed", at)
			}
			return
		}
	}
}

// TestPruneEndsWhenThePointerMoves: a log that went back lets the pointer go to what a prune has just decided on.
func TestPruneEndsWhenThePointerMoves(t *testing.T) {
	h := &hooked{Store: memory(t)}
	tr, plain := transportOn(t, h), transportOn(t, h.Store)
	all := line(t, plain, 1, 2, 3)
	reads := 0
	h.call = func(op, _ string) fate {
		if op == "read" {
			if reads++; reads == 2 {
				wantPublished(t, plain, all[0], liveAt(logA, 1, 1))
			}
		}
		return fate{}
	}
	done, err := tr.Prune(bounded(t), pruneOf(liveAt(logA, 1, 3)))
	if err != nil || len(done.Names) != 0 || reads != 2 {
		t.Errorf("removed %q after %d reads of the pointer, %v", done.Names, reads, err)
	}
	wantPointer(t, tr, all[0])
	wantWhole(t, tr)
}

// TestPruneRacesASlowDownload: a prune takes a payload that is being read. Its reader is told to list again, leaves
// nothing, and gets the newer one.
func TestPruneRacesASlowDownload(t *testing.T) {
	h := &hooked{Store: memory(t)}
	tr := transportOn(t, h)
	plain := transportOn(t, h.Store)
	old := export(t, spec{log: logA, rev: 1, fill: 2 << 20})
	wantPublished(t, plain, old, liveAt(logA, 1, 1))
	young := export(t, spec{log: logA, rev: 2})
	live := liveAt(logA, 1, 2)
	h.call = func(op, key string) fate {
		if op != "get" || key != tr.payloadKey(Name(old.m)) {
			return fate{}
		}
		h.call = nil
		return fate{body: func(body io.ReadCloser) io.ReadCloser {
			return &dying{ReadCloser: body, left: 1 << 20, die: func() error {
				wantPublished(t, plain, young, live)
				_, err := plain.Prune(bounded(t), pruneOf(live))
				return errors.Join(err, objects.ErrUnavailable, io.ErrUnexpectedEOF)
			}}
		}}
	}
	err := download(t, tr, old.m)
	var gone *GoneError
	if !errors.Is(err, ErrGone) || !errors.As(err, &gone) || gone.Hint() == "" || !errors.Is(err, objects.ErrUnavailable) {
		t.Fatalf("the download ended with %v", err)
	}
	if err := download(t, tr, old.m); !errors.Is(err, ErrGone) {
		t.Errorf("the next one ended with %v", err)
	}
	wantPointer(t, tr, young)
}

// dying reads so many bytes and fails.
type dying struct {
	io.ReadCloser
	left int
	die  func() error
}

func (d *dying) Read(b []byte) (int, error) {
	if d.left <= 0 {
		return 0, d.die()
	}
	n, err := d.ReadCloser.Read(b[:min(len(b), d.left)])
	d.left -= n
	return n, err
}

// TestOrphanedManifest: a manifest without a payload is no artifact; it goes as its payload would have.
func TestOrphanedManifest(t *testing.T) {
	s := memory(t)
	tr := transportOn(t, s)
	all := line(t, tr, 1, 2, 3)
	must(t, s.Delete(bounded(t), tr.payloadKey(Name(all[1].m))))
	if err := download(t, tr, all[1].m); !errors.Is(err, objects.ErrNotFound) || errors.Is(err, ErrGone) {
		t.Errorf("an announced artifact without payload: %v", err)
	}
	done, err := tr.Prune(bounded(t), PruneOptions{Keep: 2, Live: liveAt(logA, 1, 3)})
	must(t, err)
	wantNames(t, done.Names, all[1]) // and the whole one is kept in its place
	wantWhole(t, tr)
}

func TestPruneOptionsValidate(t *testing.T) {
	tr := transportOn(t, memory(t))
	for _, o := range []PruneOptions{{}, {Live: unreadable, Keep: -1}, {Live: unreadable, TTL: -1}} {
		if _, err := tr.Prune(bounded(t), o); err == nil {
			t.Errorf("took %+v", o)
		}
	}
}
