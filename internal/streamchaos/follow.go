package streamchaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/typedfold/fold/client"
)

// readers follow the streams, and look at places of them.
type readers struct {
	l       *load
	clients [size]*client.Client
	peeks   atomic.Int64

	mu     sync.Mutex
	all    []*reading
	by     []int // the stream of each
	behind map[int]uint64
	errors map[string]int
}

const maxPeeks = 4000

func newReaders(l *load) (*readers, error) {
	r := &readers{l: l, behind: map[int]uint64{}, errors: map[string]int{}}
	var err error
	r.clients, err = l.clients()
	return r, err
}

// run reads until ctx ends.
func (r *readers) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := range streamKinds {
		wg.Go(func() { r.follow(ctx, i) })
		wg.Go(func() { r.peek(ctx, i) })
	}
}

func (r *readers) add(stream int, one *reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all, r.by = append(r.all, one), append(r.by, stream)
}

// follow reads a stream from its beginning on, through one node after another.
func (r *readers) follow(ctx context.Context, stream int) {
	one := &reading{what: "follower", follow: true}
	r.add(stream, one)
	next := uint64(0)
	for node := stream; ctx.Err() == nil; node++ {
		until, cancel := context.WithTimeout(ctx, 8*time.Second)
		for rec, err := range r.clients[node%size].Read(until, streamKinds[stream].addr(), client.ReadOptions{SeqNum: next, Follow: true}) {
			if err != nil {
				if until.Err() == nil {
					r.failed(err)
					sleep(ctx, 50*time.Millisecond)
				}
				break
			}
			if next == 0 && rec.SeqNum != 0 {
				one.wrong = append(one.wrong, fmt.Sprintf("the first record is %d", rec.SeqNum))
			}
			one.take(rec)
			next = rec.SeqNum + 1
			r.reach(stream, next)
		}
		cancel()
	}
}

func (r *readers) failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := err.Error()
	r.errors[text[:min(len(text), 100)]]++
}

func (r *readers) reach(stream int, next uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.behind[stream] = next
}

// reached is where a stream's follower is.
func (r *readers) reached(stream int) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.behind[stream]
}

// peek reads a few records at any place, or before the tail, now and then.
func (r *readers) peek(ctx context.Context, stream int) {
	rng := rand.New(rand.NewPCG(r.l.seed, 1000+uint64(stream)))
	for sleep(ctx, time.Duration(rng.Int64N(int64(100*time.Millisecond)))) && r.peeks.Add(1) < maxPeeks {
		o := client.ReadOptions{SeqNum: rng.Uint64N(r.reached(stream) + 1), Limit: 1 + rng.Uint64N(30), Clamp: true}
		if rng.IntN(2) == 0 {
			o.TailOffset = new(uint64(1 + rng.Uint64N(30)))
		}
		one := &reading{what: "peek"}
		limited, cancel := context.WithTimeout(ctx, callLimit)
		for rec, err := range r.clients[rng.IntN(size)].Read(limited, streamKinds[stream].addr(), o) {
			if err != nil {
				if limited.Err() == nil {
					r.failed(err)
				}
				break
			}
			one.take(rec)
		}
		cancel()
		if len(one.got) > 0 {
			r.add(stream, one)
		}
	}
}

// of are the readings of a stream.
func (r *readers) of(stream int) (all []*reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, one := range r.all {
		if r.by[i] == stream {
			all = append(all, one)
		}
	}
	return all
}
