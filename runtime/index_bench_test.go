package fold_test

import (
	"context"
	"fmt"
	"testing"

	indexedv1 "github.com/typedfold/fold/internal/foldtest/gen/indexed/v1"
	ix "github.com/typedfold/fold/internal/foldtest/gen/indexed/v1/indexedv1fold"
	fold "github.com/typedfold/fold/runtime"
)

const (
	benchHosts = 20_000
	benchNodes = 200
)

// benchIndexed is a fold in Pebble with as many hosts.
func benchIndexed(b *testing.B) *indexed {
	log := newLog()
	for i := range benchHosts {
		n := i * 7919 % benchHosts
		setHost(b, log, &indexedv1.Host{Region: fmt.Sprintf("r%03d", n/1000), Name: fmt.Sprintf("h%06d", n), NodeId: fmt.Sprintf("node-%03d", n%benchNodes)})
	}
	tb := mustStartIndexed(b, log, openStore(b, backends[1], b.TempDir()), fold.Options{})
	tb.caughtUp(b, log)
	return tb
}

// BenchmarkIndexRead reads the 100 rows of one of 200 nodes by the index.
func BenchmarkIndexRead(b *testing.B) {
	tb := benchIndexed(b)
	ctx := context.Background()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		n := 0
		for _, err := range tb.hosts.ListByNode(ctx, fmt.Sprintf("node-%03d", i%benchNodes)) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if i++; n != benchHosts/benchNodes {
			b.Fatalf("%d rows", n)
		}
	}
}

// BenchmarkIndexScan is what BenchmarkIndexRead is held against: the same rows found by reading all.
func BenchmarkIndexScan(b *testing.B) {
	tb := benchIndexed(b)
	ctx := context.Background()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		n, node := 0, fmt.Sprintf("node-%03d", i%benchNodes)
		for row, err := range tb.hosts.List(ctx, ix.HostAll()) {
			if err != nil {
				b.Fatal(err)
			}
			if row.Value.NodeId == node {
				n++
			}
		}
		if i++; n != benchHosts/benchNodes {
			b.Fatalf("%d rows", n)
		}
	}
}
