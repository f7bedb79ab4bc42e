package main

import (
	"strings"
	"testing"

	"github.com/typedfold/fold/runtime/store/storetest"
)

// taskPanic is what TestMain does as a child: a panic of this repository's own code.
const taskPanic = "panic"

// TestWhoEndedTheProcess: only Pebble may.
func TestWhoEndedTheProcess(t *testing.T) {
	const (
		fatal = "panic: (*fs.PathError) 0x24\n\tfatal error: sync: unlock of unlocked mutex\n\n" +
			"goroutine 36 [running]:\ninternal/sync.fatal({0xd1?, 0x24?})\n\t/usr/go/panic.go:1191 +0x18\nsync.(*Mutex).Unlock(...)\n\t/usr/go/mutex.go:65\n"
		plain  = "panic: injected\n\ngoroutine 7 gp=0x1 m=2 mp=0x3 [running]:\npanic({0xc1, 0x24?})\n\t/usr/go/panic.go:860 +0x13a\n"
		pebble = "github.com/cockroachdb/pebble/v2.(*DB).rotateWAL(0x24)\n\t/mod/db.go:2835 +0x2b5\n"
		ours   = "github.com/typedfold/fold/runtime/store/pebblestore.(*Store).applyBulk.func1()\n\t/fold/bulk.go:67 +0x15c\n"
		logger = "github.com/typedfold/fold/runtime/store/pebblestore.(*logger).Fatalf(0x2, {0xd1, 0x5})\n\t/fold/logger.go:50 +0x1\n"
		goexit = "runtime.Goexit()\n\t/usr/go/panic.go:700 +0x5\n"
		begun  = "created by github.com/cockroachdb/pebble/v2.Open in goroutine 1\n\t/mod/open.go:1 +0x1\n"
	)
	for what, c := range map[string]struct {
		code   int
		stderr string
		pebble bool
	}{
		"a panic of Pebble's":                     {2, plain + pebble + ours, true},
		"one through a lock":                      {2, fatal + "panic({0xc1?, 0x24?})\n" + pebble + ours, true},
		"Pebble's fatal errors":                   {2, fatal + goexit + logger + pebble + ours, true},
		"a panic of ours":                         {2, plain + ours, false},
		"one of ours that Pebble calls":           {2, plain + ours + pebble, false},
		"one of ours through a lock":              {2, fatal + ours + pebble, false},
		"one of the command's":                    {2, plain + "main.(*task).fail(0x1)\n\t/fold/faults.go:1 +0x1\n" + pebble, false},
		"a runtime that gives up":                 {2, "fatal error: all goroutines are asleep - deadlock!\n\ngoroutine 1 [select]:\n" + pebble, false},
		"a trace with no more than the library's": {2, plain + begun, false},
		"no trace":                                {2, "flag provided but not defined", false},
		"another exit":                            {1, plain + pebble, false},
		"a signal":                                {-1, "", false},
	} {
		if err := endedByPebble(c.code, c.stderr); (err == nil) != c.pebble {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestAPanicInAChildIsWrong, and says where it was.
func TestAPanicInAChildIsWrong(t *testing.T) {
	f := &faults{name: "fault/planted", mode: storetest.ModeNone, tally: newTally(&strings.Builder{})}
	_, _, err := f.failInChild(t.Context(), &task{Op: taskPanic, Dir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "crash.TestMain") {
		t.Errorf("it passes, or does not say where it was: %v", err)
	}
	if f.tally.count("fault/planted, the process ended") != 0 {
		t.Error("it counts as Pebble's end of the process")
	}
}
