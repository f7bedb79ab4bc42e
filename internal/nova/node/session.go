package node

import (
	"context"

	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/sequencer"
)

// Session is an open append session: batches are admitted in the order of Submit, all under the token that opened it. It
// belongs to one leader, and ends with that one's lead. It is used by one goroutine.
type Session struct{ s session }

// OpenSession opens a session for a writer that presents the token, "" for none. A token that does not match is a
// *sequencer.FencedError.
func (s *Stream) OpenSession(ctx context.Context, token string) (*Session, error) {
	if err := nova.CheckToken(token); err != nil {
		return nil, err
	}
	var opened session
	err := s.with(ctx, func(p plane) (err error) {
		opened, err = p.open(ctx, token)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &Session{opened}, nil
}

// Tail is the committed tail when the session was opened.
func (s *Session) Tail() nova.Position { return s.s.Tail() }

// Submit hands a batch over. done is called once, on another goroutine, in the order of submissions for those that are
// acknowledged; it must not block. An error says that the batch was not handed over. It ends the session, since others behind the batch
// must not get into the log without it: they are *sequencer.UnavailableError.
func (s *Session) Submit(ctx context.Context, records []nova.Record, match *uint64, done func(sequencer.Result)) error {
	return s.s.Submit(ctx, records, match, done)
}

// Over is closed when no batch of the session can be admitted any more: a fence has superseded it, its leader leads no more,
// or is not heard of. What was admitted before has been answered, or is yet to be.
func (s *Session) Over() <-chan struct{} { return s.s.Over() }

// Err is why the session is over: *sequencer.FencedError, *sequencer.UnavailableError; nil while it is not.
func (s *Session) Err() error { return s.s.Err() }

// Close ends the session. What was submitted is admitted or not as if it had gone on.
func (s *Session) Close() { s.s.Close() }
