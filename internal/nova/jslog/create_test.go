package jslog

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/internal/nova"
)

// TestInsist: what a cluster refuses for a moment is tried again within a bound, and what it refuses for good is not.
func TestInsist(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		fails int
		tries int
		want  error
	}{
		"no leader":       {&jetstream.APIError{Code: 503, ErrorCode: 10008}, 3, 4, nil},
		"no peers":        {&jetstream.APIError{Code: 400, ErrorCode: codeNoPeers}, 3, 4, nil},
		"leads no more":   {&jetstream.APIError{Code: 500, ErrorCode: codeNotLeader}, 1, 2, nil},
		"nobody listens":  {nats.ErrNoResponders, 5, 6, nil},
		"no answer":       {context.DeadlineExceeded, 2, 3, nil},
		"there already":   {jetstream.ErrStreamNameAlreadyInUse, 1, 1, jetstream.ErrStreamNameAlreadyInUse},
		"not permitted":   {nats.ErrPermissionViolation, 1, 1, nats.ErrPermissionViolation},
		"busy for always": {&jetstream.APIError{Code: 503, ErrorCode: 10023}, 1 << 20, 0, ErrBusy},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, tries := time.Now(), 0
			err := insist(t.Context(), func(context.Context) error {
				if tries++; tries <= c.fails {
					return c.err
				}
				return nil
			})
			if !errors.Is(err, c.want) || c.tries > 0 && tries != c.tries || time.Since(began) > createFor {
				t.Errorf("%s: %v after %d tries and %v", name, err, tries, time.Since(began))
			}
			if errors.Is(err, ErrMayExist) {
				t.Errorf("%s: every attempt was answered: %v", name, err)
			}
		})
	}
}

// TestInsistRemembersWhatHadNoAnswer: an attempt without an answer may have got through, whatever comes of those behind it.
func TestInsistRemembersWhatHadNoAnswer(t *testing.T) {
	busyNow := &jetstream.APIError{Code: 503, ErrorCode: 10008}
	for name, c := range map[string]struct {
		first, then error
		want        error
	}{
		"then busy":      {context.DeadlineExceeded, busyNow, ErrBusy},
		"then refused":   {nats.ErrTimeout, &jetstream.APIError{Code: 400, ErrorCode: 10052}, ErrMayExist},
		"then nobody":    {nats.ErrTimeout, nats.ErrNoResponders, ErrBusy},
		"and no other":   {nats.ErrConnectionClosed, nil, nats.ErrConnectionClosed},
		"behind a busy":  {busyNow, context.DeadlineExceeded, ErrBusy},
		"behind nothing": {nats.ErrNoResponders, nats.ErrDisconnected, nats.ErrDisconnected},
	} {
		synctest.Test(t, func(t *testing.T) {
			tries := 0
			err := insist(t.Context(), func(context.Context) error {
				if tries++; tries == 1 {
					return c.first
				}
				return c.then
			})
			if !errors.Is(err, c.want) || !errors.Is(err, ErrMayExist) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// TestCreateTwice: the second of two creations, each of which makes a stream of its own, finds the first.
func TestCreateTwice(t *testing.T) {
	nc := connect(t, natstest.New(t).Connect)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	a := nova.Addr{Namespace: "demo", Stream: "events"}
	for i, want := range []error{nil, ErrExists} {
		if _, err := Create(t.Context(), nc, js, a, Config{}); !errors.Is(err, want) {
			t.Errorf("creation %d: %v", i, err)
		}
	}
}
