package dst

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv/kvtest"
)

// schedule is one run of a story and what goes wrong in it. Its String is what -replay takes.
type schedule struct {
	story   *story
	backend string // storeLog or storePebble
	face    string // faceFold or faceApplied
	order   string
	max     int  // of a batch; 0 is the default
	export  bool // the first commit of each run asks for an export
	faults  []storeFault
	atLog   *logFault
}

const (
	faceFold    = "fold"
	faceApplied = "applied"

	orderBurst  = "burst"  // all that is there at once
	orderYield  = "yield"  // one update at a time, each after all that the one before had caused
	orderWindow = "window" // one update at a time, committed by windows in which four fit
)

// storeFault is one thing that goes wrong at one of the store's applies.
type storeFault struct {
	kind string
	at   int // counted from 1, over all runs of the schedule
}

const (
	transient   = "transient" // the apply fails
	stuck       = "stuck"     // so many fail that the fold stops, and is started again
	crashBefore = "before"    // the process ends, and the apply was not done
	crashAfter  = "after"     // the process ends, and the apply was done
	crashTorn   = "torn"      // the process ends, with the data on disk, and without cursor and records that go with it
	shutdown    = "shutdown"  // the fold is asked to end, and is started again
)

// stuckFor is how many applies in a row fail under stuck: enough for a fail-stop, and for failures after it.
const stuckFor = fold.MaxFailures + 2

// storeFaultKinds are all of them, in a fixed order.
var storeFaultKinds = []string{transient, crashBefore, crashAfter, crashTorn, shutdown, stuck}

var crashes = []string{crashBefore, crashAfter, crashTorn}

// logFault is one thing that goes wrong at one of the log's calls.
type logFault struct {
	kind string
	at   int // counted from 1 since the story's first run
}

// gap loses an update without a word. It is counted, and done, where revisions follow each other: in watches of a whole
// bucket that resume, on a log whose gaps mean something. Elsewhere revisions are missing anyhow, and nothing shows it.
const gap = "gap"

// logKind is how a fault of the log is injected.
type logKind struct {
	fault kvtest.Fault
	// lies: the log breaks what the port promises, or is another one, so the fold may end without the truth, and has to say
	// so.
	lies bool
	// recreates: the bucket is re-created just before the call. The fold may adopt it.
	recreates bool
}

var logKinds = map[string]logKind{
	"lost":      {fault: kvtest.Fault{At: kvtest.PointNext, Fail: true}},
	"no-open":   {fault: kvtest.Fault{At: kvtest.PointOpen, Fail: true}},
	"no-info":   {fault: kvtest.Fault{At: kvtest.PointInfo, Fail: true}},
	"no-list":   {fault: kvtest.Fault{At: kvtest.PointList, Fail: true}},
	"cut-list":  {fault: kvtest.Fault{At: kvtest.PointList, Fail: true, After: 1}},
	"duplicate": {fault: kvtest.Fault{At: kvtest.PointDelivery, Shape: kvtest.ShapeDuplicate}},
	"stale":     {fault: kvtest.Fault{At: kvtest.PointInfo, Stale: true}, lies: true},
	"short":     {fault: kvtest.Fault{At: kvtest.PointList, Short: true, After: 1}},
	"new-info":  {fault: kvtest.Fault{At: kvtest.PointInfo}, lies: true, recreates: true},
	"new-open":  {fault: kvtest.Fault{At: kvtest.PointOpen}, lies: true, recreates: true},
	"new-list":  {fault: kvtest.Fault{At: kvtest.PointList}, lies: true, recreates: true},
	"clamp":     {fault: kvtest.Fault{At: kvtest.PointOpen, Unchecked: true}, lies: true},
	"unknown":   {fault: kvtest.Fault{At: kvtest.PointDelivery, Shape: kvtest.ShapeUnknownVersion}, lies: true},
	gap:         {lies: true},
}

func (s schedule) String() string {
	export := 0
	if s.export {
		export = 1
	}
	faults := []string{}
	for _, f := range s.faults {
		faults = append(faults, fmt.Sprintf("%s@%d", f.kind, f.at))
	}
	if s.atLog != nil {
		faults = append(faults, fmt.Sprintf("log-%s@%d", s.atLog.kind, s.atLog.at))
	}
	if len(faults) == 0 {
		faults = []string{"none"}
	}
	return fmt.Sprintf("story=%s store=%s face=%s order=%s max=%d export=%d fault=%s", s.story.id(), s.backend, s.face, s.order, s.max, export, strings.Join(faults, ","))
}

// parseSchedule reads what String writes.
func parseSchedule(text string) (s schedule, err error) {
	fields := map[string]string{}
	for _, f := range strings.Fields(text) {
		name, value, ok := strings.Cut(f, "=")
		if !ok {
			return s, fmt.Errorf("%q is no name=value", f)
		}
		fields[name] = value
	}
	for _, st := range stories() {
		if st.id() == fields["story"] {
			s.story = st
		}
	}
	if s.story == nil {
		return s, fmt.Errorf("no story %q", fields["story"])
	}
	s.backend, s.face, s.order, s.export = fields["store"], fields["face"], fields["order"], fields["export"] == "1"
	if s.max, err = strconv.Atoi(fields["max"]); err != nil {
		return s, fmt.Errorf("max: %w", err)
	}
	if err := s.parseFaults(fields["fault"]); err != nil {
		return s, err
	}
	if s.String() != text {
		return s, fmt.Errorf("%q is read as %q", text, s.String())
	}
	return s, nil
}

func (s *schedule) parseFaults(text string) error {
	if text == "none" {
		return nil
	}
	for _, f := range strings.Split(text, ",") {
		kind, number, _ := strings.Cut(f, "@")
		at, err := strconv.Atoi(number)
		if err != nil {
			return fmt.Errorf("fault %q: %w", f, err)
		}
		name, ofLog := strings.CutPrefix(kind, "log-")
		switch _, known := logKinds[name]; {
		case ofLog && known:
			s.atLog = &logFault{name, at}
		case !ofLog && slices.Contains(storeFaultKinds, kind):
			s.faults = append(s.faults, storeFault{kind, at})
		default:
			return fmt.Errorf("no fault %q", f)
		}
	}
	return nil
}

// has reports whether the schedule has a fault of one of these kinds.
func (s schedule) has(kinds ...string) bool {
	return slices.ContainsFunc(s.faults, func(f storeFault) bool { return slices.Contains(kinds, f.kind) })
}
