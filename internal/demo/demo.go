package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/runtime/natskv"

	"github.com/typedfold/fold/examples/routes/gen/routes/v1/routesv1fold"
	"github.com/typedfold/fold/examples/routes/router"
)

// demo is one run.
type demo struct {
	c      config
	show   *show
	stderr io.Writer
	dir    string
	server *natstest.Server
	bucket *natskv.Bucket
	writer *writer
	seeded uint64                  // the last revision of the seeding
	a, b   atomic.Pointer[process] // read by what shows them too
	fresh  atomic.Pointer[process] // router c
	pa, pb prober
	res    results
}

// run plays the whole script. Its error says what did not hold.
func (c config) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("the demo took longer than %v", c.timeout))
	defer cancel()
	d := &demo{c: c, stderr: stderr, show: newShow(stdout, stderr, c.json)}
	began := time.Now()
	err = d.play(ctx)
	d.show.close()
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	case err != nil:
		return err
	}
	d.res.Seconds = time.Since(began).Seconds()
	d.res.judge()
	if err := d.res.print(stdout, c.json); err != nil {
		return err
	}
	return d.res.err()
}

func (d *demo) play(ctx context.Context) (err error) {
	if d.dir, err = os.MkdirTemp("", "fold-demo-*"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	stop, err := d.setUp(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, d.shutDownRouters(ctx))
	}()
	defer d.show.stopLive()
	for _, act := range []func(context.Context) error{d.seed, d.startRouters, d.killInMidBatch, d.writeOn, d.restart, d.settle, d.replay} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

// setUp starts the server, the origin of the stable routes, and the writer's connection.
func (d *demo) setUp(ctx context.Context) (stop func() error, err error) {
	if d.server, err = natstest.Start(natstest.Options{StoreDir: filepath.Join(d.dir, "nats")}); err != nil {
		return nil, err
	}
	conn, err := natskv.Connect(ctx, natskv.ConnectOptions{URL: d.server.URL(), Name: "demo-writer"})
	if err != nil {
		return nil, errors.Join(err, d.server.Shutdown())
	}
	origin := httpFront{h: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, r.Host) })}
	stop = func() error {
		err := conn.Shutdown(context.WithoutCancel(ctx))
		if origin.srv != nil {
			err = errors.Join(err, origin.srv.Close())
		}
		return errors.Join(err, d.server.Shutdown())
	}
	if err := origin.listen(); err != nil {
		return nil, errors.Join(err, stop())
	}
	js, err := conn.JetStream()
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	if d.bucket, err = natskv.Open(ctx, js, router.Bucket, natskv.BucketConfig{}); err != nil {
		return nil, errors.Join(err, stop())
	}
	d.writer = &writer{w: routesv1fold.NewRouteWriter(d.bucket), origin: origin.addr, routes: d.c.routes}
	return stop, nil
}

func (d *demo) seed(ctx context.Context) error {
	d.show.say("NATS server on %s; writing %s routes", d.server.URL(), count(d.c.routes))
	d.show.live(func() string {
		return fmt.Sprintf("%s of %s routes written", count(d.writer.rows.Load()), count(d.c.routes))
	})
	if err := d.writer.seed(ctx); err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	d.seeded = d.writer.highest.Load()
	return nil
}

// start starts a router process on the folder of its name.
func (d *demo) start(ctx context.Context, at *atomic.Pointer[process], name string) error {
	p, err := startProcess(ctx, name, d.server.URL(), filepath.Join(d.dir, name), d.c.verbose, d.stderr)
	if err == nil {
		at.Store(p)
	}
	return err
}

func (d *demo) startRouters(ctx context.Context) error {
	d.show.live(d.state)
	if err := d.start(ctx, &d.a, "a"); err != nil {
		return err
	}
	if err := d.start(ctx, &d.b, "b"); err != nil {
		return err
	}
	for _, p := range []*process{d.a.Load(), d.b.Load()} {
		m, err := p.wait(ctx, "hydrated")
		if err != nil {
			return err
		}
		d.show.say("router %s (process %d) hydrated: %s updates", p.name, p.cmd.Process.Pid, count(m.Updates))
	}
	d.writer.start(ctx, d.c.rate, d.c.updates())
	d.pa.begin(ctx, d.a.Load().ready().Address)
	d.pb.begin(ctx, d.b.Load().ready().Address)
	d.show.say("writer: %s updates a second; one request to each router every %v", count(d.c.rate), probeEvery)
	d.writer.grant(d.c.before)
	return d.waitWritten(ctx)
}

// waitWritten waits until the writer has used up what it was granted.
func (d *demo) waitWritten(ctx context.Context) error {
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for d.writer.written.Load() < d.writer.granted {
		select {
		case <-t.C:
		case <-d.writer.done:
			return fmt.Errorf("writer ended early: %w", orElse(d.writer.err, context.Canceled))
		case <-ctx.Done():
			return fmt.Errorf("wait for %d updates: %w", d.writer.granted, context.Cause(ctx))
		}
	}
	return nil
}

// killInMidBatch ends router b between a batch's hooks and its commit.
func (d *demo) killInMidBatch(ctx context.Context) error {
	b := d.b.Load()
	// What it has hydrated is durable by now or in a moment; a kill before would be one of an empty fold.
	if err := b.until(ctx, "a durable fold", func() bool { return b.latest.Durable >= d.seeded }); err != nil {
		return err
	}
	if err := b.command(commandHold); err != nil {
		return err
	}
	if _, err := b.wait(ctx, "holding"); err != nil {
		return err
	}
	d.writer.grant(d.c.inBatch())
	held, err := b.wait(ctx, "held")
	if err != nil {
		return err
	}
	d.pb.end()
	if err := b.kill(ctx); err != nil {
		return err
	}
	last := b.last()
	d.res.Kill = killResult{Killed: b.killed(), HeldFirst: held.First, HeldLast: held.Last, Applied: last.Applied, Durable: last.Durable}
	d.res.Back += last.Back
	d.show.say("router b killed with SIGKILL in the middle of the batch of revisions %s to %s, at cursor %s",
		count(held.First), count(held.Last), count(last.Applied))
	return nil
}

func (d *demo) writeOn(ctx context.Context) error {
	before := d.writer.highest.Load()
	d.writer.grant(d.c.down)
	if err := d.waitWritten(ctx); err != nil {
		return err
	}
	d.show.say("the writer went on: %s revisions while b was down", count(d.writer.highest.Load()-before))
	return nil
}

func (d *demo) restart(ctx context.Context) error {
	d.writer.grant(d.c.during())
	began := time.Now()
	if err := d.start(ctx, &d.b, "b"); err != nil {
		return err
	}
	b := d.b.Load()
	ready := b.ready()
	d.res.Kill.Resumed = ready.Resumed
	d.pb.begin(ctx, ready.Address) // with its first request
	d.res.Delta.ServingMillis = time.Since(began).Milliseconds()
	m, err := b.wait(ctx, "hydrated")
	if err != nil {
		return err
	}
	d.res.Delta.Updates, d.res.Delta.Replayed, d.res.Delta.Millis = m.Updates, m.Replayed, time.Since(began).Milliseconds()
	d.show.say("router b started again: serving its own disk after %d ms, resumed at %s, caught up after %d ms with %s updates",
		d.res.Delta.ServingMillis, count(ready.Resumed), d.res.Delta.Millis, count(m.Updates))
	d.writer.grant(d.c.after)
	return d.waitWritten(ctx)
}

// settle stops the writer and has both routers reach the head of the log.
func (d *demo) settle(ctx context.Context) error {
	if err := d.writer.finish(); err != nil {
		return fmt.Errorf("writer: %w", err)
	}
	info, err := d.bucket.Info(ctx)
	if err != nil {
		return err
	}
	d.res.Head, d.res.Messages = info.Last, info.Messages
	d.res.Rows = uint64(d.writer.rows.Load())
	d.show.say("writer stopped at revision %s with %s routes", count(info.Last), count(d.res.Rows))
	d.res.A, err = d.finalState(ctx, d.a.Load())
	if err != nil {
		return err
	}
	if d.res.B, err = d.finalState(ctx, d.b.Load()); err != nil {
		return err
	}
	d.pa.end()
	d.pb.end()
	d.res.A.Served, d.res.A.Failed = d.pa.served.Load(), d.pa.failed.Load()
	d.res.B.Served, d.res.B.Failed = d.pb.served.Load(), d.pb.failed.Load()
	return nil
}

// replay has a router without a fold read the whole bucket: the measure of what the restart saved, and a third opinion
// on what the bucket holds.
func (d *demo) replay(ctx context.Context) error {
	began := time.Now()
	if err := d.start(ctx, &d.fresh, "c"); err != nil {
		return err
	}
	c := d.fresh.Load()
	m, err := c.wait(ctx, "hydrated")
	if err != nil {
		return err
	}
	d.res.Full.Updates, d.res.Full.Millis = m.Updates, time.Since(began).Milliseconds()
	d.res.C, err = d.finalState(ctx, c)
	d.show.say("router c, with an empty disk, needed %s updates", count(m.Updates))
	return err
}

func (d *demo) finalState(ctx context.Context, p *process) (nodeResult, error) {
	if err := p.waitApplied(ctx, d.res.Head); err != nil {
		return nodeResult{}, err
	}
	if err := p.command(commandDigest); err != nil {
		return nodeResult{}, err
	}
	m, err := p.wait(ctx, "digest")
	if err != nil {
		return nodeResult{}, err
	}
	d.res.Back += p.last().Back
	return nodeResult{Cursor: m.Applied, Rows: m.Rows, Digest: m.Digest}, nil
}

func (d *demo) shutDownRouters(ctx context.Context) error {
	d.pa.end()
	d.pb.end()
	_ = d.writer.finish() // on the way here its error has been told, or another one was first
	var errs []error
	for _, p := range []*process{d.a.Load(), d.b.Load(), d.fresh.Load()} {
		if p != nil && !p.killed() {
			errs = append(errs, p.shutdown(ctx))
		}
	}
	return errors.Join(errs...)
}

// state is one line on all of them.
func (d *demo) state() string {
	head := d.writer.highest.Load()
	line := "log " + count(head)
	for _, p := range []*process{d.a.Load(), d.b.Load()} {
		if p == nil {
			continue
		}
		line += "  " + p.name + " "
		if p.hasEnded() {
			line += "down"
			continue
		}
		applied := p.last().Applied
		line += count(applied)
		if head > applied {
			line += fmt.Sprintf(" (%s behind)", count(head-applied))
		}
	}
	return line
}
