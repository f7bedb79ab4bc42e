package natskv

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func TestLimits(t *testing.T) {
	both := jetstream.StreamConfig{Discard: jetstream.DiscardOld, MaxBytes: 1000, MaxMsgs: 10}
	with := func(change func(*jetstream.StreamConfig)) jetstream.StreamConfig {
		c := both
		change(&c)
		return c
	}
	for name, c := range map[string]struct {
		config          jetstream.StreamConfig
		bytes, messages uint64
	}{
		"both":                  {both, 1000, 10},
		"bytes alone":           {with(func(c *jetstream.StreamConfig) { c.MaxMsgs = -1 }), 1000, 0},
		"messages alone":        {with(func(c *jetstream.StreamConfig) { c.MaxBytes = -1 }), 0, 10},
		"none":                  {with(func(c *jetstream.StreamConfig) { c.MaxBytes, c.MaxMsgs = -1, -1 }), 0, 0},
		"new ones are refused":  {with(func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardNew }), 0, 0},
		"age takes some too":    {with(func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }), 0, 0},
		"messages may end, too": {with(func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true }), 0, 0},
	} {
		if bytes, messages := limits(&c.config); bytes != c.bytes || messages != c.messages {
			t.Errorf("%s: %d bytes, %d messages", name, bytes, messages)
		}
	}
	info := (&Bucket{name: "b"}).logInfo(&jetstream.StreamInfo{Config: both, State: jetstream.StreamState{Bytes: 7}})
	if info.Bytes != 7 || info.MaxBytes != 1000 || info.MaxMessages != 10 {
		t.Errorf("%+v", info)
	}
}
