package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/typedfold/fold/client"
)

// TestABenchThatAppendsNothing says so.
func TestABenchThatAppendsNothing(t *testing.T) {
	w := serve(t)
	w.ok(t, "", "create", addr)
	if f := w.fails(t, exitFailed, "", "bench", addr, "--duration", "1ns"); !strings.Contains(f.Error, "no batch was appended") || f.Hint == "" {
		t.Errorf("%+v", f)
	}
}

// TestReplicasOfOneServer: what the log's server can't hold is a mistake of the command.
func TestReplicasOfOneServer(t *testing.T) {
	w := serve(t)
	if f := w.fails(t, exitUsage, "", "create", addr, "--replicas", "3"); f.Outcome != "" || !strings.Contains(f.Error, "not supported") || !strings.Contains(f.Hint, "nova serve --nats") {
		t.Errorf("%+v", f)
	}
}

// TestUsageMeansThatNothingWasChanged: an input that goes wrong behind records that were appended is no mistake of the command.
func TestUsageMeansThatNothingWasChanged(t *testing.T) {
	bad := fmt.Errorf("append: %w", &client.InvalidError{Err: errors.New("too large")})
	for records, want := range map[uint64]int{0: exitUsage, 3: exitFailed} {
		err := &partialError{appended{Records: records}, bad}
		if got := codeOf(err); got != want {
			t.Errorf("behind %d records the code is %d", records, got)
		}
	}
}
