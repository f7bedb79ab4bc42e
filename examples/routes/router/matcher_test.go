package router

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	fold "github.com/typedfold/fold/runtime"

	routesv1 "github.com/typedfold/fold/examples/routes/gen/routes/v1"
	"github.com/typedfold/fold/examples/routes/gen/routes/v1/routesv1fold"
)

func key(tenant, domain string) routesv1fold.RouteKey {
	return routesv1fold.RouteKey{Tenant: tenant, Domain: domain}
}

func put(k routesv1fold.RouteKey) change  { return change{key: k} }
func gone(k routesv1fold.RouteKey) change { return change{key: k, gone: true} }

func matches(m *matcher, host string) []string {
	var found []string
	for k := range m.match(host) {
		found = append(found, k.Tenant+" "+k.Domain)
	}
	return found
}

func TestMatchPrefersTheMostSpecific(t *testing.T) {
	m := new(matcher).with([]change{
		put(key("acme", "*.example.com")), put(key("acme", "www.example.com")), put(key("acme", "*.eu.example.com")),
		put(key("zeta", "www.example.com")), put(key("acme", "*")), put(key("acme", "example.com")),
	})
	for host, want := range map[string][]string{
		"www.example.com":   {"acme www.example.com", "zeta www.example.com", "acme *.example.com", "acme *"},
		"a.b.example.com":   {"acme *.example.com", "acme *"},
		"x.eu.example.com":  {"acme *.eu.example.com", "acme *.example.com", "acme *"},
		"eu.example.com":    {"acme *.example.com", "acme *"},
		"example.com":       {"acme example.com", "acme *"}, // a wildcard is for what is under it
		"notexample.com":    {"acme *"},
		"com":               {"acme *"},
		"":                  {"acme *"},
		"www.example.com.x": {"acme *"},
	} {
		if got := matches(m, host); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", host, got, want)
		}
	}
	if got := matches(new(matcher), "www.example.com"); got != nil {
		t.Errorf("empty matcher: %q", got)
	}
}

// bruteMatch is match by its definition.
func bruteMatch(keys map[routesv1fold.RouteKey]bool, host string) []string {
	var hits []routesv1fold.RouteKey
	for k := range keys {
		suffix, wild := strings.CutPrefix(k.Domain, "*")
		if k.Domain == host || wild && strings.HasSuffix(host, suffix) && len(suffix) < len(host) {
			hits = append(hits, k)
		}
	}
	slices.SortFunc(hits, func(a, b routesv1fold.RouteKey) int {
		if d := len(patternOf(b.Domain)) - len(patternOf(a.Domain)); d != 0 {
			return d
		}
		return strings.Compare(a.Tenant, b.Tenant)
	})
	var out []string
	for _, k := range hits {
		out = append(out, k.Tenant+" "+k.Domain)
	}
	return out
}

func TestMatcherAgainstBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	name := func(n int) string {
		labels := make([]string, 1+r.IntN(n))
		for i := range labels {
			labels[i] = string(rune('a' + r.IntN(3)))
		}
		return strings.Join(labels, ".")
	}
	m, keys := new(matcher), map[routesv1fold.RouteKey]bool{}
	for round := range 400 {
		var changes []change
		for range r.IntN(6) {
			d := name(4)
			switch r.IntN(6) {
			case 0, 1:
				d = "*." + d
			case 2:
				d = "*"
			}
			k := key(string(rune('p'+r.IntN(3))), d)
			if r.IntN(3) == 0 {
				changes = append(changes, gone(k))
				delete(keys, k)
			} else {
				changes = append(changes, put(k))
				keys[k] = true
			}
		}
		before, host := m, name(6)
		old := matches(before, host)
		m = m.with(changes)
		if got := matches(before, host); !slices.Equal(got, old) {
			t.Fatalf("round %d: with changed the matcher that it began with: %q, was %q", round, got, old)
		}
		if again := m.with(changes[max(0, len(changes)-1):]); again != m {
			t.Fatalf("round %d: the last change again made another matcher", round)
		}
		for range 20 {
			host := name(6)
			if got, want := matches(m, host), bruteMatch(keys, host); !slices.Equal(got, want) {
				t.Fatalf("round %d, host %q: %q, want %q of %v", round, host, got, want, slices.Collect(maps.Keys(keys)))
			}
		}
	}
}

func event(op fold.Op, k routesv1fold.RouteKey) routesv1fold.RouteEvent {
	e := routesv1fold.RouteEvent{Op: op, Key: k}
	if op == fold.OpPut {
		e.New = &routesv1.Route{Tenant: k.Tenant, Domain: k.Domain}
	}
	return e
}

func rowsOf(keys ...routesv1fold.RouteKey) iter.Seq2[routesv1fold.RouteRow, error] {
	return func(yield func(routesv1fold.RouteRow, error) bool) {
		for _, k := range keys {
			if !yield(routesv1fold.RouteRow{Key: k}, nil) {
				return
			}
		}
	}
}

func TestHooksTakeABatchTwice(t *testing.T) {
	h := &hooks{}
	if err := h.LoadRoute(t.Context(), rowsOf(key("a", "x.y"), key("a", "*.y"))); err != nil {
		t.Fatal(err)
	}
	batch := []routesv1fold.RouteEvent{
		event(fold.OpDelete, key("a", "x.y")), event(fold.OpPut, key("b", "x.y")), event(fold.OpPut, key("a", "*.y")),
		event(fold.OpAgedOut, key("a", "never.seen")), event(fold.OpPurge, key("c", "not.there")),
	}
	for range 2 {
		if err := h.ApplyRoute(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		if got, want := matches(h.current.Load(), "x.y"), []string{"b x.y", "a *.y"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := matches(h.current.Load(), "never.seen"); got != nil {
		t.Errorf("a route that aged out before it was seen: %q", got)
	}
}

func TestLoadGivesBackTheScansError(t *testing.T) {
	broken := errors.New("disk on fire")
	h := &hooks{}
	err := h.LoadRoute(context.Background(), func(yield func(routesv1fold.RouteRow, error) bool) { yield(routesv1fold.RouteRow{}, broken) })
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

func BenchmarkMatch(b *testing.B) {
	var changes []change
	for i := range 20_000 {
		changes = append(changes, put(key("t", fmt.Sprintf("d%05d.example.com", i))))
	}
	m := new(matcher).with(changes)
	b.ReportAllocs()
	for b.Loop() {
		for range m.match("d01234.example.com") {
			break
		}
	}
}

func BenchmarkAddAndRemove(b *testing.B) {
	var changes []change
	for i := range 100_000 {
		changes = append(changes, put(key("t", fmt.Sprintf("d%05d.example.com", i))))
	}
	m := new(matcher).with(changes)
	k := key("t", "new.example.com")
	b.ReportAllocs()
	for b.Loop() {
		m = m.with([]change{put(k)}).with([]change{gone(k)})
	}
}
