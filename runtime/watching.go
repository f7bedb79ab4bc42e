package fold

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/runtime/kv"
)

// closeTimeout bounds the farewell to a consumer that the server drops by itself anyway.
const closeTimeout = 2 * time.Second

// openWatch is one open watch and its receive goroutine.
type openWatch struct {
	w        kv.Watch
	after    kv.Cursor
	requests chan machine.Receive // at most one is out
	cancel   context.CancelFunc
	closed   sync.Once
	err      error  // what ended the watch, told at the next request
	told     uint64 // how far the machine knows the watch to be
	stood    kv.Stood
	gaps     gaps
}

// open opens a watch on a goroutine of its own and posts how that went.
func (l *loop) open(e machine.OpenWatch) {
	req := kv.OpenRequest{Scope: l.cfg.scope, After: e.After, Known: l.log.get(), Stood: l.stood}
	// What a log that could evict has lost since, it has lost for good, though it may evict nothing any more.
	if !l.lostAt.IsZero() && !l.mending.evicts.Load() {
		req.Lost = max(time.Since(l.lostAt), 1)
	}
	if e.Relist {
		req.After = kv.Cursor{}
	}
	listed := l.mending.listed
	l.wg.Go(func() {
		w, err := l.cfg.watcher.Open(l.ctx, req)
		if err != nil {
			l.post(event{in: machine.OpenFailed{End: endOf(err), Err: err}})
			return
		}
		ctx, cancel := context.WithCancel(l.ctx)
		ow := &openWatch{w: w, after: e.After, told: req.After.Revision(), requests: make(chan machine.Receive, 1), cancel: cancel}
		ow.gaps = newGaps(req, w.Info(), l.mending.markersNow)
		if !l.post(event{in: openedWith(w.Info(), req.After, listed), watch: ow}) {
			ow.close()
			return
		}
		l.receive(ctx, ow)
	})
}

func endOf(err error) machine.End {
	switch {
	case errors.Is(err, kv.ErrCursorExpired):
		return machine.EndExpired
	case errors.Is(err, kv.ErrLogReplaced), errors.Is(err, kv.ErrLogRewound):
		return machine.EndLogChanged
	}
	return machine.EndTransient
}

// receive answers the machine's requests until the watch ends or is closed.
func (l *loop) receive(ctx context.Context, ow *openWatch) {
	defer ow.close()
	for {
		select {
		case r := <-ow.requests:
			ev := l.next(ctx, ow, r)
			if _, ended := ev.in.(machine.WatchEnded); !l.post(ev) || ended {
				return
			}
		case <-ctx.Done():
			// A request that is out is still answered.
			select {
			case <-ow.requests:
				l.post(event{in: machine.WatchEnded{Err: ctx.Err()}, stood: ow.stood})
			default:
			}
			return
		}
	}
}

// next answers one request: it takes deliveries into a segment and has each parsed as it comes. An error after some of
// it ends the watch at the next request.
func (l *loop) next(ctx context.Context, ow *openWatch, r machine.Receive) event {
	if ow.err != nil {
		return event{in: machine.WatchEnded{End: endOf(ow.err), Err: ow.err}, stood: ow.stood}
	}
	seg := l.free.get()
	var s machine.Segment
	for {
		from := len(seg.updates)
		d, err := ow.w.Next(ctx, kv.Delivery{Updates: seg.updates}, r.Max-from, r.MaxBytes-s.Bytes)
		if err != nil {
			if ow.err = err; from == 0 && s.Frontier == 0 {
				return event{in: machine.WatchEnded{End: endOf(err), Err: err}, stood: ow.stood}
			}
			break
		}
		seg.updates = d.Updates
		if d.Stood != (kv.Stood{}) {
			ow.stood = d.Stood
		}
		s.Owes |= ow.gaps.note(d.Updates[from:], &d)
		for i := range d.Updates[from:] {
			u := &d.Updates[from+i]
			if u.Version.Rank() > s.High.Rank() {
				s.High, s.HighMillis = u.Version, uint64(max(u.UnixNano, 0))/1e6
			}
			if kv.Reserved(u.Key) { // it is passed over, and so is the cursor's business only
				s.Frontier = max(s.Frontier, u.Version.Rank())
				if u.Version.Rank() > 0 && u.UnixNano > 0 {
					seg.passed = kv.Sample{Revision: u.Version.Rank(), UnixNano: u.UnixNano}
				}
				continue
			}
			s.Bytes += u.Size()
			s.Evicted = s.Evicted || u.Op == kv.OpAgedOut
		}
		seg.updates = withoutReserved(seg.updates, from)
		s.Frontier = max(s.Frontier, d.Frontier)
		l.cfg.sink.prepare(seg, from)
		l.more.Store(d.Pending)
		enough := len(seg.updates) >= r.Max || s.Bytes >= r.MaxBytes || d.Pending == 0
		if (len(seg.updates) > 0 || s.Frontier > ow.told) && (!r.Gather || enough) {
			break
		}
	}
	ow.told = max(ow.told, s.High.Rank(), s.Frontier)
	s.Updates, seg.bytes = len(seg.updates), s.Bytes
	return event{in: machine.Received{Segment: s}, seg: seg}
}

// withoutReserved leaves out the updates of reserved keys from a place on.
func withoutReserved(updates []kv.Update, from int) []kv.Update {
	kept := from
	for i := from; i < len(updates); i++ {
		if kv.Reserved(updates[i].Key) {
			continue
		}
		if kept != i {
			updates[kept] = updates[i]
		}
		kept++
	}
	clear(updates[kept:])
	return updates[:kept]
}

func (l *loop) closeWatch() {
	if l.watch == nil {
		return
	}
	l.watch.cancel()
	l.watch = nil
}

func (ow *openWatch) close() {
	ow.closed.Do(func() {
		ow.cancel()
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_ = ow.w.Close(ctx) // the server drops an idle consumer by itself
	})
}

// segmentPool keeps a few segments for re-use. Its bound is what a loop can have under way at once.
type segmentPool struct {
	mu   sync.Mutex
	free []*segment
}

const maxFreeSegments = 8

func (p *segmentPool) get() *segment {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		s := p.free[n-1]
		p.free = p.free[:n-1]
		return s
	}
	return &segment{}
}

func (p *segmentPool) put(s *segment) {
	clear(s.updates)
	clear(s.rejected)
	s.updates, s.bytes, s.passed = s.updates[:0], 0, kv.Sample{}
	s.rejected, s.unmatched, s.parsed, s.injected = s.rejected[:0], s.unmatched[:0], nil, nil
	for _, part := range s.parts {
		part.reset()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) < maxFreeSegments {
		p.free = append(p.free, s)
	}
}
