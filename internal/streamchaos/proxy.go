package streamchaos

import (
	"bytes"
	"net"
	"sync"
	"time"
)

// proxy carries TCP connections to one address, which may change, and can break them, hold them back and refuse new ones. It
// is safe for concurrent use.
type proxy struct {
	l net.Listener
	// change, if there is one, rewrites what clients send; it keeps the length.
	change []swap

	mu      sync.Mutex
	to      string
	lines   map[*line]bool
	refuses int
	held    [2]int        // how many hold each direction back
	moved   chan struct{} // closed when that changes
	closed  bool
	wg      sync.WaitGroup
}

// swap replaces bytes by as many others.
type swap struct{ from, to []byte }

// direction of bytes in a proxy.
type direction int

const (
	up   direction = iota // from the client
	down                  // to it
)

// line is one connection.
type line struct{ client, server net.Conn }

func (l *line) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

func newProxy(change ...swap) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{l: l, change: change, lines: map[*line]bool{}, moved: make(chan struct{})}
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.serve(c) })
		}
	})
	return p, nil
}

func (p *proxy) addr() string { return p.l.Addr().String() }

// point sets where new connections lead.
func (p *proxy) point(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
}

// cut breaks every connection. What is held back in it is lost.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.lines {
		l.close()
	}
	p.move()
}

// refuse refuses new connections from now on; admit ends one refusal.
func (p *proxy) refuse() { p.count(&p.refuses, 1) }
func (p *proxy) admit()  { p.count(&p.refuses, -1) }

// hold holds back the bytes of a direction; release ends that once.
func (p *proxy) hold(d direction)    { p.count(&p.held[d], 1) }
func (p *proxy) release(d direction) { p.count(&p.held[d], -1) }

func (p *proxy) count(n *int, by int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*n += by
	p.move()
}

// move wakes who waits. It is called under mu.
func (p *proxy) move() {
	close(p.moved)
	p.moved = make(chan struct{})
}

func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.l.Close()
	p.cut()
	p.wg.Wait()
}

// passes waits while a direction is held back; false when the line is broken.
func (p *proxy) passes(l *line, d direction) bool {
	for {
		p.mu.Lock()
		held, there, moved := p.held[d] > 0, p.lines[l], p.moved
		closed := p.closed
		p.mu.Unlock()
		if !there || closed {
			return false
		}
		if !held {
			return true
		}
		<-moved
	}
}

func (p *proxy) serve(c net.Conn) {
	p.mu.Lock()
	to, refuses := p.to, p.refuses > 0 || p.closed
	p.mu.Unlock()
	if refuses || to == "" {
		_ = c.Close()
		return
	}
	s, err := net.DialTimeout("tcp", to, 5*time.Second)
	if err != nil {
		_ = c.Close()
		return
	}
	l := &line{client: c, server: s}
	p.mu.Lock()
	if p.closed || p.refuses > 0 {
		p.mu.Unlock()
		l.close()
		return
	}
	p.lines[l] = true
	p.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { p.carry(l, up, c, s) })
	wg.Go(func() { p.carry(l, down, s, c) })
	wg.Wait()
	l.close()
	p.mu.Lock()
	delete(p.lines, l)
	p.mu.Unlock()
}

// carry forwards one direction until it ends, and ends it for the other side. What a process sent before it was killed still
// arrives: while one side takes nothing any more, the other's bytes go on.
func (p *proxy) carry(l *line, d direction, from, to net.Conn) {
	defer endWrites(to)
	buf := make([]byte, 64<<10)
	kept := 0 // bytes that may begin something that is swapped
	dead := false
	for {
		n, err := from.Read(buf[kept:])
		n += kept
		kept = 0
		if d == up && err == nil {
			kept = p.swap(buf[:n])
		}
		n -= kept
		if n > 0 && !dead {
			if !p.passes(l, d) {
				return
			}
			_, failed := to.Write(buf[:n])
			dead = failed != nil
		}
		if err != nil {
			return
		}
		copy(buf, buf[n:n+kept])
	}
}

// endWrites tells the reader of a connection that no more comes.
func endWrites(c net.Conn) {
	if half, ok := c.(*net.TCPConn); ok {
		_ = half.CloseWrite() // it may be closed
	}
}

// swap rewrites b, and says how many bytes at its end must wait for what follows.
func (p *proxy) swap(b []byte) (kept int) {
	for _, c := range p.change {
		for at := 0; ; {
			i := bytes.Index(b[at:], c.from)
			if i < 0 {
				break
			}
			at += i + copy(b[at+i:], c.to)
		}
		for n := min(len(b), len(c.from)-1); n > kept; n-- {
			if bytes.HasSuffix(b, c.from[:n]) {
				kept = n
			}
		}
	}
	return kept
}
