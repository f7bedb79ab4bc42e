package kvtest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// Info is the log's identity and bounds.
func (l *Log) Info(ctx context.Context) (kv.LogInfo, error) {
	e, err := l.enter(ctx, PointInfo, "read log info")
	if err != nil {
		return kv.LogInfo{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire()
	if e.stale && l.lastInfo.Bucket != "" {
		return l.lastInfo, nil
	}
	l.lastInfo = l.info()
	return l.lastInfo, nil
}

// Open begins a watch, after the window and identity kernels.
func (l *Log) Open(ctx context.Context, req kv.OpenRequest) (kv.Watch, error) {
	e, err := l.enter(ctx, PointOpen, "open watch")
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire()
	info := l.info()
	if !e.unchecked {
		if info.Identity, err = l.judge(req, info); err != nil {
			return nil, err
		}
	}
	w := &watch{log: l, scope: req.Scope, info: info}
	if req.After.IsNone() {
		w.list = l.currentRevisions(req.Scope)
		w.next = l.last() + 1
	} else {
		w.next = max(req.After.Revision()+1, l.first)
		w.covered, w.told = w.next-1, w.next-1
	}
	l.watches = append(l.watches, w)
	w.fetch(l.opts.Prefetch)
	return w, nil
}

// judge is what an adapter owes every open: JetStream itself refuses none of these.
func (l *Log) judge(req kv.OpenRequest, info kv.LogInfo) (protocol.LogAnswer, error) {
	cursor := req.After.Revision()
	if _, ok := req.After.Version.Uint64(); !ok && !req.After.IsNone() {
		return 0, &kv.UnsupportedError{Op: "open watch", Setting: "cursor", Detail: fmt.Sprintf("%v is not a stream revision", req.After)}
	}
	seen := protocol.LogSeen{NotedCreated: req.Known.CreatedUnixNano, Created: l.created, Cursor: cursor, Last: info.Last}
	for _, s := range req.Known.Samples {
		if s.Revision == cursor {
			seen.AtCursor = l.find(s)
		} else {
			seen.Samples = append(seen.Samples, l.find(s))
		}
	}
	answer := protocol.LogIsSame(seen)
	switch answer {
	case protocol.LogReplaced, protocol.LogRewound:
		changed := &kv.LogChangedError{Bucket: l.opts.Bucket, Replaced: answer == protocol.LogReplaced, Cursor: req.After, Last: info.Last, Created: info.Created}
		if n := req.Known.CreatedUnixNano; n != 0 {
			changed.NotedCreated = time.Unix(0, n)
		}
		return answer, changed
	}
	if req.After.IsNone() {
		return answer, nil
	}
	if _, ok := protocol.ResumeStart(cursor); !ok || !protocol.ReopenIsWhole(protocol.Reopen{
		Cursor: cursor, First: info.First, Evicts: info.Retention.EvictsCurrentValues, Lost: req.Lost.Nanoseconds(),
	}) {
		return answer, &kv.ExpiredError{Bucket: l.opts.Bucket, Cursor: req.After, First: info.First}
	}
	return answer, nil
}

func (l *Log) find(s kv.Sample) protocol.SampleFound {
	if s.Revision == 0 || s.Revision > l.last() {
		return protocol.SampleAbsent
	}
	// The time of the last message is known also when it is gone.
	if l.msgs[s.Revision-1].fate != alive && (s.Revision != l.last() || l.msgs[s.Revision-1].update.UnixNano != s.UnixNano) {
		return protocol.SampleAbsent
	}
	if l.msgs[s.Revision-1].update.UnixNano != s.UnixNano {
		return protocol.SampleDiffers
	}
	return protocol.SampleMatches
}

// currentRevisions are those of the keys in scope, tombstones too, in revision order.
func (l *Log) currentRevisions(scope kv.Scope) []uint64 {
	var out []uint64
	for key, revs := range l.byKey {
		if scope.Contains(key) {
			out = append(out, revs[len(revs)-1])
		}
	}
	slices.Sort(out)
	return out
}

// prefetch lets every watch take what its requests in flight would have got by now.
func (l *Log) prefetch() {
	if l.opts.Prefetch == 0 {
		return
	}
	for _, w := range slices.Clone(l.watches) {
		w.fetch(l.opts.Prefetch - len(w.buf))
	}
}

// watch reads its log under the log's lock; buf, list and the rest belong to it.
type watch struct {
	log   *Log
	scope kv.Scope
	info  kv.LogInfo

	list    []uint64 // what is left of the re-list, in revision order
	next    uint64   // the next revision of the live tail
	covered uint64   // everything at or below it is in buf or was handed out
	buf     []*message
	told    uint64    // the frontier that the reader knows
	began   bool      // the reader was told something
	prev    kv.Update // the last update handed out
	lost    error     // the watch is over
	overrun error     // the watch is over once buf is handed out
}

func (w *watch) Info() kv.LogInfo { return w.info }

// fetch takes up to n messages in scope. The guard comes first: what retention took from the tail's head before the
// watch saw it is an expiry, never a silent skip.
func (w *watch) fetch(n int) {
	if w.lost != nil || w.overrun != nil || n <= 0 {
		return
	}
	l := w.log
	if w.next <= l.last() && protocol.LiveGapIsExpiry(l.limits.evictsCurrentValues(), w.next-1, l.first) {
		w.overrun = &kv.ExpiredError{Bucket: l.opts.Bucket, Cursor: kv.CursorAt(w.covered), First: l.first}
		return
	}
	for ; n > 0 && len(w.list) > 0; w.list = w.list[1:] {
		w.covered = w.list[0]
		if m := l.msgs[w.covered-1]; m.fate == alive {
			w.buf = append(w.buf, m)
			n--
		}
	}
	if len(w.list) > 0 {
		return
	}
	for ; n > 0 && w.next <= l.last(); w.next++ {
		if m := l.msgs[w.next-1]; m.fate == alive && w.scope.Contains(m.update.Key) {
			w.buf = append(w.buf, m)
			n--
		}
	}
	w.covered = w.next - 1
}

// Next hands out what is there; it waits only when there is neither an update nor a new frontier.
func (w *watch) Next(ctx context.Context, into kv.Delivery, limit, maxBytes int) (kv.Delivery, error) {
	e, err := w.log.enter(ctx, PointNext, "watch")
	if err != nil {
		return into, w.end(err)
	}
	limit = max(limit, 1)
	if e.limit > 0 {
		limit = min(limit, e.limit)
	}
	for {
		d, wait, err := w.take(into, limit, maxBytes)
		if err != nil {
			return into, w.end(err)
		}
		if wait == nil {
			return w.hand(ctx, len(into.Updates), d)
		}
		if err := wait.until(ctx); err != nil {
			return into, w.end(fmt.Errorf("watch: %w", err))
		}
	}
}

// pause is what a Next with nothing to tell waits for.
type pause struct {
	changed <-chan struct{}
	expiry  time.Duration // 0 is none
}

func (p *pause) until(ctx context.Context) error {
	var due <-chan time.Time
	if p.expiry > 0 {
		t := time.NewTimer(p.expiry)
		defer t.Stop()
		due = t.C
	}
	select {
	case <-p.changed:
	case <-due:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func (w *watch) take(d kv.Delivery, limit, maxBytes int) (kv.Delivery, *pause, error) {
	l := w.log
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire()
	w.fetch(limit - len(w.buf))
	if w.lost != nil {
		return d, nil, w.lost
	}
	n, size := 0, 0
	for ; n < min(limit, len(w.buf)); n++ {
		u := &w.buf[n].update
		if size += u.Size(); n > 0 && size > maxBytes {
			break
		}
		d.Updates = append(d.Updates, *u)
	}
	frontier := w.covered
	if n < len(w.buf) {
		frontier = w.buf[n-1].rev
	}
	w.buf = slices.Delete(w.buf, 0, n)
	if news := frontier != w.told || !w.began && w.overrun == nil; n == 0 && (frontier == 0 || !news) {
		if w.overrun != nil {
			return d, nil, w.overrun
		}
		return d, w.pause(), nil
	}
	w.began, w.told = true, frontier
	d.Frontier = frontier
	d.Pending = uint64(len(w.buf)+len(w.list)) + l.last() + 1 - min(w.next, l.last()+1)
	return d, nil, nil
}

func (w *watch) pause() *pause {
	p := &pause{changed: w.log.changed}
	if at := w.log.soonest; at != math.MaxInt64 && w.log.opts.Now == nil {
		p.expiry = max(time.Until(time.Unix(0, at)), 1)
	}
	return p
}

// hand lets the delivery faults bend what is handed out; updates from had on are this call's.
func (w *watch) hand(ctx context.Context, had int, d kv.Delivery) (kv.Delivery, error) {
	if len(d.Updates) == had {
		return d, nil
	}
	e, err := w.log.enter(ctx, PointDelivery, "watch")
	if err != nil {
		return d, w.end(err)
	}
	fresh := d.Updates[had:]
	prev := w.prev
	w.prev = fresh[len(fresh)-1]
	switch e.shape {
	case ShapeDuplicate:
		if prev.Key == "" {
			prev = fresh[0]
		}
		d.Updates = slices.Insert(d.Updates, had, prev)
	case ShapeUnknownVersion:
		last := &fresh[len(fresh)-1]
		d.Frontier = last.Version.Rank() - 1
		last.Version = kv.Version{}
	case ShapeGap:
		d.Updates = slices.Delete(d.Updates, had, had+1)
	}
	return d, nil
}

// Close ends the watch; a blocked Next returns with an error.
func (w *watch) Close(context.Context) error {
	w.end(fmt.Errorf("bucket %q: watch closed: %w", w.log.opts.Bucket, kv.ErrWatchLost))
	return nil
}

// end makes err the watch's last word, unless it already has one, and returns that.
func (w *watch) end(err error) error {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	return w.endLocked(err)
}

func (w *watch) endLocked(err error) error {
	if w.lost == nil {
		w.lost = err
		w.buf, w.list = nil, nil
		w.log.watches = slices.DeleteFunc(w.log.watches, func(o *watch) bool { return o == w })
		w.log.wake()
	}
	return w.lost
}
