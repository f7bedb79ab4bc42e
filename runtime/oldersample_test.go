package fold_test

import (
	"fmt"
	"testing"
)

// TestAnOlderSampleDoesNotProveTheLog: the log loses its last message and is written again past where it was, and the
// cursor's message is superseded by then. All the older ones that the fold remembers are where they were, which proves
// nothing: an audit is owed.
func TestAnOlderSampleDoesNotProveTheLog(t *testing.T) {
	dir, log := t.TempDir(), newLog()
	tb := start(t, log, openStore(t, backends[0], dir), startOptions{})
	const cold = 130 // writes until some older ones are remembered
	for i := range cold {
		setRoute(t, log, route("t", fmt.Sprint("cold", i), ""))
		tb.caughtUp(t, log)
	}
	setRoute(t, log, route("t", "lost", ""))
	tb.caughtUp(t, log)
	tb.close(t)
	log.Rewind(cold)
	setRoute(t, log, route("t", "new", "1"))
	setRoute(t, log, route("t", "new", "2"))
	tb = start(t, log, openStore(t, backends[0], dir), startOptions{})
	tb.caughtUp(t, log)
	wantRoute(t, tb, "t", "new", "2")
	wantOwed(t, tb, "identity", cold+2)
}
