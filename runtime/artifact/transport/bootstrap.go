package transport

import (
	"context"
	"errors"
	"fmt"

	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// bootstrapTries is how often the artifacts are listed at most, when the one that was chosen went stale on its way.
const bootstrapTries = 3

// errOvertaken: the log lost what came after an artifact's cursor while it was downloaded.
var errOvertaken = errors.New("the log has moved past it while it was downloaded")

// Bootstrap makes the folder dest, which must be absent or empty, the store of the newest artifact that the log can be
// followed from without a gap; a fold that is opened there gets only what came after it. Nothing is at dest after an error,
// or a crash at any point. When none is good it is an *UnusableError.
func (t *Transport) Bootstrap(ctx context.Context, dest string, live Live, o artifact.Options) (artifact.Manifest, error) {
	m, err := t.bootstrap(ctx, dest, live, o)
	if err != nil {
		return artifact.Manifest{}, fmt.Errorf("bootstrap %s: %w", dest, err)
	}
	return m, nil
}

func (t *Transport) bootstrap(ctx context.Context, dest string, live Live, o artifact.Options) (m artifact.Manifest, err error) {
	for range bootstrapTries {
		m, err = t.tryBootstrap(ctx, dest, live, o)
		if !errors.Is(err, ErrGone) && !errors.Is(err, errOvertaken) {
			return m, err
		}
	}
	return m, err
}

func (t *Transport) tryBootstrap(ctx context.Context, dest string, live Live, o artifact.Options) (m artifact.Manifest, err error) {
	info, err := live(ctx)
	if err != nil {
		return m, fmt.Errorf("read the log: %w", err)
	}
	all, err := t.Manifests(ctx, End(info))
	if err != nil {
		return m, err
	}
	none := &UnusableError{Key: t.base, First: info.First, Last: info.Last}
	for _, g := range all {
		r := Refusal{Name: g.Name, Why: "can't be used", Err: g.Err}
		if r.Err == nil {
			if why := unfit(&g.Manifest, info); why != "" {
				r.Why = why
			} else if r.Err = t.importIfFit(ctx, g.Manifest, dest, live, o); r.Err == nil {
				return g.Manifest, nil
			} else if !errors.Is(r.Err, artifact.ErrInvalid) {
				return m, r.Err
			}
		}
		none.Refused = append(none.Refused, r)
	}
	return m, none
}

func (t *Transport) importIfFit(ctx context.Context, m artifact.Manifest, dest string, live Live, o artifact.Options) error {
	good := func() error {
		info, err := live(ctx)
		if err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
		if why := unfit(&m, info); why != "" {
			return fmt.Errorf("%w: %s", errOvertaken, why)
		}
		return nil
	}
	return t.downloadFailed(m, t.importWhile(ctx, m, dest, o, good))
}

// unfit is why a new fold can't go on from the artifact; "" is that it can.
func unfit(m *artifact.Manifest, info kv.LogInfo) string {
	at := positionOf(m)
	log := protocol.LogBounds{Log: End(info).Log, First: info.First, Last: info.Last}
	switch {
	case protocol.RestoreAllowed(at, protocol.Position{}, log):
		return ""
	case at.Revision == 0:
		return "is empty"
	case at.Log != 0 && log.Log != 0 && at.Log != log.Log:
		return "is of another log, which is gone"
	case at.Revision > log.Last:
		return fmt.Sprintf("is beyond the log's end at revision %d", log.Last)
	}
	return fmt.Sprintf("is outside the log's window, which begins at revision %d", log.First)
}
