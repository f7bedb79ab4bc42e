package main

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"
)

// ratiosOf are the names of what was measured; each must have a value.
func ratiosOf(t *testing.T, b *bench) (names []string) {
	t.Helper()
	for _, r := range b.ratios {
		if names = append(names, r.Name); !(r.Value > 0) {
			t.Errorf("ratio %s is %v", r.Name, r.Value)
		}
	}
	return names
}

func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestArtifactsAreMeasured moves an artifact of 2 MiB; it asserts no time.
func TestArtifactsAreMeasured(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	b := &bench{o: options{only: "artifacts", keys: 1, payload: 2, rounds: 2, dir: dir}}
	if err := b.run(ctx); err != nil {
		t.Fatal(err)
	}
	want := []string{"held/checkpoint", "export/parts", "held/checkpoint-log", "export/parts-log", "upload/ceiling", "download/get", "download/get-synced", "publish/copy"}
	if names := ratiosOf(t, b); !slices.Equal(names, want) {
		t.Errorf("ratios %q, want %q", names, want)
	}
	for role, names := range map[string][]string{
		"live-export":     {"held", "checkpoint", "export", "parts"},
		"live-export-log": {"held", "checkpoint", "export", "parts"},
		"transfer":        {"ceiling", "upload", "get", "download", "get-synced", "download-synced", "copy", "publish"},
	} {
		for _, name := range names {
			want := 2
			if role == "live-export" && (name == "held" || name == "checkpoint") {
				want *= pebbleCheckpoints
			}
			if times := b.results[role][0].Times[name]; len(times) != want || slices.Min(times) <= 0 {
				t.Errorf("%s of %s took %v", name, role, times)
			}
		}
	}
	nothingLeft(t, dir)
}

// TestBigArtifactGoesRound moves folds of 1 and 10 MiB, and compares the contents; it asserts no memory.
func TestBigArtifactGoesRound(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	b := &bench{o: options{only: "bigartifact", keys: 1, big: 10, memory: 64, dir: dir}}
	if err := b.run(ctx); err != nil {
		t.Fatal(err)
	}
	if names := ratiosOf(t, b); !slices.Equal(names, []string{"peak10m/peak1m"}) {
		t.Errorf("ratios %q", names)
	}
	for i, mib := range []int64{1, 10} {
		if a := b.results["big-export"][i].Artifact; a.Bytes < mib<<20 || a.Files == 0 || a.Manifest == 0 {
			t.Errorf("the fold of %d MiB gave an artifact of %v", mib, a)
		}
	}
	nothingLeft(t, dir)
}

// TestWhatIsLostIsSeen: each difference between what was exported and what was imported is refused.
func TestWhatIsLostIsSeen(t *testing.T) {
	good := func() map[string]result {
		part := func() *artifactPart { return &artifactPart{Files: 2, Manifest: 300, Bytes: 5} }
		return map[string]result{
			"exported": {Artifact: &artifactPart{Digest: "a"}}, "imported": {Artifact: &artifactPart{Digest: "a"}},
			"export": {Artifact: part()}, "import": {Artifact: part()},
		}
	}
	if err := sameArtifact(good()); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(map[string]result){
		"another digest": func(r map[string]result) { r["imported"].Artifact.Digest = "b" },
		"no digest":      func(r map[string]result) { r["imported"].Artifact.Digest, r["exported"].Artifact.Digest = "", "" },
		"another size":   func(r map[string]result) { r["import"].Artifact.Bytes++ },
		"too many files": func(r map[string]result) {
			r["import"].Artifact.Files, r["export"].Artifact.Files = 150_000, 150_000
		},
		"too large a manifest": func(r map[string]result) {
			r["import"].Artifact.Manifest, r["export"].Artifact.Manifest = 64<<20, 64<<20
		},
	} {
		r := good()
		if spoil(r); sameArtifact(r) == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

func TestHeldIsTheGapBetweenApplies(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	export := span{at(10), at(20)}
	for name, c := range map[string]struct {
		applies []span
		want    time.Duration
		ok      bool
	}{
		"around":      {[]span{{at(1), at(2)}, {at(5), at(8)}, {at(23), at(24)}, {at(30), at(31)}}, 15 * time.Millisecond, true},
		"adjacent":    {[]span{{at(5), at(10)}, {at(20), at(24)}}, 10 * time.Millisecond, true},
		"none before": {[]span{{at(23), at(24)}}, 0, false},
		"none after":  {[]span{{at(5), at(8)}}, 0, false},
		"at once":     {[]span{{at(5), at(8)}, {at(12), at(13)}, {at(23), at(24)}}, 0, false},
		"none":        {nil, 0, false},
	} {
		if got, ok := heldBy(export, c.applies); ok != c.ok || ok && got != c.want {
			t.Errorf("%s: %v, %v", name, got, ok)
		}
	}
}

func TestRatiosOfRounds(t *testing.T) {
	if got := quotient([]float64{1, 4, 9}, []float64{1, 2, 3}); got != 2 {
		t.Errorf("median quotient %v, want 2", got)
	}
	for mib, want := range map[int]string{5120: "5g", 512: "512m", 1500: "1500m"} {
		if got := shortMiB(mib); got != want {
			t.Errorf("%d MiB are %q, want %q", mib, got, want)
		}
	}
}
