package repair

import "sync/atomic"

// Stages of a repair or an audit, in the words of Progress.
const (
	stageListing   = "listing the bucket"
	stageFetching  = "fetching an artifact"
	stageComparing = "comparing"
	stageWaiting   = "waiting for the fold"
	stageFolding   = "folding changes"
)

// Progress is how far a repair or an audit is: Keys counts within the stage.
type Progress struct {
	Stage string `json:"stage"`
	Keys  uint64 `json:"keys"`
}

// progress is read while the repair runs.
type progress struct {
	stage atomic.Pointer[string]
	keys  atomic.Uint64
}

func (p *progress) enter(stage string) {
	p.keys.Store(0)
	p.stage.Store(&stage)
}

func (p *progress) leave() { p.stage.Store(nil) }

// Progress tells how far the repair or audit that runs now is; false when none runs past its planning. It is safe for
// concurrent use.
func (p *Repairer) Progress() (Progress, bool) {
	stage := p.at.stage.Load()
	if stage == nil {
		return Progress{}, false
	}
	return Progress{Stage: *stage, Keys: p.at.keys.Load()}, true
}
