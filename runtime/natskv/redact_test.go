package natskv

import (
	"strings"
	"testing"
)

// TestRedactURLs: neither a user nor a query is shown, of URLs that can be parsed and of others.
func TestRedactURLs(t *testing.T) {
	for in, want := range map[string]string{
		"nats://h:4222":                         "nats://h:4222",
		"h:4222,i:4222":                         "h:4222,i:4222",
		"nats://u:geheim@h:4222":                "nats://***@h:4222",
		"u:geheim@h,nats://u:ge,heim@i,j":       "***@h,nats://***@i,j",
		"ws://h/p?tok=geheim":                   "ws://h/p?***",
		"ws://u:geheim@h/p?tok=geheim":          "ws://***@h/p?***",
		"ws://h/p?tok=geh@eim":                  "ws://***",
		"ws://u:geh?eim@h":                      "ws://***",
		"ws://h?t=geheim,wss://u:geheim@i?t=ge": "ws://h?***,wss://***@i?***",
		"ws://h?t=gehe,im,wss://i":              "ws://h?***,wss://i",
		"ws://h?t=a,geheim":                     "ws://h?***",
	} {
		got := redactURLs(in)
		if got != want || strings.Contains(got, "geh") {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}
