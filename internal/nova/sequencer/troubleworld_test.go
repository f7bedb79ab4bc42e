package sequencer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/frame"
	"github.com/typedfold/fold/internal/nova/jslog"
	"github.com/typedfold/fold/runtime/protocol"
)

// troubled is a leader of a log in memory, in virtual time, and what it has answered.
type troubled struct {
	t   *testing.T
	log *fakeLog
	l   *Leader

	mu      sync.Mutex
	results map[string]Result
	order   []string
}

// trouble runs a test in virtual time. Each message of the chain carries one batch: they are submitted one by one.
func trouble(t *testing.T, controls int, f func(w *troubled)) {
	synctest.Test(t, func(t *testing.T) {
		w := &troubled{t: t, log: newFakeLog(t, controls), results: map[string]Result{}}
		var err error
		if w.l, err = Start(t.Context(), w.log, Options{Node: "one"}); err != nil {
			t.Fatal(err)
		}
		f(w)
		w.log.script(nil)
		w.stop()
		w.log.all()
		if !w.l.shots.TryAcquire(int64(w.l.o.shots())) || !w.l.bytes.TryAcquire(int64(w.l.o.MaxBytes-w.l.o.shots())) {
			t.Error("bytes are held that nothing needs any more")
		}
	})
}

func (w *troubled) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := w.l.Stop(ctx); err != nil {
		w.t.Error(err)
	}
}

// submit hands batches over, each named by its body, and waits until the leader does nothing more at this time.
func (w *troubled) submit(a protocol.Append, names ...string) {
	w.t.Helper()
	for _, name := range names {
		err := w.l.Submit(w.t.Context(), Append{Append: a, Records: bodies(name)}, func(r Result) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if _, twice := w.results[name]; twice {
				w.t.Errorf("%s is answered twice", name)
			}
			w.results[name] = r
			w.order = append(w.order, name)
		})
		if err != nil {
			w.t.Fatalf("%s: %v", name, err)
		}
		synctest.Wait()
	}
}

// fence asks for a fence; the answer comes later.
func (w *troubled) fence(token string) func() (nova.Position, error) {
	type answer struct {
		tail nova.Position
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		tail, err := w.l.Fence(context.Background(), token)
		got <- answer{tail, err}
	}()
	synctest.Wait()
	return func() (nova.Position, error) {
		a := <-got
		return a.tail, a.err
	}
}

func (w *troubled) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// want says what came of a batch: its number, "indefinite", "nothing", "fenced", "missed" or "waits".
func (w *troubled) want(want string, names ...string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		r, ok := w.results[name]
		got := "waits"
		var away *UnavailableError
		switch {
		case !ok:
		case r.Err == nil:
			got = fmt.Sprint(r.Start.SeqNum)
		case errors.As(r.Err, &away) && away.Indefinite:
			got = "indefinite"
		case errors.As(r.Err, &away):
			got = "nothing"
		case errors.As(r.Err, new(*FencedError)):
			got = "fenced"
		case errors.As(r.Err, new(*MissedError)):
			got = "missed"
		}
		if got != want {
			w.t.Errorf("%s: %s, want %s (%v)", name, got, want, r.Err)
		}
	}
}

func (w *troubled) wantLog(want string) {
	w.t.Helper()
	if got := strings.Join(w.log.bodies(), " "); got != want {
		w.t.Errorf("the log holds %q, want %q", got, want)
	}
}

func nth(v verdict, which ...int) func(int, jslog.Message) verdict {
	return func(n int, _ jslog.Message) verdict {
		if slices.Contains(which, n) {
			return v
		}
		return delivers
	}
}

// other has another node lead the log for a while, and do something.
func (w *troubled) other(f func(l *Leader)) {
	w.t.Helper()
	l, err := Start(w.t.Context(), w.log, Options{Node: "two"})
	if err != nil {
		w.t.Fatal(err)
	}
	f(l)
	if err := l.Stop(w.t.Context()); err != nil {
		w.t.Error(err)
	}
}

func stateText(s frame.State) string { return fmt.Sprintf("%d:%d%s", s.Next, s.Fence, s.Token) }
