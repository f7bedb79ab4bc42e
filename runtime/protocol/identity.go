package protocol

import "slices"

// LogAnswer is what can be said of a log that a cursor is about to be resumed on.
type LogAnswer uint8

const (
	// LogUnknown: nothing contradicts that it is the same log, and nothing proves it. It resumes, and owes an audit.
	LogUnknown LogAnswer = iota
	// LogSame: the cursor's message is where it was, with its time.
	LogSame
	// LogReplaced: the log was created at another time, so it is another log under the same name.
	LogReplaced
	// LogRewound: the same log lost its end (a restored backup, acknowledged writes lost): it ends before the cursor,
	// or holds another message at a sampled revision.
	LogRewound
)

func (a LogAnswer) String() string {
	switch a {
	case LogSame:
		return "same"
	case LogReplaced:
		return "replaced"
	case LogRewound:
		return "rewound"
	default:
		return "unknown"
	}
}

// SampleFound is what reading one sampled message back gave.
type SampleFound uint8

const (
	// SampleAbsent: no message at that revision; it may have been superseded or evicted.
	SampleAbsent SampleFound = iota
	// SampleMatches: there, with the time that was noted.
	SampleMatches
	// SampleDiffers: there, with another time.
	SampleDiffers
)

// LogSeen is what is known of a log at a resume.
type LogSeen struct {
	// NotedCreated is the creation time kept beside the cursor; 0 when none was kept.
	NotedCreated int64
	// Created is the log's creation time now.
	Created int64
	// Cursor is the revision to resume after.
	Cursor uint64
	// Last is the log's last revision now.
	Last uint64
	// AtCursor is the reading of the message at Cursor; SampleAbsent when none was noted.
	AtCursor SampleFound
	// Samples are the readings of the other noted messages, in any order. One that is where it was says nothing of what
	// came after it, and a log that lost its end may have been written again from there.
	Samples []SampleFound
}

// LogIsSame (log_is_same) judges whether the log that a cursor came from is the one that is there now. JetStream
// resumes on another log without an error and then delivers nothing, or the wrong part (reliability: bucket deleted
// and re-created, backup restored, writes lost).
func LogIsSame(s LogSeen) LogAnswer {
	if s.NotedCreated != 0 && s.NotedCreated != s.Created {
		return LogReplaced
	}
	if s.Cursor > s.Last {
		return LogRewound
	}
	if s.AtCursor == SampleDiffers || slices.Contains(s.Samples, SampleDiffers) {
		return LogRewound
	}
	if s.AtCursor == SampleMatches {
		return LogSame
	}
	return LogUnknown
}
