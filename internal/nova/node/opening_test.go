package node

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/internal/nova/jslog"
	"github.com/typedfold/fold/internal/nova/sequencer"
)

// overtaken is a leader whose first proof is overtaken by fences before whoever asked for it can use it.
type overtaken struct {
	*sequencer.Leader
	fences []string
}

func (o *overtaken) Stands(ctx context.Context) (sequencer.Standing, error) {
	st, err := o.Leader.Stands(ctx)
	for _, token := range o.fences {
		if err == nil {
			_, err = o.Fence(ctx, token)
		}
	}
	o.fences = nil
	return st, err
}

// TestAnOpeningThatFencesOvertake is judged by the token that stands in the end: a writer is never told that it is fenced by
// the token that it presents.
func TestAnOpeningThatFencesOvertake(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n, _ := testNode(t, natstest.New(t))
	if err := n.Create(ctx, addr, jslog.Config{Memory: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream(t, n).Fence(ctx, "mine"); err != nil {
		t.Fatal(err)
	}
	l, leads := stream(t, n).leading()
	if !leads {
		t.Fatal("the node that was asked first does not lead")
	}
	for _, c := range []struct {
		name    string
		fences  []string
		refused bool
	}{
		{"put back", []string{"other", "mine"}, false},
		{"put back twice", []string{"other", "mine", "", "mine"}, false},
		{"another one", []string{"", "other"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var fence uint64
			st, err := l.v.opening(ctx, &overtaken{l.Leader, c.fences}, "mine", func(st sequencer.Standing) { fence = st.Fence })
			if c.refused {
				if out := new(sequencer.FencedError); !errors.As(err, &out) || out.Installed != "other" || fence != 0 {
					t.Errorf("%v, under fence %d", err, fence)
				}
				return
			}
			now, errNow := l.Stands(ctx)
			if err != nil || errNow != nil || fence == 0 || fence != st.Fence || fence != now.Fence {
				t.Errorf("opened under fence %d, told %+v, %v; it is %+v, %v", fence, st, err, now, errNow)
			}
		})
	}
}
