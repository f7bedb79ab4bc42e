package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// The buckets of a repair run: both begin with the same keys, and see the same changes. One keeps its values, the other
// is then told to evict until it holds less than the changes.
const (
	bucketKeeps  = "keeps"
	bucketEvicts = "evicts"
)

// repair measures two repairs beside a full hydrate at each size. The ratios of the first size are the ones without a
// suffix; it has all the rounds, the others one.
func (b *bench) repair(ctx context.Context) error {
	peaks := map[int]float64{}
	var last []ratio
	for i, keys := range b.o.sizes {
		rounds := 1
		if i == 0 {
			rounds = b.o.rounds
		}
		runs, err := b.repairSize(ctx, keys, rounds)
		if err != nil {
			return fmt.Errorf("%s keys: %w", short(keys), err)
		}
		peaks[keys] = medianOf(runs["relist"], func(r result) float64 { return r.PeakMB })
		for _, role := range []string{"relist", "restore"} {
			v := timeRatio(runs[role], runs["hydrate"])
			if i == 0 {
				last = append(last, ratio{Name: role + "/hydrate", Value: v, AtMost: true})
			} else {
				b.ratio(role+"/hydrate-"+short(keys), v, 0, true)
			}
		}
	}
	first := b.o.sizes[0]
	for _, keys := range b.o.sizes[1:] {
		last = append(last, ratio{Name: "peak" + short(keys) + "/peak" + short(first), Value: peaks[keys] / peaks[first], Want: 1.25, AtMost: true})
	}
	b.ratios = append(b.ratios, last...)
	return nil
}

// timeRatio is the median over the rounds.
func timeRatio(over, under []result) float64 {
	values := make([]float64, len(over))
	for i := range over {
		values[i] = over[i].Seconds / under[i].Seconds
	}
	return median(values)
}

// short is a number of keys in a ratio's name.
func short(keys int) string {
	switch {
	case keys%1_000_000 == 0:
		return fmt.Sprint(keys/1_000_000, "m")
	case keys%1000 == 0:
		return fmt.Sprint(keys/1000, "k")
	}
	return fmt.Sprint(keys)
}

// repairSize prepares a server with both buckets, a fold of each from before the changes, and an artifact from after
// them, and then runs the rounds.
func (b *bench) repairSize(ctx context.Context, keys, rounds int) (_ map[string][]result, err error) {
	if changes(keys) < 4 || keys%7919 == 0 || keys%104729 == 0 {
		return nil, fmt.Errorf("%d keys: at least 400 are needed, and no multiple of 7919 or 104729", keys)
	}
	dir, err := os.MkdirTemp(b.o.dir, "repair-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	stop, err := b.startServer(ctx, filepath.Join(dir, "server"))
	if err != nil {
		return nil, err
	}
	defer stop()
	x := &repairRun{b: b, dir: dir, keys: keys}
	if err := x.prepare(ctx); err != nil {
		return nil, err
	}
	runs := map[string][]result{}
	for round := range rounds {
		fmt.Fprintf(os.Stderr, "repair %d keys, round %d of %d, Go's memory limit %d MiB\n", keys, round+1, rounds, b.o.memory)
		for i := range repairMeasures {
			m := repairMeasures[(i+round)%len(repairMeasures)]
			r, err := x.measure(ctx, m)
			if err != nil {
				return nil, err
			}
			runs[m.role] = append(runs[m.role], r)
		}
	}
	return runs, nil
}

// repairMeasure is one of what is measured: in which bucket, and on a copy of that bucket's old fold made by which role;
// "" is an empty store.
type repairMeasure struct{ role, bucket, copy string }

var repairMeasures = []repairMeasure{
	{role: "hydrate", bucket: bucketKeeps},
	{role: "relist", bucket: bucketKeeps, copy: "copy-without-cursor"},
	{role: "restore", bucket: bucketEvicts, copy: "copy"},
}

// repairRun is one size.
type repairRun struct {
	b    *bench
	dir  string
	keys int
}

func (x *repairRun) in(name string) string { return filepath.Join(x.dir, name) }

// child runs a role on a bucket, in a folder of this run.
func (x *repairRun) child(ctx context.Context, role, bucket, dir string) (result, error) {
	return x.b.child(ctx, role, x.in(dir), "-keys", fmt.Sprint(x.keys), "-bucket", bucket, "-from", x.in("old-"+bucket),
		"-artifacts", x.in("artifacts"), "-memory", fmt.Sprint(x.b.o.memory))
}

func (x *repairRun) prepare(ctx context.Context) error {
	fmt.Fprintf(os.Stderr, "two buckets of %d keys, of which %d are changed\n", x.keys, changes(x.keys))
	for _, bucket := range []string{bucketKeeps, bucketEvicts} {
		for _, role := range []string{"fill-bucket", "old-fold", "change-bucket"} {
			if _, err := x.child(ctx, role, bucket, "old-"+bucket); err != nil {
				return err
			}
		}
	}
	if err := os.Mkdir(x.in("artifacts"), 0o700); err != nil {
		return err
	}
	for _, role := range []string{"copy", "export", "evict"} {
		if _, err := x.child(ctx, role, bucketEvicts, "exporter"); err != nil {
			return err
		}
	}
	return os.RemoveAll(x.in("exporter"))
}

func (x *repairRun) measure(ctx context.Context, m repairMeasure) (r result, err error) {
	defer func() { err = errors.Join(err, os.RemoveAll(x.in(m.role))) }()
	if m.copy != "" {
		if _, err := x.child(ctx, m.copy, m.bucket, m.role); err != nil {
			return result{}, err
		}
	}
	return x.child(ctx, m.role, m.bucket, m.role)
}
