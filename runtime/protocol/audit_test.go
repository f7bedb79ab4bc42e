package protocol

import "testing"

func auditInputs() (out []AuditSeen) {
	for before := range uint64(4) {
		for after := before; after < 4; after++ {
			for listed := range after + 2 {
				out = append(out, AuditSeen{Before: before, After: after, Listed: listed})
				for row := range uint64(6) {
					out = append(out, AuditSeen{Before: before, After: after, Row: row, Listed: listed, HasRow: true})
				}
			}
		}
	}
	return out
}

// Every verdict by what is compared: a row that was written after the listing began, or that has no known revision, is not
// judged by the listing alone, and neither is anything by what was listed of later writes.
func TestAuditKey(t *testing.T) {
	seen := map[AuditVerdict]int{}
	for _, in := range auditInputs() {
		inTime := in.Listed <= in.After
		judged := in.HasRow && in.Row != 0 && in.Row <= in.Before && inTime
		got := AuditKey(in)
		for verdict, is := range map[AuditVerdict]bool{
			AuditStale:       judged && in.Listed == 0,
			AuditContradicts: judged && in.Listed != 0 && in.Listed < in.Row,
			AuditSuspect:     inTime && (!in.HasRow && in.Listed != 0 || judged && in.Listed > in.Row),
			AuditUnsure:      in.HasRow && in.Row == 0 && in.Listed == 0,
		} {
			if (got == verdict) != is {
				t.Errorf("%+v: %v", in, got)
			}
		}
		seen[got]++
	}
	if len(seen) != 5 {
		t.Fatalf("seen %v", seen)
	}
}

// auditRun is one key through a fold that followed the log to live, was away until back, and follows it since; and an audit
// whose listing read the key at listed, between before and after, while the row was read at read. Tombstones that are the
// key's last message vanish after each revision whose bit is set in vanish.
type auditRun struct {
	h                           history
	vanish                      int
	live, back                  int
	before, listed, after, read int
	missed                      int // a revision that the fold was never given; 0 is none
}

// held is the key's last message that the log holds once it has come to at; 0 is none.
func (r *auditRun) held(at int) int {
	last := r.h.last(at)
	if last > 0 && r.h[last-1] == stepDelete {
		for v := last; v <= at; v++ {
			if r.vanish>>(v-1)&1 == 1 {
				return 0
			}
		}
	}
	return last
}

// row is the fold's row when it has applied everything up to at.
func (r *auditRun) row(from, at int) int {
	for rev := r.live + 1; rev <= at; rev++ {
		gone := rev <= r.back && r.held(r.back) != rev
		switch {
		case gone, rev == r.missed:
		case r.h[rev-1] == stepPut:
			from = rev
		case r.h[rev-1] == stepDelete:
			from = 0
		}
	}
	return from
}

// value is the revision of the value that a reader of the log gets at a revision.
func (r *auditRun) value(at int) int {
	if rev := r.held(at); rev > 0 && r.h[rev-1] == stepPut {
		return rev
	}
	return 0
}

func (r *auditRun) seen(row int, hidden bool) AuditSeen {
	s := AuditSeen{Before: uint64(r.before), After: uint64(r.after), Row: uint64(row), HasRow: row > 0, Listed: uint64(r.value(r.listed))}
	if hidden {
		s.Row = 0
	}
	return s
}

// audits calls each with every audit of every history of n revisions.
func audits(n, vanishes int, each func(auditRun)) {
	for _, h := range histories(n) {
		for vanish := range vanishes {
			for live := range n + 1 {
				for back := live; back <= n; back++ {
					for before := range n + 1 {
						for after := max(before, back); after <= n; after++ {
							for listed := before; listed <= after; listed++ {
								for read := after; read <= n; read++ {
									each(auditRun{h, vanish, live, back, before, listed, after, read, 0})
								}
							}
						}
					}
				}
			}
		}
	}
}

// Against every small log whose markers vanish at any time: what is stale was deleted, a fold of the same history is never
// contradicted, no suspect is missing, and an audit that settles what is owed finds every key that was deleted unseen.
func TestAuditFindsWhatIsStaleAndNothingElse(t *testing.T) {
	const n = 4
	found, foundUnsure, late := 0, 0, 0
	audits(n, 1<<n, func(r auditRun) {
		row := r.row(r.h.truth(r.live), r.read)
		zombie := row > 0 && r.h.truth(r.read) == 0
		settles := AuditSettles(uint64(r.before), uint64(r.back))
		got := AuditKey(r.seen(row, false))
		switch {
		case got == AuditContradicts:
			t.Fatalf("%+v: row %d contradicts", r, row)
		case got == AuditStale && !zombie:
			t.Fatalf("%+v: row %d was not deleted", r, row)
		case zombie && got != AuditStale && settles:
			t.Fatalf("%+v: row %d was deleted, and the audit says %v", r, row, got)
		case zombie && got != AuditStale:
			late++
		case zombie:
			found++
		}
		for last := r.read; last <= n && got == AuditSuspect; last++ {
			value := r.value(last)
			if SuspectIsMissing(value > 0, uint64(r.held(last)), uint64(r.read)) {
				t.Fatalf("%+v: the suspect at %d is missing", r, value)
			}
		}
		if row == 0 {
			return
		}
		got = AuditKey(r.seen(row, true))
		stale := got == AuditUnsure && r.value(r.read) == 0
		if got != AuditAgrees && got != AuditUnsure || stale && !zombie || zombie && settles && !stale {
			t.Fatalf("%+v: row %d of unknown revision: %v", r, row, got)
		}
		if stale {
			foundUnsure++
		}
	})
	if found == 0 || foundUnsure == 0 || late == 0 {
		t.Fatalf("found %d, of unknown revision %d; %d were for a later audit", found, foundUnsure, late)
	}
}

// A value that a fold was never given, and that is still there, is a suspect that is missing, whether the fold has an older
// one or none.
func TestAuditFindsAMissedWrite(t *testing.T) {
	const n = 4
	older, none := 0, 0
	audits(n, 1, func(r auditRun) {
		if r.live != r.back {
			return
		}
		r.live = 0
		r.back = 0
		for r.missed = 1; r.missed <= r.before; r.missed++ {
			row := r.row(0, r.read)
			if r.h[r.missed-1] != stepPut || r.h.last(r.read) != r.missed || row == r.missed {
				continue
			}
			if got := AuditKey(r.seen(row, false)); got != AuditSuspect || !SuspectIsMissing(true, uint64(r.missed), uint64(r.read)) {
				t.Fatalf("%+v: row %d, and the audit says %v", r, row, got)
			}
			if row > 0 {
				older++
			} else {
				none++
			}
		}
	})
	if older == 0 || none == 0 {
		t.Fatalf("%d rows were older, %d were not there", older, none)
	}
}

// A log that lost its end and was written on, under a fold that did not notice: a contradiction, or a suspect that is
// missing, is only ever told of two histories, and what is stale is not in the log.
func TestAuditOfARewoundLog(t *testing.T) {
	const n = 4
	contradicted, missing := 0, 0
	for _, old := range histories(n) {
		for _, now := range histories(n) {
			for cursor := 1; cursor <= n; cursor++ { // the fold had all of old up to here, and goes on with now
				for before := cursor; before <= n; before++ {
					r := auditRun{h: now, live: cursor, back: cursor, before: before, listed: before, after: n, read: n}
					row := r.row(old.truth(cursor), n)
					got := AuditKey(r.seen(row, false))
					gone := got == AuditSuspect && SuspectIsMissing(now.truth(n) > 0, uint64(now.last(n)), n)
					switch one := old.truth(cursor) == now.truth(cursor); {
					case one && (gone || got == AuditContradicts):
						t.Fatalf("%v and %v, cursor %d: row %d: %v", old, now, cursor, row, got)
					case gone:
						missing++
					case got == AuditContradicts:
						contradicted++
					case got == AuditStale && now.truth(n) != 0:
						t.Fatalf("%v and %v, cursor %d: row %d is stale", old, now, cursor, row)
					}
				}
			}
		}
	}
	if contradicted == 0 || missing == 0 {
		t.Fatalf("%d contradicted, %d missing", contradicted, missing)
	}
}

func TestSuspectIsMissing(t *testing.T) {
	for _, value := range bools {
		for last := range uint64(5) {
			for applied := range uint64(5) {
				excused := !value || last > applied
				if got := SuspectIsMissing(value, last, applied); got == excused {
					t.Errorf("value %v at %d, applied %d: %v", value, last, applied, got)
				}
			}
		}
	}
}

func TestAuditSettles(t *testing.T) {
	for _, before := range edges {
		for _, owed := range edges {
			later := owed > before // something may have gone missing once the listing had begun
			if got := AuditSettles(before, owed); got == later {
				t.Errorf("begun at %d, owed since %d: %v", before, owed, got)
			}
		}
	}
}
