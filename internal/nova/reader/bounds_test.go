package reader

import (
	"context"
	"errors"
	"testing"

	"github.com/typedfold/fold/internal/nova/jslog"
)

// emptyLog has no frame.
type emptyLog struct {
	Log
	begun bool
	err   error
}

func (emptyLog) Last(context.Context) (jslog.Stored, error)         { return jslog.Stored{}, nil }
func (emptyLog) From(context.Context, uint64) (jslog.Stored, error) { return jslog.Stored{}, nil }
func (l emptyLog) Begun(context.Context) (bool, error)              { return l.begun, l.err }

// TestALogWithoutFrames: one that is being created is not damaged, and one that had frames is.
func TestALogWithoutFrames(t *testing.T) {
	away := errors.New("away")
	for _, c := range []struct {
		l    emptyLog
		want error
	}{
		{emptyLog{}, jslog.ErrNewborn},
		{emptyLog{begun: true}, jslog.ErrDamaged},
		{emptyLog{err: away}, away},
	} {
		if _, _, err := Bounds(t.Context(), c.l); !errors.Is(err, c.want) {
			t.Errorf("begun %v: %v, not %v", c.l.begun, err, c.want)
		}
	}
}
