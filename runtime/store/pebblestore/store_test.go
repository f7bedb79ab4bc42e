package pebblestore

import (
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/storetest"
)

func harness() storetest.Harness {
	return storetest.Harness{
		Open: func(dir string, m storetest.Mode) (store.Store, error) { return Open(dir, testOptions(m)) },
		OpenReadOnly: func(dir string) (store.Store, error) {
			return Open(dir, Options{ReadOnly: true, CacheBytes: 4 << 20})
		},
	}
}

func testOptions(m storetest.Mode) Options {
	modes := map[storetest.Mode]Durability{storetest.ModeSync: Sync, storetest.ModeInterval: Interval, storetest.ModeNone: None}
	return Options{Durability: modes[m], FlushInterval: 2 * time.Millisecond, BulkMinUpdates: 2, CacheBytes: 4 << 20, BallastBytes: -1}
}

func TestConformance(t *testing.T) { storetest.Run(t, harness()) }

func TestCrash(t *testing.T) { storetest.Crash(t, harness()) }
