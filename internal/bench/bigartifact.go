package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/typedfold/fold/runtime/artifact"
)

// bigArtifact takes a fold and one of a tenth of its size from one store to another through a directory, and compares
// what the processes hold meanwhile.
func (b *bench) bigArtifact(ctx context.Context) error {
	small := max(b.o.big/10, 1)
	var peaks []float64
	for _, mib := range []int{small, b.o.big} {
		peak, err := b.bigOf(ctx, mib)
		if err != nil {
			return fmt.Errorf("%d MiB: %w", mib, err)
		}
		peaks = append(peaks, peak)
	}
	b.ratio("peak"+shortMiB(b.o.big)+"/peak"+shortMiB(small), peaks[1]/peaks[0], 1.25, true)
	return nil
}

// shortMiB is a size in a ratio's name.
func shortMiB(mib int) string {
	if mib%1024 == 0 {
		return fmt.Sprint(mib/1024, "g")
	}
	return fmt.Sprint(mib, "m")
}

// bigOf is the largest resident memory of the processes that move a fold of mib MiB.
func (b *bench) bigOf(ctx context.Context, mib int) (peak float64, err error) {
	dir, err := os.MkdirTemp(b.o.dir, "big-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fmt.Fprintf(os.Stderr, "a fold of %d MiB, Go's memory limit %d MiB\n", mib, b.o.memory)
	b.env = []string{fmt.Sprintf("GOMEMLIMIT=%dMiB", b.o.memory)}
	defer func() { b.env = nil }()
	live, exported, imported := filepath.Join(dir, "live"), filepath.Join(dir, "exported"), filepath.Join(dir, "imported")
	place := "file://" + filepath.ToSlash(filepath.Join(dir, "published"))
	runs := map[string]result{}
	for _, step := range []struct{ as, role, dir string }{
		{"fill", "big-fill", live},
		{"export", "big-export", live},
		{"publish", "big-publish", dir},
		{"exported", "big-digest", live},
		{"import", "big-import", imported},
		{"imported", "big-digest", imported},
	} {
		if step.as == "import" { // its disk is for what comes
			if err := errors.Join(os.RemoveAll(live), os.RemoveAll(exported)); err != nil {
				return 0, err
			}
		}
		r, err := b.child(ctx, step.role, step.dir, "-payload", fmt.Sprint(mib), "-artifacts", exported, "-place", place)
		if err != nil {
			return 0, err
		}
		runs[step.as] = r
	}
	if err := sameArtifact(runs); err != nil {
		return 0, err
	}
	for _, as := range []string{"export", "publish", "import"} {
		peak = max(peak, runs[as].PeakMB)
	}
	return peak, nil
}

// sameArtifact refuses a run that lost something on the way, or that came to a limit of the manifest.
func sameArtifact(runs map[string]result) error {
	if from, to := runs["exported"].Artifact.Digest, runs["imported"].Artifact.Digest; from != to || from == "" {
		return fmt.Errorf("the fold that was exported has digest %q, the one that was imported %q", from, to)
	}
	made, took := runs["export"].Artifact, runs["import"].Artifact
	if *made != *took {
		return fmt.Errorf("%v was exported, %v imported", made, took)
	}
	if made.Files >= artifact.MaxFiles || made.Manifest >= artifact.MaxManifest {
		return fmt.Errorf("%v: the limits are %d files and %d bytes", made, artifact.MaxFiles, artifact.MaxManifest)
	}
	fmt.Fprintf(os.Stderr, "  %v; a manifest takes %d files and %d bytes\n", made, artifact.MaxFiles, artifact.MaxManifest)
	return nil
}
