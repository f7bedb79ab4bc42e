package fold_test

import (
	"context"
	"fmt"
	"testing"

	foldtestv1 "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1"
	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
)

const benchRows = 100_000

// benchKeys are keys in an order that no cache guesses.
func benchKeys() []ft.RouteKey {
	keys := make([]ft.RouteKey, benchRows)
	for i := range keys {
		n := i * 7919 % benchRows
		keys[i] = routeKey(fmt.Sprintf("t%05d", n/1000), fmt.Sprintf("d%08d", n))
	}
	return keys
}

func benchFold(b *testing.B, backend backend, o startOptions) *tables {
	log := newLog()
	for _, k := range benchKeys() {
		setRoute(b, log, route(k.Tenant, k.Domain, "node-17"))
	}
	tb := start(b, log, openStore(b, backend, b.TempDir()), o)
	tb.hydrated(b)
	return tb
}

func BenchmarkPeek(b *testing.B) {
	tb := benchFold(b, backends[0], startOptions{routes: []fold.TableOption{fold.Resident()}})
	keys := benchKeys()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, ok := tb.routes.Peek(keys[i]); !ok {
			b.Fatal("no row")
		}
		if i++; i == len(keys) {
			i = 0
		}
	}
}

// BenchmarkMapLookup is what BenchmarkPeek is held against.
func BenchmarkMapLookup(b *testing.B) {
	keys := benchKeys()
	rows := make(map[ft.RouteKey]*foldtestv1.Route, len(keys))
	for _, k := range keys {
		rows[k] = route(k.Tenant, k.Domain, "node-17")
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, ok := rows[keys[i]]; !ok {
			b.Fatal("no row")
		}
		if i++; i == len(keys) {
			i = 0
		}
	}
}

func BenchmarkGet(b *testing.B) {
	for _, backend := range backends {
		b.Run(backend.name, func(b *testing.B) {
			tb := benchFold(b, backend, startOptions{})
			keys, ctx, i := benchKeys(), context.Background(), 0
			b.ReportAllocs()
			for b.Loop() {
				if _, ok, err := tb.routes.Get(ctx, keys[i]); !ok || err != nil {
					b.Fatal(ok, err)
				}
				if i++; i == len(keys) {
					i = 0
				}
			}
		})
	}
}

func BenchmarkGetInto(b *testing.B) {
	for _, backend := range backends {
		b.Run(backend.name, func(b *testing.B) {
			tb := benchFold(b, backend, startOptions{})
			keys, ctx, i := benchKeys(), context.Background(), 0
			dst := &foldtestv1.Route{}
			b.ReportAllocs()
			for b.Loop() {
				if ok, err := tb.routes.GetInto(ctx, keys[i], dst); !ok || err != nil {
					b.Fatal(ok, err)
				}
				if i++; i == len(keys) {
					i = 0
				}
			}
		})
	}
}

func BenchmarkList(b *testing.B) {
	for _, backend := range backends {
		b.Run(backend.name, func(b *testing.B) {
			tb := benchFold(b, backend, startOptions{})
			b.ReportAllocs()
			rows := 0
			for b.Loop() {
				for _, err := range tb.routes.List(context.Background(), ft.RouteByTenant("t00042")) {
					if err != nil {
						b.Fatal(err)
					}
					rows++
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(rows), "ns/row")
		})
	}
}
