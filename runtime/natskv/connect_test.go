package natskv_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
)

func TestConnectionLife(t *testing.T) {
	s := natstest.New(t)
	c := natskv.NewConn(natskv.ConnectOptions{URL: s.URL()})
	if _, err := c.JetStream(); !errors.Is(err, natskv.ErrNotConnected) || c.Healthy() {
		t.Fatalf("before connect: %v, healthy %v", err, c.Healthy())
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := c.Connect(bounded(t)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := s.Server().NumClients(); n != 1 {
		t.Fatalf("concurrent connects made %d connections", n)
	}
	for round := range 2 {
		if err := c.Connect(bounded(t)); err != nil {
			t.Fatal(err)
		}
		if err := c.Ping(bounded(t)); err != nil || !c.Healthy() {
			t.Fatalf("round %d: %v, healthy %v", round, err, c.Healthy())
		}
		js, err := c.JetStream()
		if err != nil {
			t.Fatal(err)
		}
		b, err := natskv.Open(bounded(t), js, "b", natskv.BucketConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Put(bounded(t), "k", nil, kv.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := c.Shutdown(bounded(t)); err != nil {
				t.Fatal(err)
			}
		}
		if c.Healthy() || c.Ping(bounded(t)) == nil {
			t.Fatal("healthy after shutdown")
		}
	}
}

func TestHealthFollowsTheServer(t *testing.T) {
	s := natstest.New(t)
	down, up := make(chan error, 10), make(chan struct{}, 10)
	c, err := natskv.Connect(bounded(t), natskv.ConnectOptions{URL: s.URL(), Hooks: natskv.ConnectHooks{
		Disconnected: func(err error) { down <- err }, Reconnected: func() { up <- struct{}{} }}})
	if err != nil {
		t.Fatal(err)
	}
	s.Stop()
	await(t, down)
	if c.Healthy() {
		t.Error("healthy without a server")
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	await(t, up)
	if !c.Healthy() {
		t.Error("not healthy after the server came back")
	}
	can, err := c.Capabilities(bounded(t))
	if err != nil || !can.StreamingWatch || !can.CompareAndSet || !can.MessageTTL || !can.AtomicPublish || can.MaxMessageSize != 1<<20 || can.ServerVersion == "" {
		t.Errorf("capabilities %+v, %v", can, err)
	}
	if err := c.Shutdown(bounded(t)); err != nil {
		t.Fatal(err)
	}
}

func await[T any](t *testing.T, ch <-chan T) {
	t.Helper()
	select {
	case <-ch:
	case <-bounded(t).Done():
		t.Fatal("not in time")
	}
}

func TestBorrowedConnectionIsNotClosed(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{})
	c, err := natskv.FromConn(r.nc)
	if err != nil || !c.Healthy() {
		t.Fatal(err)
	}
	if err := c.Shutdown(bounded(t)); err != nil {
		t.Fatal(err)
	}
	if !r.nc.IsConnected() || c.Healthy() {
		t.Fatal("shutdown closed what it had borrowed, or did not let go")
	}
	if err := c.Connect(bounded(t)); err != nil || !c.Healthy() {
		t.Fatal(err)
	}
	r.nc.Close()
	if err := c.Shutdown(bounded(t)); err != nil {
		t.Fatal(err)
	}
	wantErr(t, c.Connect(bounded(t)), natskv.ErrNotConnected)
}

func TestUnreachableServers(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := natskv.Connect(bounded(t), natskv.ConnectOptions{URL: addr}); err == nil || !strings.Contains(err.Error(), addr) {
		t.Fatalf("refused: %v", err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never says a word
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	ctx, cancel := context.WithTimeout(bounded(t), 100*time.Millisecond)
	defer cancel()
	if _, err := natskv.Connect(ctx, natskv.ConnectOptions{URL: silent.Addr().String()}); err == nil {
		t.Fatal("connected to silence")
	}
}

func TestCredentialsInTheirOrder(t *testing.T) {
	s, creds := operatorServer(t)
	file := filepath.Join(t.TempDir(), "user.creds")
	if err := os.WriteFile(file, creds, 0o600); err != nil {
		t.Fatal(err)
	}
	good := base64.StdEncoding.EncodeToString(creds)
	wrong := strings.Replace(s.URL(), "nats://", "nats://user:wrong@", 1)
	for name, c := range map[string]struct {
		o    natskv.ConnectOptions
		fail bool
	}{
		"creds":                    {natskv.ConnectOptions{URL: s.URL(), Creds: good}, false},
		"creds in lines":           {natskv.ConnectOptions{URL: s.URL(), Creds: good[:60] + "\n" + good[60:] + "\n"}, false},
		"creds before file":        {natskv.ConnectOptions{URL: s.URL(), Creds: good, CredsFile: "/absent"}, false},
		"creds before URL":         {natskv.ConnectOptions{URL: wrong, Creds: good}, false},
		"file before URL":          {natskv.ConnectOptions{URL: wrong, CredsFile: file}, false},
		"absent file":              {natskv.ConnectOptions{URL: s.URL(), CredsFile: "/absent"}, true},
		"bad creds before file":    {natskv.ConnectOptions{URL: s.URL(), Creds: "AAAA", CredsFile: file}, true},
		"none where they are due":  {natskv.ConnectOptions{URL: s.URL()}, true},
		"wrong ones of the URL":    {natskv.ConnectOptions{URL: wrong}, true},
		"two different in the URL": {natskv.ConnectOptions{URL: wrong + ",nats://other:x@127.0.0.1:1", CredsFile: ""}, true},
	} {
		conn, err := natskv.Connect(bounded(t), c.o)
		if (err != nil) != c.fail {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			if err := conn.Shutdown(bounded(t)); err != nil {
				t.Error(err)
			}
		}
	}
	for name, o := range map[string]natstest.Options{"token": {Token: "s3cret"}, "user": {User: "u", Password: "s3cret"}} {
		s := natstest.New(t, o)
		userinfo := map[string]string{"token": "s3cret", "user": "u:s3cret"}[name]
		conn, err := natskv.Connect(bounded(t), natskv.ConnectOptions{URL: userinfo + "@" + s.Addr() + ", nats://" + userinfo + "@" + s.Addr()})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := conn.Shutdown(bounded(t)); err != nil {
			t.Error(err)
		}
	}
}

// operatorServer is a server that knows users by their JWT only, and one user's .creds.
func operatorServer(t *testing.T) (*natstest.Server, []byte) {
	t.Helper()
	must := func(kp nkeys.KeyPair, err error) (nkeys.KeyPair, string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		pub, err := kp.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		return kp, pub
	}
	operator, operatorPub := must(nkeys.CreateOperator())
	account, accountPub := must(nkeys.CreateAccount())
	user, userPub := must(nkeys.CreateUser())
	encode := func(c jwt.Claims, by nkeys.KeyPair) string {
		t.Helper()
		token, err := c.Encode(by)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	claims := jwt.NewOperatorClaims(operatorPub)
	encode(claims, operator)
	resolver := &server.MemAccResolver{}
	if err := resolver.Store(accountPub, encode(jwt.NewAccountClaims(accountPub), operator)); err != nil {
		t.Fatal(err)
	}
	s := natstest.New(t, natstest.Options{Tune: func(o *server.Options) {
		o.JetStream, o.StoreDir = false, ""
		o.TrustedOperators, o.AccountResolver = []*jwt.OperatorClaims{claims}, resolver
	}})
	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	creds, err := jwt.FormatUserConfig(encode(jwt.NewUserClaims(userPub), account), seed)
	if err != nil {
		t.Fatal(err)
	}
	return s, creds
}

func TestNothingPrintsASecret(t *testing.T) {
	_, creds := operatorServer(t)
	encoded := base64.StdEncoding.EncodeToString(creds)
	secrets := []string{"t0psecret", "p4ss", "half,of", "of@it", encoded, string(creds), "AAAAsecret"}
	var printed []string
	show := func(v any) {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
			printed = append(printed, fmt.Sprintf(verb, v))
		}
		if data, err := json.Marshal(v); err == nil {
			printed = append(printed, string(data))
		}
	}
	for _, o := range []natskv.ConnectOptions{
		{URL: "nats://t0psecret@127.0.0.1:1"},
		{URL: "t0psecret@127.0.0.1:1"},
		{URL: "nats://user:p4ss@127.0.0.1:1,nats://user:p4ss@127.0.0.1:2"},
		{URL: "nats://user:p4ss@127.0.0.1:1,nats://t0psecret@127.0.0.1:2"},
		{URL: "nats://user:p4ss%zz@[::1:x"},
		{URL: "nats://user:half,of@it@127.0.0.1:1"},
		{URL: "127.0.0.1:1", Creds: encoded},
		{URL: "127.0.0.1:1", Creds: "AAAAsecret"},
		{URL: "127.0.0.1:1", Creds: encoded[:len(encoded)-90]},
	} {
		show(o)
		show(&o)
		show(struct{ Inner natskv.ConnectOptions }{o})
		conn := natskv.NewConn(o)
		show(conn)
		show(reflect.ValueOf(conn).Elem().Interface()) // by value, past every method of the pointer
		err := conn.Connect(bounded(t))
		if err == nil {
			t.Fatalf("connected to nothing: %v", o)
		}
		for ; err != nil; err = errors.Unwrap(err) {
			show(err)
		}
	}
	for _, text := range printed {
		for _, secret := range secrets {
			if strings.Contains(text, secret) || strings.Contains(text, fmt.Sprintf("%x", secret)) {
				t.Errorf("printed: %s", text)
			}
		}
	}
}
