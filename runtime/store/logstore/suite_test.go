package logstore_test

import (
	"os"
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
	"github.com/typedfold/fold/runtime/store/storetest"
)

// harness opens logs that are rewritten every few hundred bytes, so that the suites see that too.
func harness() storetest.Harness {
	modes := map[storetest.Mode]logstore.Durability{
		storetest.ModeSync: logstore.Sync, storetest.ModeInterval: logstore.Interval, storetest.ModeNone: logstore.None,
	}
	return storetest.Harness{
		MaxValue: logstore.MaxValue,
		OpenReadOnly: func(dir string) (store.Store, error) {
			return opened(logstore.Open(dir, logstore.Options{ReadOnly: true}))
		},
		Open: func(dir string, m storetest.Mode) (store.Store, error) {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return nil, err
			}
			return opened(logstore.Open(dir, logstore.Options{Durability: modes[m], FlushInterval: 2 * time.Millisecond, CompactBytes: 512}))
		},
	}
}

// opened keeps a failed Open's nil a nil.
func opened(s *logstore.Store, err error) (store.Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

func TestStore(t *testing.T) { storetest.Run(t, harness()) }

func TestCrash(t *testing.T) { storetest.Crash(t, harness()) }
