package protocol

import "testing"

// TestAuditKeyByTime: one revision with two times is of two histories, whatever else holds; a time that is not known says
// nothing, and neither do the times of two revisions.
func TestAuditKeyByTime(t *testing.T) {
	same := AuditSeen{Before: 9, After: 9, Row: 5, Listed: 5, HasRow: true, RowTime: 70, ListedTime: 71}
	if v := AuditKey(same); v != AuditContradicts {
		t.Errorf("%+v: %v", same, v)
	}
	for name, change := range map[string]func(*AuditSeen){
		"one message":          func(s *AuditSeen) { s.ListedTime = 70 },
		"row's time unknown":   func(s *AuditSeen) { s.RowTime = 0 },
		"listed time unknown":  func(s *AuditSeen) { s.ListedTime = 0 },
		"listed after the end": func(s *AuditSeen) { s.Listed = 10 },
	} {
		s := same
		change(&s)
		if v := AuditKey(s); v != AuditAgrees {
			t.Errorf("%s: %+v: %v", name, s, v)
		}
	}
	later := same
	later.Listed = 6
	if v := AuditKey(later); v != AuditSuspect {
		t.Errorf("another revision: %v", v)
	}
}
