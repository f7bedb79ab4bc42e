package router

import (
	"context"
	"hash/maphash"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	fold "github.com/typedfold/fold/runtime"

	routesv1fold "github.com/typedfold/fold/examples/routes/gen/routes/v1/routesv1fold"
)

// matcher finds the routes of a host name. It is immutable, so that requests read it without a lock: with makes the
// next one. Its maps are sharded so that a change of one route copies a small part of them.
type matcher struct {
	shards [shardCount]map[string][]routesv1fold.RouteKey // by pattern, then in the order of tenants
}

const shardCount = 256

var seed = maphash.MakeSeed()

func shardOf(pattern string) int { return int(maphash.String(seed, pattern) % shardCount) }

// patternOf is a domain without the star of a wildcard: "*.example.com" is ".example.com", which is a suffix of every
// host that it serves, and "*" is "", which is one of any host.
func patternOf(domain string) string { return strings.TrimPrefix(domain, "*") }

// match yields the keys of the routes that may serve a host: its own first, then those of ever shorter suffixes. When
// tenants claim the same domain, every node prefers the same one: the first by name.
func (m *matcher) match(host string) iter.Seq[routesv1fold.RouteKey] {
	return func(yield func(routesv1fold.RouteKey) bool) {
		for pattern := host; ; {
			for _, key := range m.shards[shardOf(pattern)][pattern] {
				if !yield(key) {
					return
				}
			}
			if pattern == "" {
				return
			}
			dot := strings.IndexByte(pattern[1:], '.')
			if dot < 0 {
				pattern = ""
			} else {
				pattern = pattern[1+dot:]
			}
		}
	}
}

// change is a route that is there from now on, or gone.
type change struct {
	key  routesv1fold.RouteKey
	gone bool
}

// with is the matcher after the changes. It is m itself when they change nothing, which most don't: an update of a
// route leaves its key where it is.
func (m *matcher) with(changes []change) *matcher {
	next := m
	var copied [shardCount]bool
	for _, c := range changes {
		pattern := patternOf(c.key.Domain)
		shard := shardOf(pattern)
		keys := next.shards[shard][pattern]
		at, there := slices.BinarySearchFunc(keys, c.key, func(a, b routesv1fold.RouteKey) int {
			return strings.Compare(a.Tenant, b.Tenant)
		})
		if there != c.gone {
			continue
		}
		if next == m {
			clone := *m
			next = &clone
		}
		if !copied[shard] {
			next.shards[shard], copied[shard] = maps.Clone(next.shards[shard]), true
		}
		keys = slices.Clone(keys)
		if c.gone {
			keys = slices.Delete(keys, at, at+1)
		} else {
			keys = slices.Insert(keys, at, c.key)
		}
		next.set(shard, pattern, keys)
	}
	return next
}

func (m *matcher) set(shard int, pattern string, keys []routesv1fold.RouteKey) {
	switch {
	case len(keys) == 0:
		delete(m.shards[shard], pattern)
	case m.shards[shard] == nil:
		m.shards[shard] = map[string][]routesv1fold.RouteKey{pattern: keys}
	default:
		m.shards[shard][pattern] = keys
	}
}

// hooks keep the matcher beside the fold. A batch may come twice (a hook failed, the process was killed before the
// batch was durable), and setting what is set already changes nothing.
type hooks struct {
	routesv1fold.UnimplementedRouteHooks
	current atomic.Pointer[matcher]
}

// LoadRoute builds the matcher from the fold as it was on disk.
func (h *hooks) LoadRoute(_ context.Context, rows iter.Seq2[routesv1fold.RouteRow, error]) error {
	var changes []change
	for row, err := range rows {
		if err != nil {
			return err
		}
		changes = append(changes, change{key: row.Key})
	}
	h.current.Store(new(matcher).with(changes))
	return nil
}

// ApplyRoute takes a batch into the matcher. It never refuses one: a route that makes no sense must not hold up those
// after it.
func (h *hooks) ApplyRoute(_ context.Context, events []routesv1fold.RouteEvent) error {
	changes := make([]change, 0, len(events))
	for i := range events {
		switch e := &events[i]; {
		case e.Op == fold.OpPut:
			changes = append(changes, change{key: e.Key})
		case e.Op.Removes():
			changes = append(changes, change{key: e.Key, gone: true})
		}
	}
	h.current.Store(h.current.Load().with(changes))
	return nil
}
