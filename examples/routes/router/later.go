package router

import (
	"context"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
)

// Later is a bucket that is opened, and created if it is absent, when the fold first reaches the server, not before:
// a router whose NATS is away starts all the same, on what it has on disk. It is for folds, which ask a bucket for its
// name and its log and nothing else.
func Later(js jetstream.JetStream, name string, cfg natskv.BucketConfig) fold.Bucket {
	return &later{js: js, name: name, cfg: cfg}
}

type later struct {
	fold.Bucket // nil
	js          jetstream.JetStream
	name        string
	cfg         natskv.BucketConfig

	mu     sync.Mutex
	bucket *natskv.Bucket
}

func (l *later) Name() string { return l.name }

func (l *later) opened(ctx context.Context) (*natskv.Bucket, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bucket == nil {
		b, err := natskv.Open(ctx, l.js, l.name, l.cfg)
		if err != nil {
			return nil, err
		}
		l.bucket = b
	}
	return l.bucket, nil
}

func (l *later) Info(ctx context.Context) (kv.LogInfo, error) {
	b, err := l.opened(ctx)
	if err != nil {
		return kv.LogInfo{}, err
	}
	return b.Info(ctx)
}

func (l *later) Open(ctx context.Context, req kv.OpenRequest) (kv.Watch, error) {
	b, err := l.opened(ctx)
	if err != nil {
		return nil, err
	}
	return b.Open(ctx, req)
}
