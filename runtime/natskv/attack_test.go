package natskv_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
)

// An open whose caller gives up while the server has stopped to answer returns soon, not when the operation's own
// deadline has passed.
func TestOpenGivenUpReturnsFromASilentServer(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{})
	r.put(t, "k", "v")
	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	p := newProxy(t, r, answer{subject: "CONSUMER.CREATE", before: cancel}, answer{subject: "CONSUMER.DELETE"})
	b, err := natskv.Bind(bounded(t), p.js, "b", natskv.BucketConfig{Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() {
		_, err := b.Open(ctx, kv.OpenRequest{})
		opened <- err
	}()
	select {
	case err := <-opened:
		wantErr(t, err, context.Canceled)
	case <-bounded(t).Done():
		t.Fatal("the open waits for the answer to its clean-up")
	}
}

// The server works on several requests at once, so one that deletes a consumer must not be sent before the one that
// creates it is answered: else an open that is given up leaves a consumer behind.
func TestOpenGivenUpLeavesNoConsumer(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{})
	r.put(t, "k", "v")
	deleting := make(chan struct{}, 1)
	if _, err := r.nc.Subscribe(proxyPrefix+"CONSUMER.DELETE.>", func(*nats.Msg) { deleting <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	if err := r.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	p := newProxy(t, r, answer{subject: "CONSUMER.CREATE", before: func() {
		cancel()
		select {
		case <-deleting:
			t.Error("the consumer is deleted before it is there")
		case <-time.After(200 * time.Millisecond): // long enough for one that does not wait
		}
	}, forward: true, reply: "{}"})
	b, err := natskv.Bind(bounded(t), p.js, "b", natskv.BucketConfig{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Open(ctx, kv.OpenRequest{})
	wantErr(t, err, context.Canceled)
	r.wantConsumers(t, 0)
}
