package repair

import (
	"context"
	"errors"

	"github.com/typedfold/fold/runtime/kv"
)

func (p *Repairer) relist(ctx context.Context, q Request, info kv.LogInfo, r *Report) (Outcome, error) {
	return Outcome{}, errors.New("relist: not built yet")
}

func (p *Repairer) adopt(ctx context.Context, q Request, info kv.LogInfo, r *Report) (Outcome, error) {
	return Outcome{}, errors.New("adopt: not built yet")
}
