package protocol

import (
	"math"
	"testing"
)

// places are an artifact's, a fold's and a log's positions, flat.
type places struct {
	ArtifactLog int64
	Artifact    uint64
	LocalLog    int64
	Local       uint64
	Log         int64
	First, Last uint64
}

func (in places) artifact() Position { return Position{Log: in.ArtifactLog, Revision: in.Artifact} }

func (in places) local() Position { return Position{Log: in.LocalLog, Revision: in.Local} }

func (in places) allowed() bool {
	return RestoreAllowed(in.artifact(), in.local(), LogBounds{Log: in.Log, First: in.First, Last: in.Last})
}

func placeDomain() (out []places) {
	logs := []int64{0, 1, 2}
	for _, artifactLog := range logs {
		for _, localLog := range logs {
			for _, log := range logs {
				for artifact := range uint64(4) {
					for local := range uint64(4) {
						for first := range uint64(5) {
							for last := range uint64(4) {
								out = append(out, places{artifactLog, artifact, localLog, local, log, first, last})
							}
						}
					}
				}
			}
		}
	}
	return out
}

// differ reports whether two logs are known to be two.
func differ(a, b int64) bool { return a*b != 0 && a-b != 0 }

// Each reason to refuse is named; where there is none, the artifact is taken.
func TestRestoreAllowed(t *testing.T) {
	yes := 0
	for _, in := range placeDomain() {
		back := in.Local >= in.Artifact
		across := in.Local > 0 && differ(in.ArtifactLog, in.LocalLog)
		ahead := RestoreAhead(in.artifact(), in.local())
		if ahead == (back || across) {
			t.Fatalf("%+v: ahead %v", in, ahead)
		}
		foreign := differ(in.ArtifactLog, in.Log) || differ(in.LocalLog, in.Log)
		missing := 0 // revisions after the artifact that the log lost
		for rev := in.Artifact + 1; rev < in.First; rev++ {
			missing++
		}
		want := !back && !across && !foreign && missing == 0 && in.Artifact <= in.Last
		if got := in.allowed(); got != want {
			t.Fatalf("%+v: allowed %v", in, got)
		}
		if want {
			yes++
		}
		if ahead && RestoreAhead(in.local(), in.artifact()) {
			t.Fatalf("%+v: each is ahead of the other", in)
		}
	}
	if yes == 0 {
		t.Fatal("no artifact was ever allowed")
	}
	end := Position{Log: 1, Revision: math.MaxUint64}
	if !RestoreAllowed(end, Position{Log: 1, Revision: 1}, LogBounds{Log: 1, First: math.MaxUint64, Last: math.MaxUint64}) {
		t.Error("the last revision of all wraps")
	}
}

// step is what one revision of a small log does to the key that is looked at.
type step uint8

const (
	stepOther step = iota // it belongs to another key
	stepPut
	stepDelete

	stepCount
)

// history is what each revision does; revision 1 is its first element.
type history []step

// histories are all histories of n revisions.
func histories(n int) (out []history) {
	out = []history{{}}
	for range n {
		var longer []history
		for _, h := range out {
			for s := range stepCount {
				longer = append(longer, append(h[:len(h):len(h)], s))
			}
		}
		out = longer
	}
	return out
}

// last is the key's last message at or below revision at; 0 is none.
func (h history) last(at int) int {
	for ; at > 0 && h[at-1] == stepOther; at-- {
	}
	return at
}

// truth is the revision of the key's value at a revision, every write minus every delete; 0 is none.
func (h history) truth(at int) int {
	if at = h.last(at); at > 0 && h[at-1] == stepPut {
		return at
	}
	return 0
}

// resumed is the key's row after a resume from cursor, on a log of history 1 that ends at end.
func (h history) resumed(row, cursor, first, end int) int {
	if last := h.last(end); last > cursor && last >= first {
		return h.truth(end)
	}
	return row
}

// Against every small log: whatever an allowed artifact replaced, the resume from it comes to the truth; and the window
// is what makes it so.
func TestRestoreThenResumeLosesNothing(t *testing.T) {
	const n = 5
	allowed, wouldLose := 0, 0
	for _, h := range histories(n) {
		for artifact := 1; artifact <= n; artifact++ {
			for local := range n {
				for first := range n + 2 {
					got := h.resumed(h.truth(artifact), artifact, first, n)
					in := places{1, uint64(artifact), 1, uint64(local), 1, uint64(first), n}
					switch {
					case in.allowed() && got != h.truth(n):
						t.Fatalf("history %v, %+v: %d, the truth is %d", h, in, got, h.truth(n))
					case in.allowed():
						allowed++
					case got != h.truth(n) && local < artifact:
						wouldLose++
					}
				}
			}
		}
	}
	if allowed == 0 || wouldLose == 0 {
		t.Fatalf("%d restores allowed, %d refused that would have lost something", allowed, wouldLose)
	}
}

// keyInput is one key of a restore, flat.
type keyInput struct {
	Local, Artifact       bool
	LocalRev, ArtifactRev uint64
	Identical, Listed     bool
}

func (in keyInput) restore() KeyRestore {
	return RestoreKey(KeyState{in.Local, in.LocalRev}, KeyState{in.Artifact, in.ArtifactRev}, in.Identical, in.Listed)
}

func keyInputs() (out []keyInput) {
	for _, local := range bools {
		for _, artifact := range bools {
			for localRev := range uint64(4) {
				for artifactRev := range uint64(4) {
					for _, identical := range bools {
						for _, listed := range bools {
							out = append(out, keyInput{local, artifact, localRev, artifactRev, identical, listed})
						}
					}
				}
			}
		}
	}
	return out
}

// A key that neither side needs changed stays; what is not there is neither deleted nor taken.
func TestRestoreKeyDoesNothingNeedless(t *testing.T) {
	for _, in := range keyInputs() {
		switch got := in.restore(); {
		case got == RestoreTake && !in.Artifact:
			t.Errorf("%+v: takes an entry that the artifact lacks", in)
		case got == RestoreDelete && (!in.Local || in.Artifact || in.Listed):
			t.Errorf("%+v: deletes", in)
		case got == RestoreTake && in.Local && in.Identical:
			t.Errorf("%+v: takes what it has", in)
		case got == RestoreKeep && in.Artifact && in.Local && !in.Identical && in.LocalRev <= in.ArtifactRev:
			t.Errorf("%+v: keeps what is not known to be newer", in)
		case got == RestoreKeep && in.Artifact && !in.Local:
			t.Errorf("%+v: leaves a key out", in)
		}
	}
}

// rows are the rows that a fold at cursor may have of the key, when all that it was told came from a log that ended at or
// before end: the truth; or, while a catch-up has yet to deliver the key's last message, any older one.
func (h history) rows(cursor, end int) map[int]bool {
	out := map[int]bool{h.truth(cursor): true}
	for at := cursor; at <= end; at++ {
		if h.last(at) > cursor {
			for older := range cursor + 1 {
				out[h.truth(older)] = true
			}
		}
	}
	return out
}

// restoreRun is one restore of the key: a fold at local takes over an artifact at artifact, while the bucket is listed at
// listed, when the log still holds everything after the artifact, and resumes.
type restoreRun struct {
	h                       history
	local, artifact, listed int
	localRow, artifactRow   int // revisions; 0 is none
	localHidden             bool
	artifactHidden          bool // the revision of the row is not known
}

func (r restoreRun) input(first int) keyInput {
	row := r.h.truth(r.listed)
	in := keyInput{
		Local: r.localRow > 0, Artifact: r.artifactRow > 0, LocalRev: uint64(r.localRow), ArtifactRev: uint64(r.artifactRow),
		Identical: r.localRow == r.artifactRow && !r.localHidden && !r.artifactHidden,
		Listed:    row > 0 && row >= first,
	}
	if r.localHidden {
		in.LocalRev = 0
	}
	if r.artifactHidden {
		in.ArtifactRev = 0
	}
	return in
}

// check runs it with all that retention may have taken up to the artifact's cursor.
func (r restoreRun) check(t *testing.T, seen map[KeyRestore]int) {
	t.Helper()
	for first := range r.artifact + 2 {
		in := r.input(first)
		does := in.restore()
		seen[does]++
		row := map[KeyRestore]int{RestoreKeep: r.localRow, RestoreTake: r.artifactRow}[does]
		if does == RestoreDelete && r.h.truth(r.listed) != 0 {
			t.Fatalf("%+v, first %d: a live key is deleted", r, first)
		}
		// What has no known revision can't be kept from going back for a moment.
		if row > 0 && row < r.localRow && !r.localHidden && !r.artifactHidden {
			t.Fatalf("%+v, first %d: the row goes back to %d", r, first, row)
		}
		end := len(r.h)
		if got := r.h.resumed(row, r.artifact, first, end); got != r.h.truth(end) {
			t.Fatalf("%+v, first %d, %v: comes to %d, the truth is %d", r, first, does, got, r.h.truth(end))
		}
	}
}

// Against every small log: whatever a fold and an artifact may have of a key, mid catch-up and with rows ahead of the
// fold's cursor, it comes to the truth, no row goes back, and no live key is deleted, not even for a moment.
func TestRestoreKeyComesToTheTruth(t *testing.T) {
	const n = 5
	seen := map[KeyRestore]int{}
	for _, h := range histories(n) {
		for artifact := 1; artifact <= n; artifact++ {
			for local := range artifact {
				for listed := artifact; listed <= n; listed++ {
					localRows := h.rows(local, listed)
					for torn := local + 1; torn <= listed; torn++ {
						localRows[h.truth(torn)] = true
					}
					for artifactRow := range h.rows(artifact, listed) {
						for localRow := range localRows {
							for hidden := range 4 {
								restoreRun{h, local, artifact, listed, localRow, artifactRow, hidden&1 != 0, hidden&2 != 0}.check(t, seen)
							}
						}
					}
				}
			}
		}
	}
	if len(seen) != 3 {
		t.Fatalf("seen %v", seen)
	}
}
