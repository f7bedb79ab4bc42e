package kv

import (
	"testing"

	"github.com/typedfold/fold/runtime/protocol"
)

// The decisions see each part of a retention.
func TestRetentionKernel(t *testing.T) {
	for have, want := range map[Retention]protocol.Retention{
		{}:                          {Known: true},
		{Unknown: true}:             {},
		{EvictsCurrentValues: true}: {Known: true, Evicts: true},
		{EvictsInside: true}:        {Known: true, Inside: true},
		{First: 7}:                  {Known: true, First: 7},
	} {
		if got := have.Kernel(); got != want {
			t.Errorf("%+v is %+v, want %+v", have, got, want)
		}
	}
}
