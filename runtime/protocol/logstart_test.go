package protocol

import "testing"

func TestStartLog(t *testing.T) {
	for seen, want := range map[LogStartSeen]LogStart{
		{}:                            LogBegins,
		{HasFrame: true}:              LogBegins, // nothing of it may be acknowledged before that is noted
		{Begun: true}:                 LogDamaged,
		{Begun: true, HasFrame: true}: LogLeads,
	} {
		if got := StartLog(seen); got != want {
			t.Errorf("%+v: %v, not %v", seen, got, want)
		}
	}
}
