package protocol

import (
	"slices"
	"testing"
)

type admission struct {
	Append
	AppendSeen
}

func (a admission) admit() Admission { return AdmitAppend(a.Append, a.AppendSeen) }

// admissions are all inputs of AdmitAppend over small domains.
func admissions() (all []admission) {
	tokens, numbers, bools := []string{"", "a", "b"}, []uint64{0, 1, 2}, []bool{false, true}
	for _, token := range tokens {
		for _, installed := range tokens {
			for _, session := range bools {
				for _, sessionFence := range numbers {
					for _, fence := range numbers {
						for _, hasMatch := range bools {
							for _, match := range numbers {
								for _, cursor := range numbers {
									for _, leads := range bools {
										all = append(all, admission{
											Append{token, session, sessionFence, hasMatch, match},
											AppendSeen{leads, installed, fence, cursor},
										})
									}
								}
							}
						}
					}
				}
			}
		}
	}
	return all
}

// specAdmission collects everything that speaks against a batch, and answers the gravest of it.
func specAdmission(a admission) Admission {
	against := []Admission{AppendAdmitted}
	if a.HasMatch {
		if first := a.Cursor; first != a.Match {
			against = append(against, AppendMissed)
		}
	}
	if a.InSession {
		if a.SessionFence < a.Fence || a.SessionFence > a.Fence {
			against = append(against, AppendFenced)
		}
	}
	if equal := a.Token == a.Installed; !equal {
		against = append(against, AppendFenced)
	}
	if !a.Leads {
		against = append(against, AppendUnavailable)
	}
	gravity := []Admission{AppendAdmitted, AppendMissed, AppendFenced, AppendUnavailable}
	return slices.MaxFunc(against, func(x, y Admission) int { return slices.Index(gravity, x) - slices.Index(gravity, y) })
}

func TestAdmitAppend(t *testing.T) {
	count := map[Admission]int{}
	for _, in := range admissions() {
		got := in.admit()
		count[got]++
		if want := specAdmission(in); got != want {
			t.Fatalf("%+v: got %v, want %v", in, got, want)
		}
	}
	// Of 5832 inputs, half don't lead. Of the others, 3 of 9 pairs of tokens are equal, and 12 of 18 session states stand;
	// of those, 12 of 18 matches are none or hit.
	want := map[Admission]int{AppendUnavailable: 2916, AppendAdmitted: 432, AppendMissed: 216, AppendFenced: 2268}
	total := 0
	for kind, n := range want {
		total += n
		if count[kind] != n {
			t.Errorf("answer %d: %d times, want %d", kind, count[kind], n)
		}
	}
	if total != len(admissions()) {
		t.Errorf("%d inputs, want %d", len(admissions()), total)
	}
}

// TestAppendFencedFirst: a writer that is locked out is never told another number, and one that may not be admitted is
// never told who stands by a node that doesn't lead.
func TestAppendFencedFirst(t *testing.T) {
	for _, in := range admissions() {
		out := in
		out.HasMatch, out.Match = true, in.Cursor+1
		if got := out.admit(); in.admit() == AppendFenced && got != AppendFenced {
			t.Fatalf("%+v: %v with a match that misses", in, got)
		}
	}
}

// TestFenceThenOpen: whatever was installed, who fences with a token and then opens a session with it is admitted until
// the next fence that installs, and never again in that session.
func TestFenceThenOpen(t *testing.T) {
	tokens := []string{"", "a", "b"}
	fence := func(s AppendSeen, token string) AppendSeen {
		if FenceInstalls(token, s.Installed) {
			s.Installed, s.Fence = token, s.Fence+1
		}
		return s
	}
	for _, first := range tokens {
		for _, mine := range tokens {
			for _, other := range tokens {
				s := fence(AppendSeen{Leads: true, Installed: first, Fence: 7}, mine)
				session := Append{Token: mine, InSession: true, SessionFence: s.Fence}
				if got := AdmitAppend(session, s); got != AppendAdmitted {
					t.Errorf("%q over %q: %v", mine, first, got)
				}
				s = fence(s, other)
				if got := AdmitAppend(session, s); (got == AppendAdmitted) != (other == mine) {
					t.Errorf("%q after %q: %v", mine, other, got)
				}
				if s = fence(s, mine); other != mine && AdmitAppend(session, s) != AppendFenced {
					t.Errorf("the session of %q lives on when it is installed again after %q", mine, other)
				}
				if got := AdmitAppend(Append{Token: mine}, s); got != AppendAdmitted {
					t.Errorf("a one-shot of %q, which is installed again: %v", mine, got)
				}
			}
		}
	}
}

func TestFenceInstalls(t *testing.T) {
	tokens := []string{"", "a", "A", "aa", "b"}
	for i, token := range tokens {
		for j, installed := range tokens {
			if got := FenceInstalls(token, installed); got != (i != j) {
				t.Errorf("%q over %q: %v", token, installed, got)
			}
		}
	}
}

// TestProofCovers: of every order of a few events, a write proves what was asked for before it was sent, and not what was
// asked for at the same event or later.
func TestProofCovers(t *testing.T) {
	for _, sent := range edges {
		for _, asked := range edges {
			if got, want := ProofCovers(Proof{Sent: sent}, asked), whole(sent).Cmp(whole(asked)) > 0; got != want {
				t.Errorf("sent at %d, asked at %d: %v", sent, asked, got)
			}
		}
	}
}

type settlement struct {
	PendingFrame
	PlaceSeen
}

func (s settlement) settle() FrameFate { return SettleFrame(s.PendingFrame, s.PlaceSeen) }

func settlements() (all []settlement) {
	numbers := []uint64{1, 2, 3}
	for reply := FrameUnknown; reply <= FrameRefused; reply++ {
		for _, place := range numbers {
			for _, opened := range []uint64{1, 2, 3, 4} {
				for _, found := range []uint64{0, 1, 2, 3, 4} {
					for _, epoch := range []uint64{1, 2} {
						for _, base := range numbers {
							for _, fences := range []bool{false, true} {
								for _, fence := range []uint64{1, 2} {
									all = append(all, settlement{
										PendingFrame{reply, place, 1, 2, fences, 2},
										PlaceSeen{opened, found, epoch, base, fence},
									})
								}
							}
						}
					}
				}
			}
		}
	}
	return all
}

// specFate says for each fate what proves it.
func specFate(s settlement) FrameFate {
	f, at := s.PendingFrame, s.PlaceSeen
	reached := f.Place < at.Opened
	here, behind := at.Found == f.Place, at.Found > f.Place
	own := here && at.Epoch == f.Epoch && at.Base == f.Base
	toCome := at.Base == f.Base || at.Base < f.Base
	if f.Fences {
		toCome = at.Fence < f.Fence
	}
	stored := f.Reply == FrameStored || f.Reply == FrameUnknown && reached && own
	absent := f.Reply == FrameRefused || f.Reply == FrameUnknown && (!reached || here && !own || behind && toCome)
	switch {
	case stored && !absent:
		return FateStored
	case absent && !stored:
		return FateAbsent
	}
	return FateUnknown
}

func TestSettleFrame(t *testing.T) {
	count := map[FrameFate]int{}
	for _, in := range settlements() {
		got := in.settle()
		count[got]++
		if want := specFate(in); got != want {
			t.Fatalf("%+v: got %v, want %v", in, got, want)
		}
	}
	for fate := FateUnknown; fate <= FateAbsent; fate++ {
		if count[fate] == 0 {
			t.Errorf("fate %d is never decided", fate)
		}
	}
}

// TestSettleFrameByLogs: against small logs, read whole or as they were before, with their beginning there or removed. A
// leader sent two frames, of which it had no answers: none, the first or both were stored. Then it led again, or another
// one did before and wrote a frame. What is said of a frame is true.
func TestSettleFrameByLogs(t *testing.T) {
	type stored struct{ seq, epoch, base, fence, next, nextFence uint64 }
	said := map[FrameFate]int{}
	for _, fences := range [][2]bool{{}, {true, false}, {false, true}, {true, true}} {
		for landed := range 3 {
			for others := range 2 {
				for control := uint64(1); control <= 3; control++ {
					next, fence, last := uint64(4), uint64(1), uint64(10)
					var log []stored
					write := func(epoch uint64, records, fenced bool) {
						last++
						f := stored{seq: last, epoch: epoch, base: next, fence: fence}
						if records {
							next++
						}
						if fenced { // a fence frame carries what it installs
							fence++
							f.fence = fence
						}
						f.next, f.nextFence = next, fence
						log = append(log, f)
					}
					write(9, false, false)
					var pending []PendingFrame
					base, number := next, fence
					for i, is := range fences {
						f := PendingFrame{Place: last + 1 + uint64(i), Epoch: 9, Base: base, Fences: is, Fence: number}
						if is {
							number++
							f.Fence = number
						} else {
							base++
						}
						pending = append(pending, f)
					}
					for _, is := range fences[:landed] {
						write(9, !is, is)
					}
					for range others {
						last += control
						write(last, false, false)
						write(last-1, true, false)
					}
					last += control
					write(last, false, false)
					for seen := range len(log) + 1 { // of the log by the one that answers
						for purged := range len(log) {
							for i, f := range pending {
								at := PlaceSeen{Opened: last}
								for _, s := range log[:seen][min(seen, purged):] {
									if s.seq >= f.Place {
										at.Found, at.Epoch, at.Base, at.Fence = s.seq, s.epoch, s.base, s.fence
										break
									}
								}
								fate := SettleFrame(f, at)
								said[fate]++
								if fate == FateStored && i >= landed || fate == FateAbsent && i < landed {
									t.Fatalf("frame %d %+v: %v of %+v by %+v; %d landed", i, f, fate, log, at, landed)
								}
								if whole := seen == len(log) && purged == 0; whole && fate == FateUnknown {
									t.Fatalf("frame %d %+v: unknown of %+v by %+v", i, f, log, at)
								}
							}
						}
					}
				}
			}
		}
	}
	if len(said) != 3 {
		t.Errorf("said %v", said)
	}
}

func TestNoDeadInputsOfAppend(t *testing.T) {
	var appends []Append
	var seen []AppendSeen
	for _, in := range admissions() {
		appends, seen = append(appends, in.Append), append(seen, in.AppendSeen)
	}
	by := AppendSeen{Leads: true, Installed: "a", Fence: 1, Cursor: 1}
	wantNoDeadInput(t, "AdmitAppend", appends, func(a Append) Admission { return AdmitAppend(a, by) })
	of := Append{Token: "a", InSession: true, SessionFence: 1, HasMatch: true, Match: 1}
	wantNoDeadInput(t, "AdmitAppend", seen, func(s AppendSeen) Admission { return AdmitAppend(of, s) })
	type fence struct{ Token, Installed string }
	wantNoDeadInput(t, "FenceInstalls", []fence{{"a", "b"}, {"b", "a"}}, func(f fence) bool { return FenceInstalls(f.Token, f.Installed) })
	type proof struct{ Sent, Requested uint64 }
	wantNoDeadInput(t, "ProofCovers", []proof{{1, 2}, {2, 1}}, func(p proof) bool { return ProofCovers(Proof{p.Sent}, p.Requested) })
	var frames []PendingFrame
	for _, epoch := range []uint64{1, 2} {
		for _, base := range []uint64{1, 2, 3} {
			for _, fence := range []uint64{2, 3} {
				for _, in := range settlements() {
					f := in.PendingFrame
					f.Epoch, f.Base, f.Fence = epoch, base, fence
					if !slices.Contains(frames, f) {
						frames = append(frames, f)
					}
				}
			}
		}
	}
	here, behind := PlaceSeen{Opened: 4, Found: 2, Epoch: 1, Base: 2, Fence: 2}, PlaceSeen{Opened: 4, Found: 3, Epoch: 1, Base: 2, Fence: 2}
	wantNoDeadInput(t, "SettleFrame", frames, func(f PendingFrame) [2]FrameFate {
		return [2]FrameFate{SettleFrame(f, here), SettleFrame(f, behind)}
	})
	type fates [2]FrameFate
	var places []PlaceSeen
	for _, in := range settlements() {
		if !slices.Contains(places, in.PlaceSeen) {
			places = append(places, in.PlaceSeen)
		}
	}
	records := PendingFrame{Place: 2, Epoch: 1, Base: 2, Fence: 2}
	fencing := records
	fencing.Fences = true
	wantNoDeadInput(t, "SettleFrame", places, func(at PlaceSeen) fates {
		return fates{SettleFrame(records, at), SettleFrame(fencing, at)}
	})
}
