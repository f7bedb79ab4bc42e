package repair

import (
	"context"
	"errors"

	"github.com/typedfold/fold/runtime/kv"
)

func (p *Repairer) restore(ctx context.Context, q Request, info kv.LogInfo, r *Report) (Outcome, error) {
	return Outcome{}, errors.New("restore: not built yet")
}
