package main

import (
	"log/slog"
	"testing"
	"time"
)

// TestEmbeddedSyncs: what --sync says is what the log's server does.
func TestEmbeddedSyncs(t *testing.T) {
	for _, always := range []bool{false, true} {
		e, err := startEmbedded(t.TempDir(), "", always, 7*time.Second, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if c := e.srv.JetStreamConfig(); c == nil || c.SyncAlways != always || c.SyncInterval != 7*time.Second {
			t.Errorf("always %t: %+v", always, c)
		}
		if e.srv.Addr() != nil {
			t.Errorf("it listens on %v", e.srv.Addr())
		}
		if err := e.close(); err != nil {
			t.Error(err)
		}
	}
}
