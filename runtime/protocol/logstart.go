package protocol

// LogStartSeen is what a node has found of the log that it is to lead.
type LogStartSeen struct {
	// Begun: the log is known to have begun. That is noted when it has its first frame, and before anything in it is
	// acknowledged; it is not taken back, and not lost with the log's messages.
	Begun bool
	// HasFrame: a frame was found in it. While it has begun, one that is not found in time is not there.
	HasFrame bool
}

// LogStart is what a node does with a log before it leads it.
type LogStart uint8

const (
	// LogDamaged: nobody can say which number comes next, nor which token is installed.
	LogDamaged LogStart = iota
	// LogBegins: its creation was cut off. It gets its first frame, unless it has one, and then it is noted that it has begun.
	LogBegins
	// LogLeads: it is led.
	LogLeads
)

// StartLog decides what to do with a log. An empty one that has begun has lost what it held: servers that keep messages in
// memory make it anew when all of them have been restarted, with every setting that it had. If it began again at number 0,
// numbers would be given twice, and a fence would be forgotten.
func StartLog(s LogStartSeen) LogStart {
	switch {
	case !s.Begun:
		return LogBegins
	case !s.HasFrame:
		return LogDamaged
	}
	return LogLeads
}
