package main

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"runtime/pprof"
	"time"
)

// watchHeap samples the size of Go's heap until stop, which gives the largest in MB. With o.profile it leaves a profile
// of what was in use at about that moment; that costs collections, so the figures are no good then.
func watchHeap(o options) (stop func() (float64, error), err error) {
	end, ended := make(chan struct{}), make(chan error, 1)
	var peak uint64
	go func() {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		var err error
		profiled := uint64(0)
		for {
			metrics.Read(sample)
			peak = max(peak, sample[0].Value.Uint64())
			if o.profile != "" && peak > profiled+profiled/10 {
				profiled = peak
				err = errors.Join(err, writeHeap(filepath.Join(o.profile, o.role+"-heap.pprof")))
			}
			select {
			case <-tick.C:
			case <-end:
				ended <- err
				return
			}
		}
	}()
	return func() (float64, error) {
		close(end)
		err := <-ended
		return float64(peak) / (1 << 20), err
	}, nil
}

func writeHeap(path string) error {
	runtime.GC() // a profile is as of the last one
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(pprof.WriteHeapProfile(f), f.Close())
}
