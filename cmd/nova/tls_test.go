package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
	"github.com/typedfold/fold/gen/go/nova/v1/novav1connect"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // its own certificate
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{file: filepath.Join(t.TempDir(), name+".pem")}
	c := template(name)
	c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature
	var der []byte
	der, a.key = signed(t, c, nil)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	write(t, a.file, &pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

func template(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
}

// signed is a certificate of an authority, or of its own.
func signed(t *testing.T, c *x509.Certificate, by *authority) ([]byte, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent, signer := c, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	return der, key
}

func write(t *testing.T, file string, b *pem.Block) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(b), 0o600); err != nil {
		t.Fatal(err)
	}
}

// issue is a certificate and its key, in files: for the loopback, or for a client.
func (a *authority) issue(t *testing.T, name string, server bool) (cert, key string) {
	t.Helper()
	c := template(name)
	c.ExtKeyUsage, c.KeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, x509.KeyUsageDigitalSignature
	if server {
		c.ExtKeyUsage, c.IPAddresses = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	der, k := signed(t, c, a)
	kder, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write(t, cert, &pem.Block{Type: "CERTIFICATE", Bytes: der})
	write(t, key, &pem.Block{Type: "PRIVATE KEY", Bytes: kder})
	return cert, key
}

// TestServeOverTLS: the command, gRPC, Connect and JSON over TLS; and whoever does not trust the server is told so.
func TestServeOverTLS(t *testing.T) {
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	cert, key := ours.issue(t, "nova", true)
	w := serve(t, "--tls-cert", cert, "--tls-key", key, "--metrics", "127.0.0.1:0")
	at := w.env["NOVA_SERVER"]
	if !strings.HasPrefix(at, "https://") {
		t.Fatalf("it serves on %s", at)
	}
	w.ok(t, "", "create", addr, "--ca", ours.file)
	w.ok(t, "a\n", "append", addr, "--ca", ours.file)
	w.ok(t, "b\n", "append", addr, "--ca", ours.file, "--match-seq-num", "1")
	if got := w.ok(t, "", "read", addr, "--ca", ours.file); got != "a\nb\n" {
		t.Errorf("%q", got)
	}
	pool, err := authorities(ours.file)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	h := &http.Client{Transport: transport}
	for name, o := range map[string][]connect.ClientOption{"Connect": nil, "gRPC": {connect.WithGRPC()}, "gRPC-Web": {connect.WithGRPCWeb()}} {
		c := novav1connect.NewDataPlaneServiceClient(h, at, o...)
		r, err := c.Tail(bounded(t), connect.NewRequest(&novav1.TailRequest{Addr: addr}))
		if err != nil || r.Msg.GetTail().GetSeqNum() != 2 {
			t.Errorf("%s: %v", name, err)
		}
		if name != "gRPC-Web" { // it has no session
			session(bounded(t), t, c)
		}
	}
	for _, url := range []string{at + "/v1/demo/events/tail", w.served.printed(t, `metrics: (https://\S+)\n`)[1]} {
		a, err := h.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(a.Body)
		_ = a.Body.Close()
		if err != nil || a.StatusCode != http.StatusOK || a.ProtoMajor != 2 {
			t.Errorf("%s: %s, %s, %s: %v", url, a.Proto, a.Status, b, err)
		}
	}
	// Whoever trusts another authority, or none of these.
	for _, args := range [][]string{{"ls"}, {"ls", "--ca", theirs.file}, {"append", addr, "--match-seq-num", "2", "--ca", theirs.file}, {"append", addr, "--ca", theirs.file}, {"fence", addr, "x"}} {
		f := w.fails(t, exitUnreachable, "x\n", args...)
		if !strings.Contains(f.Error, "unknown authority") || !strings.Contains(f.Hint, "--ca") || f.Outcome != outcomeNothing {
			t.Errorf("%q: %+v", args, f)
		}
	}
	// http where it is https, and the other way.
	plain := &world{env: map[string]string{"NOVA_SERVER": "http://" + strings.TrimPrefix(at, "https://")}}
	plain.fails(t, exitUnreachable, "", "ls")
	plain.fails(t, exitUsage, "", "ls", "--ca", ours.file)
	without := serve(t)
	without.env["NOVA_SERVER"] = "https://" + strings.TrimPrefix(without.env["NOVA_SERVER"], "http://")
	if f := without.fails(t, exitUnreachable, "", "ls"); !strings.Contains(f.Hint, "http://") {
		t.Errorf("%+v", f)
	}
}

// session appends over a session.
func session(ctx context.Context, t *testing.T, c novav1connect.DataPlaneServiceClient) {
	t.Helper()
	s := c.AppendSession(ctx)
	if err := s.Send(&novav1.AppendSessionRequest{Message: &novav1.AppendSessionRequest_Open_{Open: &novav1.AppendSessionRequest_Open{Addr: addr}}}); err != nil {
		t.Fatal(err)
	}
	if m, err := s.Receive(); err != nil || m.GetOpened() == nil {
		t.Fatalf("%v, %v", m, err)
	}
	if err := s.Send(&novav1.AppendSessionRequest{Message: &novav1.AppendSessionRequest_Batch{Batch: &novav1.Batch{MatchSeqNum: new(uint64(99)), Records: []*novav1.Record{{}}}}}); err != nil {
		t.Fatal(err)
	}
	if m, err := s.Receive(); err != nil || m.GetMiss() == nil {
		t.Fatalf("%v, %v", m, err)
	}
	if err := s.CloseRequest(); err != nil {
		t.Error(err)
	}
	if err := s.CloseResponse(); err != nil {
		t.Error(err)
	}
}

// TestServeAsksForCertificates: with --tls-client-ca a client needs one of that authority.
func TestServeAsksForCertificates(t *testing.T) {
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	cert, key := ours.issue(t, "nova", true)
	w := serve(t, "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ours.file)
	mine, mineKey := ours.issue(t, "me", false)
	other, otherKey := theirs.issue(t, "them", false)
	w.ok(t, "", "create", addr, "--ca", ours.file, "--cert", mine, "--key", mineKey)
	for _, args := range [][]string{{"ls", "--ca", ours.file}, {"ls", "--ca", ours.file, "--cert", other, "--key", otherKey}} {
		if f := w.fails(t, exitUnreachable, "", args...); f.Error == "" {
			t.Errorf("%q: %+v", args, f)
		}
	}
	w.fails(t, exitUsage, "", "ls", "--ca", ours.file, "--cert", mine)
	w.fails(t, exitUsage, "", "ls", "--ca", ours.file, "--cert", mine, "--key", otherKey)
	w.fails(t, exitUsage, "", "serve", "--listen", "127.0.0.1:0", "--tls-client-ca", ours.file)
}
