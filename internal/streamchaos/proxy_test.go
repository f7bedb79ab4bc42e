package streamchaos

import (
	"bufio"
	"net"
	"strings"
	"testing"
	"time"
)

// far is a server that sends back each line, and clients that reach it through a proxy.
type far struct {
	t *testing.T
	p *proxy
	// got are the lines that the server has got.
	got chan string
}

func newFar(t *testing.T, change ...swap) *far {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	f := &far{t: t, got: make(chan string, 100)}
	if f.p, err = newProxy(change...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.p.close)
	f.p.point(l.Addr().String())
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				for r := bufio.NewReader(c); ; {
					text, err := r.ReadString('\n')
					if err != nil {
						return
					}
					f.got <- text
					_, _ = c.Write([]byte(text))
				}
			}()
		}
	}()
	return f
}

func (f *far) dial() (net.Conn, *bufio.Reader) {
	f.t.Helper()
	c, err := net.Dial("tcp", f.p.addr())
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		f.t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

func (f *far) send(c net.Conn, text string) {
	f.t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		f.t.Fatal(err)
	}
}

func (f *far) answers(r *bufio.Reader, want string) {
	f.t.Helper()
	if got, err := r.ReadString('\n'); err != nil || got != want {
		f.t.Fatalf("%q, %v, not %q", got, err, want)
	}
}

func (f *far) heard(want string) {
	f.t.Helper()
	select {
	case got := <-f.got:
		if got != want {
			f.t.Fatalf("the server got %q, not %q", got, want)
		}
	case <-time.After(time.Minute):
		f.t.Fatalf("the server did not get %q", want)
	}
}

func TestHeldBytesComeLater(t *testing.T) {
	f := newFar(t)
	c, r := f.dial()
	f.send(c, "a\n")
	f.heard("a\n")
	f.answers(r, "a\n")
	f.p.hold(up)
	f.p.hold(up)
	f.send(c, "b\n")
	f.p.release(up) // another one holds it still
	other, _ := f.dial()
	f.send(other, "c\n")
	select {
	case got := <-f.got:
		t.Fatalf("%q came through", got)
	default:
	}
	_ = c.Close() // what it has sent comes all the same
	_ = other.Close()
	f.p.release(up)
	got := []string{<-f.got, <-f.got}
	if all := strings.Join(got, ""); all != "b\nc\n" && all != "c\nb\n" {
		t.Errorf("%q came late", got)
	}
}

func TestHeldAnswersAreLostWithTheConnection(t *testing.T) {
	f := newFar(t)
	c, r := f.dial()
	f.p.hold(down)
	f.send(c, "a\n")
	f.heard("a\n")
	f.p.cut()
	if got, err := r.ReadString('\n'); err == nil {
		t.Errorf("%q came through", got)
	}
	f.p.release(down)
	f.p.refuse()
	_, refused := f.dial()
	if _, err := refused.ReadString('\n'); err == nil {
		t.Error("a connection was taken")
	}
	f.p.admit()
	c, r = f.dial()
	f.send(c, "b\n")
	f.answers(r, "b\n")
}

// TestSwap: texts are replaced wherever the pieces end in which they come.
func TestSwap(t *testing.T) {
	f := newFar(t, swap{[]byte("Nats-Last:"), []byte("Gone-Last:")}, swap{[]byte("Nats-Subject"), []byte("Gone-Subject")})
	c, r := f.dial()
	const text, want = "Nats-Last: 1, Nats-Lasting, Nats-Subject-Nats-Subject Na\n", "Gone-Last: 1, Nats-Lasting, Gone-Subject-Gone-Subject Na\n"
	f.send(c, text)
	f.answers(r, want)
	for _, part := range strings.SplitAfter(text, "") {
		f.send(c, part)
	}
	f.answers(r, want)
}
