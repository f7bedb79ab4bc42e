package streamchaos

import (
	"fmt"
	"math"
	"sort"
	"time"
)

// evidence is all that is known of one stream after a run.
type evidence struct {
	stream   string
	images   []*image // equal ones, if nothing is wrong; the first is judged
	ops      []*op    // those of one writer in the order of its calls
	readings []*reading
	// tail is what the stream told when all was over: readers have got there.
	tail uint64
}

// Finding is something wrong.
type Finding struct {
	// Rule is which promise was broken.
	Rule   string `json:"rule"`
	Stream string `json:"stream"`
	Text   string `json:"text"`
}

func (f Finding) String() string { return fmt.Sprintf("%s: %s: %s", f.Stream, f.Rule, f.Text) }

// Rules, as findings name them.
const (
	ruleLog       = "the log is one chain"         // of frames, each behind the state of the one before, in one epoch after another
	ruleReplicas  = "replicas are equal"           // to the last byte
	ruleStale     = "no stale admission"           // a batch presented the token that stood, and its session was no older
	ruleMatch     = "no false match"               // a conditional batch is where it asked to be
	ruleTorn      = "no torn batch"                // its records are all there, together, as they were sent
	ruleMade      = "nothing made up"              // each record is somebody's
	ruleLost      = "nothing acknowledged missing" // each is at its number
	ruleRefused   = "nothing refused is there"
	ruleTwice     = "no duplicate" // of a one-shot or a conditional batch; of others no more than were sent
	ruleOrder     = "in the order of time"
	ruleFence     = "a fence is where it says"
	ruleFenced    = "locked out for a reason"
	ruleTail      = "a tail is one"
	ruleReaders   = "readers see the log"
	ruleDenied    = "no answer without a reason"
	ruleLive      = "it lives again"
	ruleProcesses = "no process ends by itself"
)

// occurrence is an append as it lies in the log.
type occurrence struct {
	pos    int    // in the order of all that happened
	number uint64 // of its first record
	reign  int    // the index of the reign that it lies in
	frame  int
}

// reign is the time of one token in the log: from the fence that installed it to the next one.
type reign struct {
	token string
	fence uint64
	// pos and next are its begin, and the number that the next record got then; end and tail are those of its end.
	pos, end   int
	next, tail uint64
	// since is the earliest time at which a fence could have installed it.
	since time.Duration
}

// judge holds evidence against every rule.
type judge struct {
	evidence
	findings []Finding
	tally    Tally

	byID    map[uint64]*op
	lies    map[uint64][]occurrence
	reigns  []reign
	numbers []place // of each record
	events  int
	// fenceCalls are the calls that may have installed a token.
	fenceCalls map[string][]*op
}

// place is one record of the log.
type place struct {
	hash uint64
	time int64
	op   *op
	pos  int
}

// Tally counts what a judge has looked at.
type Tally struct {
	Frames  int `json:"frames"`
	Records int `json:"records"`
	Epochs  int `json:"epochs"`
	Fences  int `json:"fences"`
	// Replicas is how many were read and compared.
	Replicas int `json:"replicas"`
	// Reads is how many records readers got.
	Reads int `json:"reads"`
	// Resent is how many plain batches are there again since a session sent them again.
	Resent int `json:"resent"`
	// FalseMisses is how many misses told the very number that was asked for: allowed, and of interest.
	FalseMisses int `json:"false_misses"`
	// Landed is how many batches with an unknown outcome are there.
	Landed int `json:"landed"`
}

// maxFindings bounds those of one rule: one cause has many effects.
const maxFindings = 10

func (j *judge) find(rule, format string, args ...any) {
	n := 0
	for _, f := range j.findings {
		if f.Rule == rule {
			n++
		}
	}
	if n < maxFindings {
		j.findings = append(j.findings, Finding{Rule: rule, Stream: j.stream, Text: fmt.Sprintf(format, args...)})
	}
}

// judgeStream is what is wrong with a stream, and what was counted.
func judgeStream(e evidence) ([]Finding, Tally) {
	j := &judge{evidence: e, byID: map[uint64]*op{}, lies: map[uint64][]occurrence{}, fenceCalls: map[string][]*op{}}
	for _, o := range e.ops {
		j.byID[o.id] = o
		if o.verb == verbFence && o.verdict != refused && o.verdict != denied {
			j.fenceCalls[o.token] = append(j.fenceCalls[o.token], o)
		}
	}
	j.replicas()
	j.chain()
	j.fences()
	j.claims()
	j.inSessions()
	j.order()
	j.reads()
	return j.findings, j.tally
}

// replicas compares the images, and looks at what the newest takeover left.
func (j *judge) replicas() {
	j.tally.Replicas = len(j.images)
	first := j.images[0]
	for _, img := range j.images[1:] {
		if img.digest != first.digest || img.last != first.last {
			j.find(ruleReplicas, "%s ends at %d and %s at %d; they differ: %v", first.replica, first.last, img.replica, img.last, img.digest != first.digest)
		}
	}
	for _, text := range first.wrong {
		j.find(ruleLog, "%s", text)
	}
	for i, seq := range first.control {
		if i > 0 && seq != first.control[i-1]+1 && i < len(first.control)-1 {
			j.find(ruleLog, "control messages at %v are of no one takeover", first.control)
			break
		}
	}
}

// reignAt is the index of the reign that a position lies in.
func (j *judge) reignAt(pos int) int {
	return sort.Search(len(j.reigns), func(i int) bool { return j.reigns[i].pos > pos }) - 1
}

// earliest is when a fence can have begun that installed a token after the reign that began at after; never if there is
// none.
func (j *judge) earliest(token string, after time.Duration) time.Duration {
	first := time.Duration(math.MaxInt64)
	for _, o := range j.fenceCalls[token] {
		if o.verdict != told || o.ret >= after {
			first = min(first, max(o.call, after))
		}
	}
	return first
}
