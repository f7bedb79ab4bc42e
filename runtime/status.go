package fold

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/runtime/protocol"
	"github.com/typedfold/fold/runtime/repair"
)

// State is what a fold is doing.
type State string

const (
	// StateOpening: no watch yet.
	StateOpening State = "opening"
	// StateHydrating: watching, and not yet caught up for the first time.
	StateHydrating State = "hydrating"
	// StateLive: caught up once, and watching.
	StateLive State = "live"
	// StateRepairing: the cursor is no resume position any more, and is being repaired. Reads serve what is there.
	StateRepairing State = "repairing"
	// StateWaiting: the server is away or the watch was lost; another try follows. Reads serve what is there.
	StateWaiting State = "waiting"
	// StateStopping: closing.
	StateStopping State = "stopping"
	// StateStopped: Err says why. Reads serve what is there until Close.
	StateStopped State = "stopped"
)

// Status is a fold's state at one moment. Revisions are strings in JSON, since they may pass 2^53.
type Status struct {
	Bucket string    `json:"bucket"`
	State  State     `json:"state"`
	Since  time.Time `json:"since"`
	// Applied is the committed cursor, Durable the one that survives a crash.
	Applied uint64 `json:"applied,string"`
	Durable uint64 `json:"durable,string"`
	// Head is the log's last revision as far as it is known here.
	Head uint64 `json:"head,string"`
	// Pending is the server's last word on how many updates were still to come.
	Pending   uint64    `json:"pending"`
	Hydrated  bool      `json:"hydrated"`
	LastApply time.Time `json:"last_apply,omitzero"`
	// Updates and Rejections count what was committed since Start.
	Updates    uint64 `json:"updates"`
	Rejections uint64 `json:"rejections"`
	// RejectedKeys is how many keys have a rejected newest message now.
	RejectedKeys uint64 `json:"rejected_keys"`
	// Unmatched counts updates of keys of no table by the key's first token; those of tokens past a cap are under "".
	Unmatched map[string]uint64 `json:"unmatched,omitempty"`
	// Failures is how many times in a row the current batch has failed.
	Failures int `json:"failures"`
	// Owed says why the fold can't be sure of what it holds, until an audit has found out: "identity", "markers",
	// "listing", joined by "+". With Unproven no audit can, and only a restore from an artifact does.
	Owed     string `json:"owed,omitempty"`
	Unproven bool   `json:"unproven,omitempty"`
	// Markers is whether the bucket can be trusted to deliver each delete, however long a fold was away: "sealed" is yes,
	// "unsealed" no.
	Markers string `json:"markers,omitempty"`
	// Progress is how far the repair that runs now is.
	Progress *repair.Progress `json:"progress,omitempty"`
	// Repair and Audit are the last ones that had something to decide.
	Repair *RepairReport `json:"repair,omitempty"`
	Audit  *RepairReport `json:"audit,omitempty"`
	// WatchError is why there is no watch, Error why the fold stopped.
	WatchError string `json:"watch_error,omitempty"`
	Error      string `json:"error,omitempty"`
	// Hint is what a person can do about Error.
	Hint  string      `json:"hint,omitempty"`
	Store StoreStatus `json:"store"`
}

// StoreStatus is what Status says of the store.
type StoreStatus struct {
	Backend     string `json:"backend"`
	Format      string `json:"format"`
	Path        string `json:"path"`
	DiskBytes   uint64 `json:"disk_bytes"`
	MemoryBytes uint64 `json:"memory_bytes"`
}

// Status is the fold's state now. It does no I/O to the server.
func (f *Fold) Status() Status {
	f.mu.Lock()
	v, stopErr := f.view, f.stopErr
	f.mu.Unlock()
	info, stats := f.store.Info(), f.store.Stats()
	s := Status{
		Bucket: f.bucket, State: v.state, Since: v.since,
		Applied: v.committed.Revision(), Durable: min(f.store.Durable().Revision(), v.committed.Revision()), Head: max(v.head, v.committed.Revision()),
		Pending: v.pending, Hydrated: f.sink.hydrated.Load(), LastApply: v.lastApply, Failures: v.failures, Repair: v.report, Audit: v.audit,
		Store: StoreStatus{Backend: info.Backend, Format: info.Format, Path: info.Path, DiskBytes: stats.DiskBytes, MemoryBytes: stats.MemoryBytes},
	}
	if p, ok := f.loop.mending.repairer.Progress(); ok && v.state != StateStopped {
		s.Progress = &p
		if v.state == StateOpening { // a start without a cursor that turned out to need one
			s.State = StateRepairing
		}
	}
	if v.owed.Why != 0 {
		s.Owed, s.Unproven = v.owed.Why.String(), v.unproven
	}
	if r := f.loop.mending.markers.Load(); r != nil {
		s.Markers = protocol.MarkersCanVanish(*r, 0).String()
	}
	if v.watchErr != nil {
		s.WatchError = v.watchErr.Error()
	}
	if stopErr != nil {
		s.Error, s.Hint = stopErr.Error(), Hint(stopErr)
	}
	f.sink.mu.Lock()
	s.Updates, s.Rejections = f.sink.stats.updates, f.sink.stats.rejections
	if len(f.sink.stats.unmatched) > 0 {
		s.Unmatched = maps.Clone(f.sink.stats.unmatched)
	}
	f.sink.mu.Unlock()
	s.RejectedKeys = f.sink.rejected.n.Load()
	return s
}

// stateOf is what a phase means to a user. A retry is no news: the state stays waiting until there is a watch.
func stateOf(p machine.Phase, hydrated bool, watchErr error) State {
	switch p {
	case machine.PhaseOpening:
		if watchErr != nil {
			return StateWaiting
		}
		return StateOpening
	case machine.PhaseWaiting:
		return StateWaiting
	case machine.PhaseRepairing:
		return StateRepairing
	case machine.PhaseStopping:
		return StateStopping
	case machine.PhaseStopped:
		return StateStopped
	}
	if hydrated {
		return StateLive
	}
	return StateHydrating
}

// progress is one line on how far the fold is, for errors of those who waited.
func (s Status) progress() string {
	line := fmt.Sprintf("fold is %s at revision %d of %d", s.State, s.Applied, s.Head)
	if s.Pending > 0 {
		line += ", " + strconv.FormatUint(s.Pending, 10) + " to come"
	}
	if s.WatchError != "" {
		line += ": " + s.WatchError
	}
	return line
}
