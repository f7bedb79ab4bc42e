package streamchaos

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// struck is a fault that was done, from one time to another since the run began.
type struck struct {
	fault
	From, To time.Duration
}

// striker does the faults of a plan.
type striker struct {
	w       *world
	streams []string // JetStream's names
	since   func() time.Duration

	mu   sync.Mutex
	done []struck
	last string
}

// run does each fault in its time, and returns when all have ended.
func (s *striker) run(ctx context.Context, plan []fault) {
	var wg sync.WaitGroup
	defer wg.Wait()
	began := s.since()
	for _, f := range plan {
		if !sleep(ctx, f.At-(s.since()-began)) {
			return
		}
		wg.Go(func() {
			from := s.since()
			s.note(f)
			s.strike(ctx, f)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.done = append(s.done, struck{fault: f, From: from, To: s.since()})
		})
	}
}

func (s *striker) note(f fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = f.String()
}

// count is how many faults have ended, and the newest one.
func (s *striker) count() (n int, last string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.done), s.last
}

// sleep is false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// strike does one fault, to its end.
func (s *striker) strike(ctx context.Context, f fault) {
	w := s.w
	n := f.Target
	if f.Leader {
		n = s.leader(f.Other, n)
	}
	switch f.Kind {
	case StepDown:
		s.stepDown(s.w.nc.Request, "$JS.API.STREAM.LEADER.STEPDOWN."+s.streams[f.Other])
	case StepDownMeta:
		s.stepDown(s.w.system.Request, "$JS.API.META.LEADER.STEPDOWN")
	case KillNATS:
		again(ctx, f.Hold, w.nats[n])
	case KillNova:
		again(ctx, f.Hold, w.nova[n])
	case KillAllNATS:
		again(ctx, f.Hold, w.nats[:]...)
	case PauseNATS, PauseNova:
		p := w.nats[n]
		if f.Kind == PauseNova {
			p = w.nova[n]
		}
		p.signal(pause)
		sleep(ctx, f.Hold)
		p.signal(resume)
	case Split:
		for _, p := range w.between(n) {
			defer stall(p, fault{Up: true, Down: true, Breaks: f.Breaks})()
		}
		sleep(ctx, f.Hold)
	default:
		for _, p := range s.proxies(f) {
			switch f.Kind {
			case Isolate:
				p.refuse()
				p.cut()
				defer p.admit()
			case Stall:
				defer stall(p, f)()
			default:
				p.cut()
			}
		}
		sleep(ctx, f.Hold)
	}
}

// proxies are those that a fault is of: all connections of a node to the nats-servers, or those of its clients.
func (s *striker) proxies(f fault) []*proxy {
	if f.Front {
		return []*proxy{s.w.fronts[f.Target]}
	}
	return s.w.lines[f.Target][:]
}

// stall holds a proxy's bytes back; the result ends that.
func stall(p *proxy, f fault) (end func()) {
	var held []direction
	if f.Up {
		held = append(held, up)
	}
	if f.Down {
		held = append(held, down)
	}
	for _, d := range held {
		p.hold(d)
	}
	return func() {
		if f.Breaks {
			p.cut()
		}
		for _, d := range held {
			p.release(d)
		}
	}
}

// again kills processes and starts them again after a while.
func again(ctx context.Context, hold time.Duration, all ...*process) {
	var wg sync.WaitGroup
	for _, p := range all {
		wg.Go(p.kill)
	}
	wg.Wait()
	sleep(ctx, hold)
	for _, p := range all {
		wg.Go(func() { _ = p.start(ctx) }) // heal says so if it does not start at all
	}
	wg.Wait()
}

// request is how a connection asks.
type request func(subject string, data []byte, timeout time.Duration) (*nats.Msg, error)

// stepDown asks for it. A group without a leader has none that steps down.
func (s *striker) stepDown(ask request, subject string) { _, _ = ask(subject, nil, 2*time.Second) }

// leader is the nats-server that leads a stream, or another one.
func (s *striker) leader(stream, other int) int {
	m, err := s.w.nc.Request("$JS.API.STREAM.INFO."+s.streams[stream], nil, time.Second)
	if err != nil {
		return other
	}
	var info struct {
		Cluster struct{ Leader string }
	}
	if json.Unmarshal(m.Data, &info) != nil {
		return other
	}
	for i := range size {
		if info.Cluster.Leader == natsName(i) {
			return i
		}
	}
	return other
}
