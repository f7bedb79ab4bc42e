package kvtest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/typedfold/fold/runtime/kv"
)

func TestScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused, ended := errors.New("refused"), errors.New("ended")
		put := kv.Update{Key: "a", Version: kv.Revision(7), Op: kv.OpPut}
		s := NewScript(kv.LogInfo{Last: 9},
			Opening{Err: refused},
			Opening{Info: kv.LogInfo{Last: 7}, Turns: []Turn{Deliver(put), {Delivery: kv.Delivery{Frontier: 9}}}, End: ended},
			Opening{},
		)
		ctx := context.Background()
		if info, err := s.Info(ctx); err != nil || info.Last != 9 {
			t.Fatal(info, err)
		}
		s.SetInfo(kv.LogInfo{}, refused)
		if _, err := s.Info(ctx); err != refused {
			t.Fatal(err)
		}
		scope, _ := kv.Prefixes("a.")
		if _, err := s.Open(ctx, kv.OpenRequest{After: kv.CursorAt(3)}); !errors.Is(err, refused) {
			t.Fatal(err)
		}
		w, err := s.Open(ctx, kv.OpenRequest{After: kv.CursorAt(4), Scope: scope})
		if err != nil || w.Info().Last != 7 {
			t.Fatal(err)
		}
		d, err := w.Next(ctx, kv.Delivery{}, 1, 1)
		if err != nil || len(d.Updates) != 1 || d.Frontier != 7 {
			t.Fatal(d, err)
		}
		if d, err = w.Next(ctx, d, 1, 1); err != nil || len(d.Updates) != 1 || d.Frontier != 9 {
			t.Fatal(d, err)
		}
		for range 2 {
			if _, err := w.Next(ctx, d, 1, 1); err != ended {
				t.Fatal(err)
			}
		}
		// A script without an end waits for its context, or for Close.
		w, err = s.Open(ctx, kv.OpenRequest{})
		if err != nil {
			t.Fatal(err)
		}
		closed := make(chan error)
		go func() {
			_, err := w.Next(ctx, kv.Delivery{}, 1, 1)
			closed <- err
		}()
		synctest.Wait()
		for range 2 {
			if err := w.Close(ctx); err != nil || s.Closed() != 1 {
				t.Fatal("a watch is closed once", err)
			}
		}
		if err := <-closed; !errors.Is(err, kv.ErrWatchLost) {
			t.Fatal(err)
		}
		if _, err := s.Open(ctx, kv.OpenRequest{}); !errors.Is(err, ErrScriptOver) {
			t.Fatal(err)
		}
		s.Then(Opening{})
		w, _ = s.Open(ctx, kv.OpenRequest{})
		soon, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		if _, err := w.Next(soon, kv.Delivery{}, 1, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		opens := s.Opens()
		if len(opens) != 5 || opens[0].After != kv.CursorAt(3) || opens[1].Scope.String() != "a." {
			t.Fatal(opens)
		}
	})
}
