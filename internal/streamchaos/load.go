package streamchaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/typedfold/fold/client"
)

// profile is what one writer does. Shares are of 100.
type profile struct {
	stream  int
	session bool // it appends over producers, with several batches in flight; else by one-shots
	match   int  // how many of its batches have a match
	fence   int  // how many of its calls are fences; a writer that fences comes back when it is locked out
	clears  bool // its fences clear as often as they install
	ask     int  // how many of its calls are questions
	adopts  bool // a refusal's token is its own from then on
}

// streamKind is one stream of the run.
type streamKind struct {
	name     string
	replicas uint32
}

var streamKinds = []streamKind{{"plain", 3}, {"owned", 3}, {"single", 1}}

const namespace = "chaos"

func (k streamKind) addr() string { return "nova://" + namespace + "/" + k.name }

// jetStream is the name of the stream's log.
func (k streamKind) jetStream() string { return "NOVA=" + namespace + "=" + k.name }

var profiles = []profile{
	{stream: 0}, {stream: 0, match: 100}, {stream: 0, match: 100, ask: 10}, {stream: 0, session: true}, {stream: 0, session: true, match: 100},
	{stream: 0, session: true, match: 40},
	{stream: 1, session: true, match: 70, fence: 1}, {stream: 1, session: true, match: 20, fence: 1}, {stream: 1, match: 50, fence: 3},
	{stream: 1, ask: 20}, {stream: 1, fence: 3, clears: true, match: 20}, {stream: 1, adopts: true, session: true},
	{stream: 2, session: true, adopts: true, match: 30}, {stream: 2, adopts: true, match: 50, ask: 5}, {stream: 2, fence: 4, clears: true}, {stream: 2, session: true, fence: 1, match: 60},
}

// callLimit bounds one call.
const callLimit = 10 * time.Second

// load is clients that append and read, and note it. Its clients reach the nodes through the fronts.
type load struct {
	seed    uint64
	fronts  [size]string
	since   func() time.Duration
	writers []*writer

	mu       sync.Mutex
	sessions int
	calls    map[string]int
	// succeeded is when each stream last took an append, by the time of the call.
	succeeded map[int]time.Duration
}

func newLoad(w *world, seed uint64, since func() time.Duration) *load {
	l := &load{seed: seed, since: since, calls: map[string]int{}, succeeded: map[int]time.Duration{}}
	for i, p := range w.fronts {
		l.fronts[i] = "http://" + p.addr()
	}
	return l
}

// transport is as a client's own one.
func transport() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Transport{Protocols: protocols, HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second}}
}

// clients has one client for each node, whose calls share a connection to it.
func (l *load) clients() (all [size]*client.Client, err error) {
	for i, at := range l.fronts {
		if all[i], err = client.New(at, client.WithHTTPClient(&http.Client{Transport: transport()}), client.WithTimeout(callLimit)); err != nil {
			return all, err
		}
	}
	return all, nil
}

// tapped notes when sessions are opened.
type tapped struct {
	http  *http.Client
	s     *session
	since func() time.Duration
}

func (t tapped) Do(q *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(q.URL.Path, "/AppendSession") {
		return t.http.Do(q)
	}
	t.s.mu.Lock()
	i := len(t.s.opens)
	t.s.opens = append(t.s.opens, span{from: t.since()})
	t.s.mu.Unlock()
	r, err := t.http.Do(q)
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.s.opens[i].to = t.since()
	return r, err
}

// session is a client of its own for a producer at a node, and what is noted of it.
func (l *load) session(node int, token string) (*client.Client, *session, func(), error) {
	l.mu.Lock()
	l.sessions++
	s := &session{id: l.sessions, token: token}
	l.mu.Unlock()
	t := transport()
	c, err := client.New(l.fronts[node], client.WithHTTPClient(tapped{&http.Client{Transport: t}, s, l.since}), client.WithTimeout(callLimit))
	return c, s, t.CloseIdleConnections, err
}

// note counts a call that has ended.
func (l *load) note(stream int, o *op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[string(o.verb)+" "+string(o.verdict)]++
	if o.verb == verbAppend && o.verdict == told {
		l.succeeded[stream] = max(l.succeeded[stream], o.call)
	}
}

// progress is the calls by verdict.
func (l *load) progress() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string]int{}
	for what, n := range l.calls {
		_, verdict, _ := strings.Cut(what, " ")
		all[verdict] += n
	}
	return all
}

// waiting are the streams that have taken no append that was called after a time.
func (l *load) waiting(after time.Duration) (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, k := range streamKinds {
		if at, ok := l.succeeded[i]; !ok || at <= after {
			all = append(all, k.name)
		}
	}
	return all
}

// lives waits until every stream has taken an append that was called after now.
func (l *load) lives(ctx context.Context) error {
	now := l.since()
	for {
		waiting := l.waiting(now)
		if len(waiting) == 0 {
			return nil
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return fmt.Errorf("no append succeeded for %v on %s", l.since()-now, strings.Join(waiting, ", "))
		}
	}
}

// write has the writers work until stop is closed, and returns when their last calls have ended.
func (l *load) write(stop <-chan struct{}) error {
	shared, err := l.clients()
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	for i, p := range profiles {
		w := &writer{l: l, id: i, p: p, r: rand.New(rand.NewPCG(l.seed, 100+uint64(i))), shared: shared, stop: stop}
		l.writers = append(l.writers, w)
		wg.Go(w.run)
	}
	wg.Wait()
	return nil
}

// ops are all calls on a stream, each writer's in their order.
func (l *load) ops(stream int) (all []*op) {
	for _, w := range l.writers {
		if w.p.stream == stream {
			all = append(all, w.ops...)
		}
	}
	return all
}
