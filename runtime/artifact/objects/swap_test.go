package objects_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/typedfold/fold/runtime/artifact/objects"
)

// TestLostAnswers: what SwapPointer says when an attempt has no known outcome, or meets its own first sending.
func TestLostAnswers(t *testing.T) {
	const mine, theirs = "mine", "theirs"
	other := func(r *rig, old objects.Token) error {
		return r.Store.SwapPointer(context.Background(), "k", []byte(theirs), old)
	}
	for _, c := range []struct {
		name  string
		set   func(r *rig, old objects.Token)
		want  error
		value string
		swaps int
	}{
		{"stored, answer lost", func(r *rig, _ objects.Token) { r.after = failing("swap", 1, errDown) }, nil, mine, 1},
		{"stored, then refused as its own second sending", func(r *rig, _ objects.Token) {
			r.after = failing("swap", 1, objects.ErrConflict)
		}, nil, mine, 1},
		{"not stored, no answer", func(r *rig, _ objects.Token) { r.before = failing("swap", 2, errDown) }, nil, mine, 3},
		{"never an answer", func(r *rig, _ objects.Token) { r.before = failing("swap", 99, errDown) }, objects.ErrUnavailable, "", 4},
		{"no answer, and another's value stands", func(r *rig, old objects.Token) {
			r.before = func(op string, n int) error {
				if op == "swap" {
					return errors.Join(errDown, other(r, old))
				}
				return nil
			}
		}, objects.ErrConflict, theirs, 1},
		{"refused, and another's value stands", func(r *rig, old objects.Token) {
			r.before = func(op string, n int) error {
				if op == "swap" && n == 1 {
					return other(r, old)
				}
				return nil
			}
		}, objects.ErrConflict, theirs, 1},
		{"refused while nothing changed", func(r *rig, _ objects.Token) {
			r.before = failing("swap", 1, objects.ErrConflict)
		}, nil, mine, 2},
		{"no answer, and none to the question after it", func(r *rig, _ objects.Token) {
			r.before = func(op string, n int) error {
				if op == "swap" || op == "read" {
					return errDown
				}
				return nil
			}
		}, objects.ErrUnavailable, "", 1},
		{"unsupported", func(r *rig, _ objects.Token) { r.before = failing("swap", 1, objects.ErrUnsupported) }, objects.ErrUnsupported, "", 1},
		{"denied", func(r *rig, _ objects.Token) { r.before = failing("swap", 1, objects.ErrDenied) }, objects.ErrDenied, "", 1},
	} {
		for _, fresh := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				r, g := newRig(t, objects.Options{})
				var old objects.Token
				before := ""
				if !fresh {
					before = "before"
					if err := r.Store.SwapPointer(t.Context(), "k", []byte(before), ""); err != nil {
						t.Fatal(err)
					}
					_, old, _ = r.Store.ReadPointer(t.Context(), "k")
				}
				c.set(r, old)
				err := g.SwapPointer(t.Context(), "k", []byte(mine), old)
				if !errors.Is(err, c.want) || r.calls["swap"] != c.swaps {
					t.Errorf("%s (fresh %v): %v after %d swaps", c.name, fresh, err, r.calls["swap"])
				}
				if errors.Is(err, objects.ErrConflict) && errors.Is(err, objects.ErrUnavailable) {
					t.Errorf("%s: both a conflict and unknown: %v", c.name, err)
				}
				want := c.value
				if want == "" {
					want = before
				}
				if value, _, _ := r.Store.ReadPointer(t.Context(), "k"); string(value) != want {
					t.Errorf("%s (fresh %v): the pointer holds %q", c.name, fresh, value)
				}
			})
		}
	}
}

// liar is a store whose conditional write does not hold.
type liar struct {
	objects.Store
	swap func(ctx context.Context, s objects.Store, key string, value []byte, old objects.Token) error
}

func (l liar) SwapPointer(ctx context.Context, key string, value []byte, old objects.Token) error {
	return l.swap(ctx, l.Store, key, value, old)
}

// force stores the value over whatever is there.
func force(ctx context.Context, s objects.Store, key string, value []byte) error {
	_, token, err := s.ReadPointer(ctx, key)
	if err != nil && !errors.Is(err, objects.ErrNotFound) {
		return err
	}
	return s.SwapPointer(ctx, key, value, token)
}

var liars = map[string]func(ctx context.Context, s objects.Store, key string, value []byte, old objects.Token) error{
	"ignores every condition": func(ctx context.Context, s objects.Store, key string, value []byte, _ objects.Token) error {
		return force(ctx, s, key, value)
	},
	"ignores the condition of a creation": func(ctx context.Context, s objects.Store, key string, value []byte, old objects.Token) error {
		if old == "" {
			return force(ctx, s, key, value)
		}
		return s.SwapPointer(ctx, key, value, old)
	},
	"ignores the condition of a replacement": func(ctx context.Context, s objects.Store, key string, value []byte, old objects.Token) error {
		if old != "" {
			return force(ctx, s, key, value)
		}
		return s.SwapPointer(ctx, key, value, old)
	},
	"creates where a replacement was asked for": func(ctx context.Context, s objects.Store, key string, value []byte, old objects.Token) error {
		if _, _, err := s.ReadPointer(ctx, key); errors.Is(err, objects.ErrNotFound) {
			return force(ctx, s, key, value)
		}
		return s.SwapPointer(ctx, key, value, old)
	},
	"stores nothing": func(context.Context, objects.Store, string, []byte, objects.Token) error { return nil },
	"refuses all": func(context.Context, objects.Store, string, []byte, objects.Token) error {
		return objects.ErrConflict
	},
	"stores something else": func(ctx context.Context, s objects.Store, key string, value []byte, old objects.Token) error {
		return s.SwapPointer(ctx, key, append([]byte("x"), value...), old)
	},
	"says so": func(context.Context, objects.Store, string, []byte, objects.Token) error {
		return objects.ErrUnsupported
	},
}

func TestSelfTestFindsLiars(t *testing.T) {
	for name, swap := range liars {
		_, g := newRig(t, objects.Options{})
		s := liar{g, swap}
		if err := objects.SelfTest(t.Context(), s, "a/"); !errors.Is(err, objects.ErrUnsupported) {
			t.Errorf("a store that %s: %v", name, err)
		}
		if _, err := objects.ForPublishing(t.Context(), s, "a/", false); !errors.Is(err, objects.ErrUnsupported) {
			t.Errorf("a store that %s is open for publishing: %v", name, err)
		}
		for o, err := range g.List(t.Context(), "") {
			t.Errorf("the test of a store that %s leaves %v, %v", name, o.Key, err)
		}
	}
}

func TestSelfTestOfABrokenStoreProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, g := newRig(t, objects.Options{})
		r.before = failing("swap", 99, errDown)
		_, err := objects.ForPublishing(t.Context(), g, "a/", true)
		if !errors.Is(err, objects.ErrUnavailable) || errors.Is(err, objects.ErrUnsupported) {
			t.Errorf("%v", err)
		}
	})
}

func TestNonAtomicFallback(t *testing.T) {
	_, g := newRig(t, objects.Options{})
	ctx := t.Context()
	s, err := objects.ForPublishing(ctx, liar{g, liars["says so"]}, "a/", true)
	if err != nil {
		t.Fatal(err)
	}
	step := func(value string, old objects.Token, want error) objects.Token {
		t.Helper()
		if err := s.SwapPointer(ctx, "k", []byte(value), old); !errors.Is(err, want) {
			t.Fatalf("swap to %q: %v", value, err)
		}
		_, token, err := s.ReadPointer(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	first := step("one", "", nil)
	step("two", "", objects.ErrConflict)
	step("three", first, nil)
	step("four", first, objects.ErrConflict)
	step("three", first, nil)
}
