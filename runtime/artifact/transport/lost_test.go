package transport

import (
	"errors"
	"strings"
	"testing"

	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/protocol"
)

// TestLostUploadIsNotPublished: what a prune or a person took, or replaced, before the pointer moved is named by nothing.
func TestLostUploadIsNotPublished(t *testing.T) {
	old, young := export(t, spec{log: logA, rev: 5}), export(t, spec{log: logA, rev: 9})
	live := liveAt(logA, 1, 9)
	for what, keyOf := range map[string]func(*Transport, string) string{"payload": (*Transport).payloadKey, "manifest": (*Transport).manifestKey} {
		for _, left := range []int64{-1, 0, 5} {
			h := &hooked{Store: memory(t)}
			tr, plain := transportOn(t, h), transportOn(t, h.Store)
			wantPublished(t, plain, old, live)
			h.call = func(op, key string) fate {
				if op != "stat" {
					return fate{}
				}
				h.call = nil
				if key := keyOf(tr, Name(young.m)); left < 0 {
					must(t, h.Store.Delete(bounded(t), key))
				} else {
					must(t, h.Store.Put(bounded(t), key, strings.NewReader("other"[:left])))
				}
				return fate{}
			}
			out, err := tr.Publish(bounded(t), young.dir, young.m, live)
			var lost *LostError
			if !errors.Is(err, ErrLost) || !errors.As(err, &lost) || lost.What != what || lost.Have != left || lost.Want < 100 || lost.Hint() == "" || out.Published {
				t.Errorf("%s of %d bytes: %+v, %v", what, left, out, err)
			}
			wantPointer(t, tr, old)
			wantPublished(t, tr, young, live)
			wantPointer(t, tr, young)
		}
	}
}

// TestLostToANewerOne: a prune took the upload because a newer artifact was published after the pointer was read. That is
// no loss: the publication is superseded.
func TestLostToANewerOne(t *testing.T) {
	h := &hooked{Store: memory(t)}
	tr, plain := transportOn(t, h), transportOn(t, h.Store)
	old, e, young := export(t, spec{log: logA, rev: 1}), export(t, spec{log: logA, rev: 5}), export(t, spec{log: logA, rev: 9})
	live := liveAt(logA, 1, 9)
	wantPublished(t, plain, old, live)
	h.call = func(op, _ string) fate {
		if op == "stat" {
			h.call = nil
			wantPublished(t, plain, young, live)
			done, err := plain.Prune(bounded(t), pruneOf(live))
			must(t, err)
			wantNames(t, done.Names, old, e)
		}
		return fate{}
	}
	out, err := tr.Publish(bounded(t), e.dir, e.m, live)
	if err != nil || out.Published || out.By != (protocol.Position{Log: logA, Revision: 9}) {
		t.Errorf("ended with %+v, %v", out, err)
	}
	wantPointer(t, tr, young)
}

// TestLostAndNamedByAnother: another publication of the same artifact was first. It is published if the store has it.
func TestLostAndNamedByAnother(t *testing.T) {
	for _, whole := range []bool{true, false} {
		h := &hooked{Store: memory(t)}
		tr, plain := transportOn(t, h), transportOn(t, h.Store)
		e, live := export(t, spec{log: logA, rev: 5}), liveAt(logA, 1, 5)
		reads := 0
		h.call = func(op, _ string) fate {
			switch {
			case op == "stat" && reads == 2:
				must(t, h.Store.Delete(bounded(t), tr.payloadKey(Name(e.m))))
			case op == "read":
				if reads++; reads == 3 {
					wantPublished(t, plain, e, live)
					if !whole {
						must(t, h.Store.Delete(bounded(t), tr.payloadKey(Name(e.m))))
					}
				}
			}
			return fate{}
		}
		out, err := tr.Publish(bounded(t), e.dir, e.m, live)
		if errors.Is(err, ErrLost) == whole || (err == nil) != whole || whole && !out.Published {
			t.Errorf("whole %v: ended with %+v, %v", whole, out, err)
		}
	}
}

// TestPublishMendsWhatThePointerNames: a payload that somebody deleted under the pointer is uploaded again.
func TestPublishMendsWhatThePointerNames(t *testing.T) {
	s := memory(t)
	h := &hooked{Store: s}
	tr, e, live := transportOn(t, h), export(t, spec{log: logA, rev: 5}), liveAt(logA, 1, 5)
	wantPublished(t, tr, e, live)
	for _, key := range []string{tr.payloadKey(Name(e.m)), tr.manifestKey(Name(e.m))} {
		must(t, s.Delete(bounded(t), key))
		wantPublished(t, tr, e, live)
		wantPointer(t, tr, e)
		wantWhole(t, tr)
	}
	h.call = func(op, _ string) fate {
		if op == "stat" {
			return fate{err: objects.ErrUnavailable}
		}
		return fate{}
	}
	if _, err := tr.Publish(bounded(t), e.dir, e.m, live); !errors.Is(err, objects.ErrUnavailable) {
		t.Errorf("a store that says nothing of it: %v", err)
	}
}

// TestForeignPointerStays: two folds that were given one key don't take it from each other in turns. Nothing is uploaded
// for the second, whatever its revisions are.
func TestForeignPointerStays(t *testing.T) {
	for _, c := range []struct {
		what     string
		has, new spec
	}{
		{"bucket", spec{bucket: "routes"}, spec{bucket: "users"}},
		{"bucket", spec{bucket: "routes", scope: "a."}, spec{bucket: "users", scope: "b."}},
		{"scope", spec{}, spec{scope: "n."}},
		{"scope", spec{scope: "n."}, spec{scope: "b."}},
		{"", spec{scope: "n."}, spec{}}, // a fold that grew
		{"", spec{scope: "n."}, spec{scope: "n."}},
		{"", spec{bucket: "-"}, spec{bucket: "users"}},
		{"", spec{bucket: "users"}, spec{bucket: "-"}},
		{"", spec{scope: "-"}, spec{scope: "n."}},
		{"", spec{scope: "n."}, spec{scope: "-"}},
		{"", spec{}, spec{pebble: true}},
	} {
		for _, log := range []int64{logA, logB} {
			c.has.log, c.has.rev, c.new.log, c.new.rev = logA, 5, log, 9
			h := &hooked{Store: memory(t)}
			tr, old, young := transportOn(t, h), export(t, c.has), export(t, c.new)
			wantPublished(t, tr, old, liveAt(logA, 1, 5))
			h.call = func(op, key string) fate {
				if op == "put" && c.what != "" {
					t.Errorf("put %s", key)
				}
				return fate{}
			}
			out, err := tr.Publish(bounded(t), young.dir, young.m, liveAt(log, 1, 9))
			if c.what == "" {
				if err != nil || !out.Published {
					t.Errorf("%+v over %+v: %+v, %v", c.new, c.has, out, err)
				}
				continue
			}
			var foreign *ForeignError
			if !errors.Is(err, ErrForeign) || !errors.As(err, &foreign) || foreign.What != c.what || foreign.Hint() == "" || foreign.Has == foreign.Want {
				t.Errorf("%+v over %+v: %+v, %v", c.new, c.has, out, err)
			}
			wantPointer(t, tr, old)
		}
	}
}

// TestForeignPointerCameMeanwhile: the other fold was first after this one had looked.
func TestForeignPointerCameMeanwhile(t *testing.T) {
	h := &hooked{Store: memory(t)}
	tr, plain := transportOn(t, h), transportOn(t, h.Store)
	other, e := export(t, spec{log: logB, rev: 5, bucket: "routes"}), export(t, spec{log: logA, rev: 9, bucket: "users"})
	h.call = func(op, _ string) fate {
		if op == "put" {
			h.call = nil
			wantPublished(t, plain, other, liveAt(logB, 1, 5))
		}
		return fate{}
	}
	if _, err := tr.Publish(bounded(t), e.dir, e.m, liveAt(logA, 1, 9)); !errors.Is(err, ErrForeign) {
		t.Errorf("ended with %v", err)
	}
	wantPointer(t, plain, other)
}
