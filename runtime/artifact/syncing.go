package artifact

import (
	"errors"
	"os"
	"sync"
)

// syncers is how many files are synced at once while the next one is written.
const syncers = 2

// syncing syncs and closes files on goroutines of its own. end waits for them.
type syncing struct {
	stage *stage
	slots chan struct{}
	wg    sync.WaitGroup

	mu  sync.Mutex
	err error
}

func newSyncing(s *stage) *syncing { return &syncing{stage: s, slots: make(chan struct{}, syncers)} }

// add takes a file that is written. It waits while there are many, and returns what an earlier one failed with.
func (y *syncing) add(f *os.File) error {
	y.slots <- struct{}{}
	y.wg.Go(func() {
		defer func() { <-y.slots }()
		if err := errors.Join(y.stage.syncFile(f), f.Close()); err != nil {
			y.mu.Lock()
			defer y.mu.Unlock()
			y.err = errors.Join(y.err, err)
		}
	})
	return y.failed()
}

func (y *syncing) failed() error {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.err
}

// end waits until all files are synced, and returns what failed.
func (y *syncing) end() error {
	y.wg.Wait()
	return y.failed()
}
