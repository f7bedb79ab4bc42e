package pebblestore

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/typedfold/fold/runtime/store"
)

// closeWait is how long Close waits for reads that are under way before it says that readers are open.
const closeWait = 250 * time.Millisecond

// refs counts what reads the database. Pebble panics when it is used after its close, and when it is closed under a
// reader.
type refs struct {
	n    atomic.Int64 // readers; far below zero once closing
	idle chan struct{}
	once sync.Once
}

const closing = -1 << 40

func (r *refs) acquire() error {
	if r.n.Add(1) < 0 {
		r.release()
		return store.ErrClosed
	}
	return nil
}

func (r *refs) release() {
	if r.n.Add(-1) == closing {
		select {
		case r.idleChan() <- struct{}{}:
		default:
		}
	}
}

func (r *refs) idleChan() chan struct{} {
	r.once.Do(func() { r.idle = make(chan struct{}, 1) })
	return r.idle
}

// close refuses new readers and waits a short while for those there are. It returns their number when some stay, and
// is undone then.
func (r *refs) close() int64 {
	idle := r.idleChan()
	r.n.Add(closing)
	limit := time.NewTimer(closeWait)
	defer limit.Stop()
	for {
		if r.n.Load() == closing {
			return 0
		}
		select {
		case <-idle:
		case <-limit.C:
			if open := r.n.Add(-closing); open > 0 {
				return open
			}
			r.n.Add(closing) // the last one left just now; a reader that came meanwhile is waited for
			limit.Reset(closeWait)
		}
	}
}

// held keeps a value's memory and the store open until it is closed.
type held struct {
	refs   *refs
	closer io.Closer
}

var heldPool = sync.Pool{New: func() any { return new(held) }}

func hold(r *refs, c io.Closer) *held {
	h := heldPool.Get().(*held)
	h.refs, h.closer = r, c
	return h
}

// Close is called once, by Value.Release.
func (h *held) Close() error {
	r, c := h.refs, h.closer
	*h = held{}
	heldPool.Put(h)
	err := c.Close()
	r.release()
	return err
}
