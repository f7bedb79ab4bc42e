package server_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/server"
)

// TestTheClockOfRecords is that of the options, and a record's time is never before that of the record in front of it.
func TestTheClockOfRecords(t *testing.T) {
	ctx := timed(t)
	var now atomic.Int64
	r := serve(t, natstest.New(t), server.Options{Now: func() time.Time { return time.UnixMilli(now.Load()) }})
	r.create(ctx)
	for i, c := range []struct{ now, want int64 }{{1000, 1000}, {3_601_000, 3_601_000}, {5, 3_601_000}, {3_601_001, 3_601_001}} {
		now.Store(c.now)
		want := `"start":{"seq_num":` + strconv.Itoa(i) + `,"timestamp":` + strconv.FormatInt(c.want, 10) + `}`
		r.want(ctx, 200, want, "POST", records, `{"records":[{}]}`)
	}
}
