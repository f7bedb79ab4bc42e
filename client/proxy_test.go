package client_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
)

// cut is what a proxy does with a message of the client.
type cut int

const (
	pass      cut = iota
	dropIt        // the server never gets it, and the connection is lost
	cutBehind     // the server gets it and answers, the client gets no answer, and the connection is lost
)

// proxy forwards HTTP/2 between a client and a server, and cuts connections at places that do not depend on time: it counts
// the messages of sessions, and the requests.
type proxy struct {
	l  net.Listener
	to string
	// plan decides on the nth batch of all sessions, from 1 on; unary decides on the nth request when it is set instead.
	plan, unary func(n int) cut

	mu       sync.Mutex
	requests int
	batches  int
	gate     chan struct{} // new connections wait for it, when it is set
	hold     bool          // a cut sets the gate
	cut      chan struct{} // closed at the first cut
	lines    []*line
	ended    bool
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, to: to, plan: func(int) cut { return pass }, cut: make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.release()
		p.mu.Lock()
		p.ended = true
		lines := p.lines
		p.mu.Unlock()
		for _, l := range lines {
			l.close()
		}
		wg.Wait()
	})
	return p
}

func (p *proxy) at() string { return p.l.Addr().String() }

// release lets new connections through that wait since a cut.
func (p *proxy) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = false
	if p.gate != nil {
		close(p.gate)
		p.gate = nil
	}
}

func (p *proxy) count() (requests, batches int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests, p.batches
}

func (p *proxy) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	p.mu.Lock()
	gate := p.gate
	p.mu.Unlock()
	if gate != nil {
		<-gate
	}
	s, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	l := &line{p: p, client: c, server: s, streams: map[uint32]*flow{}}
	p.mu.Lock()
	p.lines = append(p.lines, l)
	ended := p.ended
	p.mu.Unlock()
	if ended {
		l.close()
	}
	var wg sync.WaitGroup
	wg.Go(l.up)
	wg.Go(l.down)
	wg.Wait()
}

// line is one connection.
type line struct {
	p              *proxy
	client, server net.Conn

	mu      sync.Mutex
	streams map[uint32]*flow
	cutting uint32 // the stream whose answer is awaited before the cut; 0 is none
}

// flow counts the messages of one stream.
type flow struct{ sent, answered messages }

// messages counts enveloped messages: a byte of flags, a length of four bytes, and so many bytes.
type messages struct {
	n    int
	head []byte
	left int
}

func (m *messages) feed(b []byte) (whole int) {
	for len(b) > 0 {
		if m.left == 0 {
			k := min(5-len(m.head), len(b))
			m.head, b = append(m.head, b[:k]...), b[k:]
			if len(m.head) < 5 {
				break
			}
			m.left = int(binary.BigEndian.Uint32(m.head[1:]))
		}
		k := min(m.left, len(b))
		m.left, b = m.left-k, b[k:]
		if m.left == 0 {
			m.head = m.head[:0]
			whole++
		}
	}
	m.n += whole
	return whole
}

func (l *line) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// cutOff closes the line by plan.
func (l *line) cutOff() {
	l.p.mu.Lock()
	if l.p.hold && l.p.gate == nil {
		l.p.gate = make(chan struct{})
	}
	select {
	case <-l.p.cut:
	default:
		close(l.p.cut)
	}
	l.p.mu.Unlock()
	l.close()
}

// cutDone waits for the first cut.
func (p *proxy) cutDone(ctx context.Context, t *testing.T) {
	t.Helper()
	select {
	case <-p.cut:
	case <-ctx.Done():
		t.Fatal("nothing was cut")
	}
}

type frame struct {
	kind, flags byte
	stream      uint32
	raw         []byte
}

const (
	frameData    = 0
	frameHeaders = 1
	endStream    = 1
)

func readFrame(r io.Reader) (frame, error) {
	raw := make([]byte, 9, 9+1<<14)
	if _, err := io.ReadFull(r, raw); err != nil {
		return frame{}, err
	}
	n := int(raw[0])<<16 | int(raw[1])<<8 | int(raw[2])
	f := frame{kind: raw[3], flags: raw[4], stream: binary.BigEndian.Uint32(raw[5:9]) &^ (1 << 31)}
	f.raw = append(raw, make([]byte, n)...)
	_, err := io.ReadFull(r, f.raw[9:])
	return f, err
}

func (l *line) of(stream uint32) *flow {
	if l.streams[stream] == nil {
		l.streams[stream] = &flow{}
	}
	return l.streams[stream]
}

// up carries what the client sends.
func (l *line) up() {
	preface := make([]byte, 24)
	if _, err := io.ReadFull(l.client, preface); err != nil {
		l.close()
		return
	}
	if _, err := l.server.Write(preface); err != nil {
		l.close()
		return
	}
	for {
		f, err := readFrame(l.client)
		if err != nil {
			l.close()
			return
		}
		what := l.judge(f)
		if what == dropIt {
			l.cutOff()
			return
		}
		if _, err := l.server.Write(f.raw); err != nil {
			l.close()
			return
		}
		if what == cutBehind {
			return // down closes it, when the answer is there
		}
	}
}

func (l *line) judge(f frame) (what cut) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.kind == frameHeaders {
		l.p.requests++
	}
	switch {
	case l.p.unary != nil:
		if f.flags&endStream != 0 && f.kind <= frameHeaders {
			what = l.p.unary(l.p.requests)
		}
	case f.kind == frameData:
		s := l.of(f.stream)
		first := s.sent.n == 0
		for range s.sent.feed(f.raw[9:]) {
			if first { // it opens the session
				first = false
				continue
			}
			l.p.batches++
			what = max(what, l.p.plan(l.p.batches))
		}
	}
	if what == cutBehind {
		l.cutting = f.stream
	}
	return what
}

// down carries what the server answers.
func (l *line) down() {
	defer l.close()
	for {
		f, err := readFrame(l.server)
		if err != nil {
			return
		}
		if l.swallow(f) {
			continue
		}
		if l.over(f) {
			l.cutOff()
			return
		}
		if _, err := l.client.Write(f.raw); err != nil {
			return
		}
	}
}

// swallow counts answers, and reports whether the client does not get this frame.
func (l *line) swallow(f frame) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.kind == frameData && l.p.unary == nil {
		l.of(f.stream).answered.feed(f.raw[9:])
	}
	return l.cutting != 0 && !l.answered(f)
}

func (l *line) over(f frame) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cutting != 0 && l.answered(f)
}

// answered reports whether the message that is cut behind has its answer with this frame.
func (l *line) answered(f frame) bool {
	if f.stream != l.cutting {
		return false
	}
	if l.p.unary != nil {
		return f.kind == frameHeaders
	}
	s := l.of(f.stream)
	return s.answered.n >= s.sent.n || f.kind <= frameHeaders && f.flags&endStream != 0
}
