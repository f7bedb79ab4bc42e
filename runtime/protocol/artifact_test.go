package protocol

import (
	"math"
	"math/big"
	"slices"
	"testing"
)

// publish is an input of PointerPublishAllowed, flat.
type publish struct {
	Present, Readable bool
	PointerLog        int64
	Pointer           uint64
	CandidateLog      int64
	Candidate         uint64
	LiveLog           int64
	Last              uint64
}

func (in publish) pointer() PointerState {
	return PointerState{Present: in.Present, Readable: in.Readable, At: Position{Log: in.PointerLog, Revision: in.Pointer}}
}

func (in publish) candidate() Position { return Position{Log: in.CandidateLog, Revision: in.Candidate} }

func (in publish) live() Position { return Position{Log: in.LiveLog, Revision: in.Last} }

func (in publish) allowed() bool {
	return PointerPublishAllowed(in.pointer(), in.candidate(), in.live())
}

func publishes() (out []publish) {
	logs := []int64{0, 1, 2, 3}
	for _, slot := range [][2]bool{{}, {true, false}, {true, true}, {false, true}} {
		for _, pointerLog := range logs {
			for _, candidateLog := range logs {
				for _, liveLog := range logs {
					for pointer := range uint64(4) {
						for candidate := range uint64(4) {
							for last := range uint64(5) {
								out = append(out, publish{slot[0], slot[1], pointerLog, pointer, candidateLog, candidate, liveLog, last})
							}
						}
					}
				}
			}
		}
	}
	return out
}

// cannotHave reports whether a log that ends at last can't be where a position comes from.
func cannotHave(live int64, last uint64, log int64, rev uint64) bool {
	return live > 0 && (log > 0 && log != live || !(rev <= last))
}

// The answer, as a list of cases in the order of a person who asks.
func specPublish(in publish) bool {
	pointerDead := cannotHave(in.LiveLog, in.Last, in.PointerLog, in.Pointer)
	candidateDead := cannotHave(in.LiveLog, in.Last, in.CandidateLog, in.Candidate)
	ordered := in.PointerLog*in.CandidateLog == 0 || in.PointerLog == in.CandidateLog
	forward := ordered && !(in.Candidate < in.Pointer)
	switch {
	case !(in.Present && in.Readable):
		return true
	case pointerDead == candidateDead:
		return forward
	case candidateDead:
		return false
	default: // the pointer is dead, the candidate may live
		return forward || in.CandidateLog > 0
	}
}

func TestPointerPublishAllowed(t *testing.T) {
	answers := map[bool]int{}
	for _, in := range publishes() {
		got := in.allowed()
		if want := specPublish(in); got != want {
			t.Fatalf("%+v: got %v, want %v", in, got, want)
		}
		answers[got]++
	}
	if answers[true] == 0 || answers[false] == 0 {
		t.Fatal(answers)
	}
	wantNoDeadInput(t, "PointerPublishAllowed", publishes(), publish.allowed)
}

// Without logs the answer is the seed's table.
func TestPointerPublishAllowedAsTheSeed(t *testing.T) {
	for _, revs := range [][2]uint64{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {5, 7}, {math.MaxUint64, 0}, {0, math.MaxUint64}, {math.MaxUint64, math.MaxUint64}} {
		candidate := Position{Revision: revs[1]}
		for _, c := range []struct {
			state PointerState
			want  bool
		}{
			{PointerState{}, true},
			{PointerState{Present: true, At: Position{Revision: revs[0]}}, true},
			{PointerState{Present: true, Readable: true, At: Position{Revision: revs[0]}}, revs[1] >= revs[0]},
		} {
			if got := PointerPublishAllowed(c.state, candidate, Position{}); got != c.want {
				t.Errorf("%+v, candidate %d: got %v", c.state, revs[1], got)
			}
		}
	}
}

// What is promised, each as a law over the whole domain.
func TestPointerPublishLaws(t *testing.T) {
	for _, in := range publishes() {
		if !in.Present || !in.Readable {
			continue
		}
		ok := in.allowed()
		sameLog := in.PointerLog == in.CandidateLog
		held := in.LiveLog != 0 && in.CandidateLog == in.LiveLog && in.Candidate <= in.Last
		if ok && sameLog && in.Candidate < in.Pointer && (in.LiveLog == 0 || in.Pointer <= in.Last) {
			t.Fatalf("%+v: the pointer goes back within its log", in)
		}
		if !ok && held && in.PointerLog != 0 && in.PointerLog != in.LiveLog {
			t.Fatalf("%+v: another log's pointer blocks the live log's export", in)
		}
		if !ok && held && in.Pointer > in.Last {
			t.Fatalf("%+v: a pointer past the log's end blocks its export", in)
		}
		if ok && in.LiveLog != 0 && in.PointerLog == in.LiveLog && in.Pointer <= in.Last && (in.CandidateLog != 0 && in.CandidateLog != in.LiveLog || in.Candidate > in.Last) {
			t.Fatalf("%+v: an exporter of a log that is gone takes the live log's place", in)
		}
		if ok && in.LiveLog == 0 && in.CandidateLog*in.PointerLog != 0 && !sameLog {
			t.Fatalf("%+v: two logs have no order, and it is not known which one lives", in)
		}
	}
}

// pruning is an input of PayloadPrunable, flat.
type pruning struct {
	Ranked            bool
	Log               int64
	Rev               uint64
	Target, Kept      bool
	Aged, LongAged    bool
	Present, Readable bool
	PointerLog        int64
	Pointer           uint64
	LiveLog           int64
	Last              uint64
}

func (in pruning) prunable() bool {
	return PayloadPrunable(Payload{
		Ranked: in.Ranked, At: Position{Log: in.Log, Revision: in.Rev}, Target: in.Target, Kept: in.Kept, AgedOut: in.Aged, LongAgedOut: in.LongAged,
	}, in.pointer(), in.live())
}

func (in pruning) pointer() PointerState {
	return PointerState{Present: in.Present, Readable: in.Readable, At: Position{Log: in.PointerLog, Revision: in.Pointer}}
}

func (in pruning) live() Position { return Position{Log: in.LiveLog, Revision: in.Last} }

func prunings() (out []pruning) {
	for flags := range 1 << 7 {
		bit := func(n int) bool { return flags>>n&1 == 1 }
		for log := range int64(3) {
			for pointerLog := range int64(3) {
				for liveLog := range int64(3) {
					for rev := range uint64(4) {
						for pointer := range uint64(3) {
							for last := range uint64(4) {
								out = append(out, pruning{bit(0), log, rev, bit(1), bit(2), bit(3), bit(4), bit(5), bit(6), pointerLog, pointer, liveLog, last})
							}
						}
					}
				}
			}
		}
	}
	return out
}

// specPrunable asks the publish kernel itself: whatever log the payload may be of, can it still be published?
func specPrunable(in pruning) bool {
	if in.Target || in.Kept || !in.Ranked || !in.Aged || !in.Present || !in.Readable {
		return false
	}
	logs := []int64{in.Log}
	if in.Log == 0 {
		logs = []int64{1, 2, 9}
	}
	publishable := slices.ContainsFunc(logs, func(log int64) bool {
		return PointerPublishAllowed(in.pointer(), Position{Log: log, Revision: in.Rev}, in.live())
	})
	pointerDead := cannotHave(in.LiveLog, in.Last, in.PointerLog, in.Pointer)
	switch {
	case pointerDead:
		return false
	case in.LiveLog == 0: // no order but that of revisions, and that only with time
		return in.LongAged && !publishable && (in.Log*in.PointerLog == 0 || in.Log == in.PointerLog) && in.Rev < in.Pointer
	case publishable:
		return false
	case in.Rev > in.Last && (in.Log == 0 || in.Log == in.LiveLog): // refused now, and not when the log has grown
		return in.LongAged
	case in.Log == 0 || in.Log == in.LiveLog:
		return in.Rev < in.Pointer
	}
	return true
}

func TestPayloadPrunable(t *testing.T) {
	yes := 0
	for _, in := range prunings() {
		got := in.prunable()
		if want := specPrunable(in); got != want {
			t.Fatalf("%+v: got %v, want %v", in, got, want)
		}
		if got {
			yes++
		}
		if got && (in.Target || in.Kept || !in.Aged) {
			t.Fatalf("%+v: what is in use goes", in)
		}
	}
	if yes == 0 {
		t.Fatal("nothing was ever prunable")
	}
	var some []pruning
	for i, in := range prunings() {
		if i%13 == 0 {
			some = append(some, in)
		}
	}
	wantNoDeadInput(t, "PayloadPrunable", some, pruning.prunable)
}

// Every payload of a log that is gone goes in the end, though its rank is above all that the new log will have for long.
func TestOldLogsPayloadsGo(t *testing.T) {
	pointer := PointerState{Present: true, Readable: true, At: Position{Log: 2, Revision: 5}}
	for _, p := range []Payload{
		{Ranked: true, AgedOut: true, At: Position{Log: 1, Revision: 1000}},
		{Ranked: true, AgedOut: true, At: Position{Log: 1, Revision: 5}},
		{Ranked: true, AgedOut: true, LongAgedOut: true, At: Position{Revision: 1000}},
		{Ranked: true, AgedOut: true, At: Position{Revision: 4}},
	} {
		if !PayloadPrunable(p, pointer, Position{Log: 2, Revision: 9}) {
			t.Errorf("%+v stays", p)
		}
	}
	between := Payload{Ranked: true, AgedOut: true, LongAgedOut: true, At: Position{Revision: 7}}
	if PayloadPrunable(between, pointer, Position{Log: 2, Revision: 9}) {
		t.Error("a payload goes that the live log may still publish")
	}
	pointer.At.Revision = 8
	if !PayloadPrunable(between, pointer, Position{Log: 2, Revision: 9}) {
		t.Error("it stays once the pointer has passed it")
	}
}

func TestPruneGrace(t *testing.T) {
	const second, day = 1_000_000_000, 24 * 3600 * 1_000_000_000
	for _, c := range []struct{ ttl, grace, long int64 }{
		{math.MinInt64, 0, day},
		{0, 0, day},
		{300 * second, 1200 * second, day},
		{day, 4 * day, 16 * day},
		{math.MaxInt64 / 2, math.MaxInt64, math.MaxInt64},
	} {
		if grace, long := PruneGrace(c.ttl); grace != c.grace || long != c.long {
			t.Errorf("ttl %d: got %d and %d", c.ttl, grace, long)
		}
	}
}

func positions() (out []Position) {
	for log := range int64(4) {
		for rev := range uint64(4) {
			out = append(out, Position{Log: log, Revision: rev})
		}
	}
	return out
}

// A strict total order in which nothing that the live log lacks is newer than what it has.
func TestGenerationIsNewer(t *testing.T) {
	for _, live := range positions() {
		for _, a := range positions() {
			for _, b := range positions() {
				ab, ba := GenerationIsNewer(a, b, live), GenerationIsNewer(b, a, live)
				if ab && ba || ab == ba && a != b {
					t.Fatalf("%+v and %+v on %+v: %v and %v", a, b, live, ab, ba)
				}
				aDead, bDead := cannotHave(live.Log, live.Revision, a.Log, a.Revision), cannotHave(live.Log, live.Revision, b.Log, b.Revision)
				later := a.Revision > b.Revision || a.Revision == b.Revision && a.Log > b.Log
				if ab && aDead && !bDead || ab && aDead == bDead && !later {
					t.Fatalf("%+v is newer than %+v on %+v", a, b, live)
				}
				for _, c := range positions() {
					if ab && GenerationIsNewer(b, c, live) && !GenerationIsNewer(a, c, live) {
						t.Fatalf("%+v, %+v, %+v on %+v go in a circle", a, b, c, live)
					}
				}
			}
		}
	}
}

type ages struct {
	Log              int64
	Rev              uint64
	Whole            int64
	LiveLog          int64
	First, Last      uint64
	MaxAge           int64
	Revisions        uint64
	Over             int64
	Room             uint64
	Now, Least, Most int64
}

func (in ages) log() LogBounds { return LogBounds{Log: in.LiveLog, First: in.First, Last: in.Last} }

func (in ages) turnover() Turnover {
	return Turnover{MaxAge: in.MaxAge, Revisions: in.Revisions, Over: in.Over, Room: in.Room}
}

func (in ages) impossible() (int64, bool) {
	e := LastExport{At: Position{Log: in.Log, Revision: in.Rev}, Whole: in.Whole}
	return RestoreImpossibleAt(e, in.log(), in.turnover(), in.Now)
}

func ageDomain() (out []ages) {
	for _, logs := range [][2]int64{{0, 1}, {1, 1}, {2, 1}, {1, 0}} {
		for rev := range uint64(5) {
			for _, bounds := range [][2]uint64{{0, 0}, {1, 3}, {2, 4}, {4, 3}, {3, 3}} {
				for _, maxAge := range []int64{0, 7, 40} {
					for _, rate := range [][2]uint64{{0, 0}, {0, 5}, {2, 0}, {2, 5}, {1, 10}} {
						for _, whole := range []int64{90, 100, 105} {
							for _, room := range []uint64{0, 3} {
								out = append(out, ages{logs[0], rev, whole, logs[1], bounds[0], bounds[1], maxAge, rate[0], int64(rate[1]), room, 100, 1, 1000})
							}
						}
					}
				}
			}
		}
	}
	return out
}

// walk fills the log up, and then loses its oldest revisions one by one, at the rate that was measured, and ages what comes after the cursor,
// until a resume from it would have a gap.
func walk(in ages) (int64, bool) {
	first := max(in.First, 1)
	byTurnover, byAge := int64(-1), int64(-1)
	if in.Revisions > 0 && in.Over > 0 && in.First > 0 && in.First <= in.Last {
		steps := int64(in.Room)
		for lost := first; lost <= in.Rev+1; lost++ {
			steps++
		}
		byTurnover = in.Now + steps*in.Over/int64(in.Revisions)
	}
	if in.MaxAge > 0 {
		written := min(in.Whole, in.Now)
		if in.Rev >= in.Last { // the next revision comes now, at the earliest
			written = in.Now
		}
		byAge = max(in.Now, written+in.MaxAge)
	}
	switch {
	case byTurnover < 0 && byAge < 0:
		return 0, false
	case byTurnover < 0:
		return byAge, true
	case byAge < 0:
		return byTurnover, true
	}
	return min(byTurnover, byAge), true
}

func TestRestoreImpossibleAt(t *testing.T) {
	seen := map[bool]int{}
	for _, in := range ageDomain() {
		want, wantOK := walk(in)
		if cannotHave(in.LiveLog, in.Last, in.Log, in.Rev) || in.First > in.Rev+1 {
			want, wantOK = in.Now, true
		}
		got, ok := in.impossible()
		if got != want || ok != wantOK {
			t.Fatalf("%+v: got %d %v, want %d %v", in, got, ok, want, wantOK)
		}
		seen[ok]++
	}
	if len(seen) != 2 {
		t.Fatal(seen)
	}
	end := LastExport{At: Position{Revision: math.MaxUint64}}
	if at, ok := RestoreImpossibleAt(end, LogBounds{First: 1, Last: math.MaxUint64}, Turnover{Revisions: 1, Over: 1}, 5); ok {
		t.Errorf("so many revisions are never lost; got %d", at)
	}
}

func TestExportPeriod(t *testing.T) {
	for _, c := range []struct {
		name        string
		turnover    Turnover
		first, last uint64
		least, most int64
		want        int64
	}{
		{"nothing is lost", Turnover{}, 1, 100, 10, 1000, 1000},
		{"by age", Turnover{MaxAge: 400}, 1, 100, 10, 1000, 100},
		{"by turnover", Turnover{Revisions: 10, Over: 20}, 1, 100, 10, 1000, 50},
		{"with room", Turnover{Revisions: 10, Over: 20, Room: 100}, 1, 100, 10, 1000, 100},
		{"with room for all there can be", Turnover{Revisions: 1, Over: 1, Room: math.MaxUint64}, 1, 100, 10, math.MaxInt64, math.MaxInt64 / 4},
		{"the shorter one is age", Turnover{MaxAge: 100, Revisions: 10, Over: 20}, 1, 100, 10, 1000, 25},
		{"the shorter one is turnover", Turnover{MaxAge: 1000, Revisions: 10, Over: 20}, 1, 100, 10, 1000, 50},
		{"not too often", Turnover{MaxAge: 8}, 1, 100, 10, 1000, 10},
		{"often enough", Turnover{MaxAge: 1 << 60}, 1, 100, 10, 1000, 1000},
		{"least wins", Turnover{MaxAge: 8}, 1, 100, 10, 5, 10},
		{"an empty log says nothing", Turnover{Revisions: 10, Over: 20}, 101, 100, 10, 1000, 1000},
		{"nor does a log that never held a message", Turnover{Revisions: 10, Over: 20}, 0, 0, 10, 1000, 1000},
		{"one message", Turnover{Revisions: 1, Over: 400}, 7, 7, 10, 1000, 100},
		{"as long as can be", Turnover{Revisions: 1, Over: math.MaxInt64}, 1, math.MaxUint64, 10, math.MaxInt64, math.MaxInt64 / 4},
	} {
		if got := ExportPeriod(c.turnover, LogBounds{First: c.first, Last: c.last}, c.least, c.most); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}

// An export that was at the log's end can be restored for at least four of the periods that follow from the same numbers.
func TestPeriodLeavesRoom(t *testing.T) {
	limited := 0
	for _, in := range ageDomain() {
		if cannotHave(in.LiveLog, in.Last, in.Log, in.Last) {
			continue
		}
		in.Rev, in.Whole = in.Last, in.Now
		at, ok := in.impossible()
		if period := ExportPeriod(in.turnover(), in.log(), 0, math.MaxInt64); ok && at-in.Now < 4*period {
			t.Fatalf("%+v: a period of %d, and lost in %d", in, period, at-in.Now)
		} else if ok {
			limited++
		}
	}
	if limited == 0 {
		t.Fatal("no log ever lost anything")
	}
}

func TestScale(t *testing.T) {
	values := []uint64{0, 1, 2, 3, 7, 1 << 31, 1 << 32, 1<<63 - 1, 1 << 63, math.MaxUint64 - 1, math.MaxUint64}
	for _, a := range values {
		for _, b := range values {
			for _, c := range values[1:] {
				exact := new(big.Int).Mul(new(big.Int).SetUint64(a), new(big.Int).SetUint64(b))
				exact.Div(exact, new(big.Int).SetUint64(c))
				want := int64(math.MaxInt64)
				if exact.IsInt64() {
					want = exact.Int64()
				}
				if got := scale(a, b, c); got != want {
					t.Errorf("%d*%d/%d: got %d, want %d", a, b, c, got, want)
				}
			}
		}
	}
}

func TestNextLeaseStep(t *testing.T) {
	var domain []LeaseSeen
	times := []uint64{0, 1, 2, 3, 5, math.MaxUint64}
	for _, present := range []bool{false, true} {
		for _, readable := range []bool{false, true} {
			for _, acquired := range times {
				for _, expires := range times {
					for _, stored := range times {
						for _, now := range times {
							domain = append(domain, LeaseSeen{present, readable, acquired, expires, stored, now})
						}
					}
				}
			}
		}
	}
	for _, s := range domain {
		want := map[[2]bool]LeaseStep{{true, true}: LeaseSteal, {true, false}: LeaseSteal}[[2]bool{s.Present, s.Readable}]
		// It is over at its expiry, and once a time of its own length has gone by since it was stored.
		exact := func(u uint64) *big.Int { return new(big.Int).SetUint64(u) }
		lain := new(big.Int).Sub(exact(s.Now), exact(s.Stored))
		taken := new(big.Int).Sub(exact(s.Expires), exact(s.Acquired))
		over := s.Expires <= s.Now || s.Stored != 0 && lain.Cmp(taken) >= 0 && lain.Sign() >= 0
		if !s.Present {
			want = LeaseCreate
		} else if s.Readable && !over {
			want = LeaseLost
		}
		if got := NextLeaseStep(s); got != want {
			t.Errorf("%+v: got %v, want %v", s, got, want)
		}
	}
	wantNoDeadInput(t, "NextLeaseStep", domain, NextLeaseStep)
	if got := LeaseLost.String() + " " + LeaseCreate.String() + " " + LeaseSteal.String(); got != "lost create steal" {
		t.Error(got)
	}
}
