package models

import "testing"

// TestAuditLogRewinds: a log that loses its end has back what the end superseded, and is in another writing of its past.
func TestAuditLogRewinds(t *testing.T) {
	w := incarnationStops
	l := auditLog{created: 1}
	for _, m := range []auditMessage{{auditPut, 0, 0}, {auditPut, 1, 0}, {auditPut, 0, 0}, {auditDel, 1, 0}} {
		l.write(m.key, m.kind)
	}
	if l.there != 1<<3|1<<4 || w.truth(&l) != (auditRows{{3, 0}}) {
		t.Fatalf("%+v is %v", l, w.truth(&l))
	}
	sample := l.row(3)
	l.rewind(2)
	if l.last != 2 || l.there != 1<<1|1<<2 || w.truth(&l) != (auditRows{{1, 0}, {2, 0}}) {
		t.Fatalf("%+v is %v", l, w.truth(&l))
	}
	l.write(1, auditPut)
	if got := l.row(3); got == sample || auditTime(got) <= auditTime(sample) {
		t.Errorf("revision 3 is %v, and was %v", got, sample)
	}
	if l.first() != 1 || l.after(1) != 3 {
		t.Errorf("%+v begins at %d", l, l.first())
	}
}
