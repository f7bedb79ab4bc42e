package kvtest

import (
	"context"
	"testing"
)

// target is the simulated log as the suite wants it.
func target(o Options, can Capabilities) func(t *testing.T) Target {
	return func(*testing.T) Target {
		l := NewLog(o)
		return Target{
			Bucket:  l,
			Can:     can,
			Markers: o.Limits.markers(),
			Admin: Admin{
				EvictTo:  func(_ context.Context, rev uint64) error { l.EvictTo(rev); return nil },
				Recreate: func(context.Context) error { l.Recreate(); return nil },
				PutAgedOut: func(_ context.Context, key string, value []byte) error {
					l.Set(key, string(value))
					l.AgeOut(key, true)
					return nil
				},
				PurgeMarkers: func(context.Context) error { l.PurgeMarkers(); return nil },
				Rewind:       func(_ context.Context, rev uint64) error { l.Rewind(rev); return nil },
			},
		}
	}
}

func TestConformance(t *testing.T) {
	all := Capabilities{AgeOut: true, PurgeMarkers: true, Rewind: true}
	withTTL := all
	withTTL.TTL = true
	reference := all
	reference.EmptyPutIsTombstone = true
	t.Run("Reference", func(t *testing.T) { RunConformance(t, target(Options{EmptyPutIsTombstone: true}, reference)) })
	t.Run("Plain", func(t *testing.T) { RunConformance(t, target(Options{}, all)) })
	t.Run("Prefetching", func(t *testing.T) { RunConformance(t, target(Options{Prefetch: 16}, all)) })
	sealed := Capabilities{AgeOut: true, Rewind: true, Sealed: true}
	t.Run("Sealed", func(t *testing.T) { RunConformance(t, target(Options{Limits: Limits{Sealed: true}}, sealed)) })
	t.Run("TTL", func(t *testing.T) { RunConformance(t, target(Options{Limits: Limits{AllowTTL: true}}, withTTL)) })
}

// A target that claims what it has no means for is told so.
func TestConformanceNamesMissingHooks(t *testing.T) {
	g := Target{Can: Capabilities{AgeOut: true, Rewind: true}}
	if got := g.missing(); len(got) != 4 {
		t.Fatal(got)
	}
	g = target(Options{}, Capabilities{AgeOut: true, PurgeMarkers: true, Rewind: true})(t)
	if got := g.missing(); got != nil {
		t.Fatal(got)
	}
}
