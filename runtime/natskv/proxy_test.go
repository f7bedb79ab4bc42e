package natskv_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// proxy stands between the adapter and JetStream under an API prefix of its own, and can answer in its stead.
type proxy struct {
	js  jetstream.JetStream
	sub *nats.Subscription

	mu      sync.Mutex
	answers []answer
	seen    []string
}

// delay has the next request whose subject has this part wait for f, and then go its way.
func (p *proxy) delay(subject string, f func()) {
	p.then(answer{subject: subject, before: f, pass: true})
}

// close ends the proxy, so that another one can take its place.
func (p *proxy) close(t *testing.T) {
	t.Helper()
	if err := p.sub.Unsubscribe(); err != nil {
		t.Error(err)
	}
}

// answer is what the next request whose subject has this part gets.
type answer struct {
	subject string
	reply   string // "" is silence
	forward bool   // the request is carried out all the same
	pass    bool   // and its own answer is given
	before  func() // called first
}

const proxyPrefix = "proxy.API."

func newProxy(t *testing.T, r *rig, answers ...answer) *proxy {
	t.Helper()
	p := &proxy{answers: answers}
	nc, err := r.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if p.sub, err = nc.Subscribe(proxyPrefix+">", func(m *nats.Msg) { p.serve(nc, m) }); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if p.js, err = jetstream.NewWithAPIPrefix(r.nc, strings.TrimSuffix(proxyPrefix, ".")); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *proxy) serve(nc *nats.Conn, m *nats.Msg) {
	a := p.next(m.Subject)
	if a != nil && a.before != nil {
		a.before()
	}
	if a != nil && a.pass {
		a = nil
	}
	reply := ""
	if a != nil {
		reply = a.reply
	}
	if a == nil || a.forward {
		subject := strings.TrimPrefix(m.Subject, proxyPrefix)
		if !strings.HasPrefix(subject, "$KV.") {
			subject = "$JS.API." + subject
		}
		if strings.Contains(subject, "CONSUMER.MSG.NEXT") { // answered by deliveries, not by one reply
			_ = nc.PublishMsg(&nats.Msg{Subject: subject, Reply: m.Reply, Header: m.Header, Data: m.Data})
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		got, err := nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: subject, Header: m.Header, Data: m.Data})
		if err == nil && a == nil {
			_ = m.Respond(got.Data)
			return
		}
	}
	if reply != "" {
		_ = m.Respond([]byte(reply))
	}
}

// then adds answers while requests come in.
func (p *proxy) then(answers ...answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers = append(p.answers, answers...)
}

func (p *proxy) next(subject string) *answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, strings.TrimPrefix(subject, proxyPrefix))
	for i, a := range p.answers {
		if strings.Contains(subject, a.subject) {
			p.answers = append(p.answers[:i:i], p.answers[i+1:]...)
			return &a
		}
	}
	return nil
}

// count is how many requests had this part in their subject.
func (p *proxy) count(subject string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, s := range p.seen {
		if strings.Contains(s, subject) {
			n++
		}
	}
	return n
}
