package streamchaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/typedfold/fold/client"
)

// Run starts the processes, breaks them under load, and judges. The report is there also when the run could not be ended as
// it was planned, which is an error, and no judgement.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	own := o.Dir == ""
	var err error
	if own {
		o.Dir, err = os.MkdirTemp("", "streamchaos-")
	} else {
		err = os.MkdirAll(o.Dir, 0o700)
	}
	if err != nil {
		return nil, err
	}
	began := time.Now()
	c := &chaos{o: o, since: func() time.Duration { return time.Since(began) }}
	report, err := c.run(ctx)
	if report != nil && own && err == nil && len(report.Findings) == 0 {
		return report, os.RemoveAll(o.Dir)
	}
	if err != nil {
		err = fmt.Errorf("streamchaos: %w; the processes' data and logs are in %s", err, o.Dir)
	}
	return report, err
}

// chaos is one run.
type chaos struct {
	o     Options
	since func() time.Duration
	w     *world
	l     *load
	s     *striker
	r     *readers
	// dead is what did not live again.
	dead  error
	tails []uint64
}

func (c *chaos) run(ctx context.Context) (*Report, error) {
	starting, cancel := context.WithTimeout(ctx, 2*startLimit)
	defer cancel()
	var err error
	if c.w, err = newWorld(starting, c.o); err != nil {
		return nil, err
	}
	defer c.w.close()
	c.l = newLoad(c.w, c.o.Seed, c.since)
	c.s = &striker{w: c.w, since: c.since}
	for _, k := range streamKinds {
		c.s.streams = append(c.s.streams, k.jetStream())
	}
	if c.r, err = newReaders(c.l); err != nil {
		return nil, err
	}
	if err := c.create(starting); err != nil {
		return nil, err
	}
	if err := c.load(ctx); err != nil {
		return nil, err
	}
	return c.judge(ctx)
}

func (c *chaos) create(ctx context.Context) error {
	for i, k := range streamKinds {
		err := until(ctx, "create "+k.name, func(ctx context.Context) error {
			err := c.r.clients[i%size].CreateStream(ctx, k.addr(), client.StreamConfig{Replicas: k.replicas})
			if errors.Is(err, client.ErrExists) {
				return nil // an attempt before had got through
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// load has the clients work while faults come and go, and goes on until every stream lives again and the readers have seen all.
func (c *chaos) load(ctx context.Context) error {
	stop := make(chan struct{})
	written := make(chan error, 1)
	go func() { written <- c.l.write(stop) }()
	reading, endReads := context.WithCancel(ctx)
	read := make(chan struct{})
	go func() {
		defer close(read)
		c.r.run(reading)
	}()
	telling, endTelling := context.WithCancel(ctx)
	defer endTelling()
	go c.tell(telling)
	err := c.faults(ctx)
	close(stop)
	select {
	case e := <-written:
		err = errors.Join(err, e)
	case <-time.After(c.o.Settle + 2*closeLimit):
		err = errors.Join(err, errors.New("the writers did not end"), c.stacks())
	}
	if err == nil && c.dead == nil {
		c.dead, err = c.within(ctx, c.caughtUp)
	}
	endReads()
	<-read
	return err
}

// stacks writes where all goroutines are into a file, and has the nodes write that into their logs, which ends them.
func (c *chaos) stacks() error {
	for _, p := range c.w.nova {
		p.signal(dump)
	}
	b := make([]byte, 4<<20)
	return os.WriteFile(filepath.Join(c.o.Dir, "stacks.txt"), b[:runtime.Stack(b, true)], 0o600)
}

// faults waits until all streams live, does the plan, heals, and waits for them to live again.
func (c *chaos) faults(ctx context.Context) error {
	dead, err := c.within(ctx, c.lives)
	if err = errors.Join(err, dead); err != nil {
		return fmt.Errorf("before any fault: %w", err)
	}
	c.s.run(ctx, plan(c.o.Seed, c.o))
	if _, err := c.within(ctx, c.w.heal); err != nil {
		return err
	}
	c.dead, err = c.within(ctx, c.lives)
	return err
}

func (c *chaos) lives(ctx context.Context) error { return c.l.lives(ctx) }

// within does something within the time to settle. The first result is that it failed, the second one that the run was ended.
func (c *chaos) within(ctx context.Context, f func(context.Context) error) (failed, ended error) {
	limited, cancel := context.WithTimeout(ctx, c.o.Settle)
	defer cancel()
	failed = f(limited)
	return failed, ctx.Err()
}

// caughtUp waits until every stream tells its tail, and a follower is there.
func (c *chaos) caughtUp(ctx context.Context) error {
	c.tails = make([]uint64, len(streamKinds))
	for i, k := range streamKinds {
		err := until(ctx, "tail of "+k.name, func(ctx context.Context) error {
			tail, err := c.r.clients[i%size].Tail(ctx, k.addr())
			c.tails[i] = tail.SeqNum
			return err
		})
		if err != nil {
			return err
		}
		for c.r.reached(i) < c.tails[i] {
			if !sleep(ctx, 10*time.Millisecond) {
				return fmt.Errorf("a follower of %s is at %d, and the tail at %d", k.name, c.r.reached(i), c.tails[i])
			}
		}
	}
	return nil
}

// tell tells how it goes, until ctx ends.
func (c *chaos) tell(ctx context.Context) {
	for c.o.Progress != nil && sleep(ctx, c.o.Every) {
		n, last := c.s.count()
		c.o.Progress(Progress{Since: c.since(), Calls: c.l.progress(), Faults: n, Last: last})
	}
}

// judge reads the logs and judges them.
func (c *chaos) judge(ctx context.Context) (*Report, error) {
	r := c.report()
	for i, k := range streamKinds {
		limited, cancel := context.WithTimeout(ctx, 2*c.o.Settle)
		images, err := scanAll(limited, c.w.js, k)
		cancel()
		if err != nil {
			if c.dead != nil {
				break // there is no log to be had, which is what is wrong
			}
			return r, err
		}
		e := evidence{stream: k.name, images: images, ops: c.l.ops(i), readings: c.r.of(i)}
		if i < len(c.tails) {
			e.tail = c.tails[i]
		}
		findings, tally := judgeStream(e)
		r.Findings = append(r.Findings, findings...)
		r.Streams = append(r.Streams, StreamReport{Name: k.name, Tally: tally})
	}
	for _, err := range c.w.ended() {
		r.Findings = append(r.Findings, Finding{Rule: ruleProcesses, Text: err.Error()})
	}
	if c.dead != nil {
		r.Findings = append(r.Findings, Finding{Rule: ruleLive, Text: c.dead.Error()})
	}
	slices.SortStableFunc(r.Faults, func(a, b FaultReport) int { return slices.Index(Kinds(), a.Kind) - slices.Index(Kinds(), b.Kind) })
	return r, nil
}
