package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/typedfold/fold/internal/natstest"
)

// TestServeKeepsRecords: what was acknowledged is there after an orderly end, the fence too, and the folder is given back.
func TestServeKeepsRecords(t *testing.T) {
	w := serve(t)
	w.ok(t, "", "create", addr)
	w.ok(t, "a\nb\n", "append", addr)
	w.ok(t, "", "fence", addr, "gen-1")
	other := start(t, nil, nil, "serve", "--listen", "127.0.0.1:0", "--data", w.dir)
	if code := other.wait(t); code != exitFailed {
		t.Errorf("a second server on the folder: code %d: %s%s", code, &other.out, &other.err)
	}
	holds(t, other.err.String(), "another nova serve")
	if code := w.served.end(t); code != exitOK || w.served.err.String() != "" {
		t.Fatalf("an orderly end: code %d: %s", code, &w.served.err)
	}
	w.begin(t, "--sync", "always")
	if got := w.ok(t, "", "read", addr); got != "a\nb\n" {
		t.Errorf("after a restart: %q", got)
	}
	if got := w.ok(t, "", "token", addr); got != "gen-1\n" {
		t.Errorf("after a restart the token is %q", got)
	}
	w.ok(t, "c\n", "append", addr, "--match-seq-num", "2", "--fencing-token", "gen-1")
	holds(t, w.served.out.String(), "durability: one copy, synced to the disk before each acknowledgement")
}

// TestServeEndsUnderLoad: calls under way are answered, and a follower does not hold the end up.
func TestServeEndsUnderLoad(t *testing.T) {
	w := serve(t)
	w.ok(t, "", "create", addr)
	w.ok(t, "a\n", "append", addr)
	follow := start(t, w.env, nil, "tail", addr, "-f")
	follow.printed(t, `^a\n$`)
	if code := w.served.end(t); code != exitOK {
		t.Errorf("code %d: %s", code, &w.served.err)
	}
	if code := follow.end(t); code != exitOK {
		t.Errorf("the follower: code %d: %s", code, &follow.err)
	}
}

func TestServeSaysItsDurability(t *testing.T) {
	s := natstest.New(t)
	for _, c := range []struct {
		args []string
		want durability
	}{
		{[]string{"--data", t.TempDir()}, durability{Log: "embedded", Copies: "1", Sync: "2m0s", PowerLoss: "unsynced"}},
		{[]string{"--data", t.TempDir(), "--sync", "1s"}, durability{Log: "embedded", Copies: "1", Sync: "1s", PowerLoss: "unsynced"}},
		{[]string{"--data", t.TempDir(), "--sync", "always"}, durability{Log: "embedded", Copies: "1", Sync: "always", PowerLoss: "nothing"}},
		{[]string{"--nats", s.URL()}, durability{Log: "cluster", Copies: "as each stream was made", Sync: "unproven", PowerLoss: "unsynced"}},
	} {
		r := start(t, nil, nil, append([]string{"serve", "--listen", "127.0.0.1:0", "--json", "--log-format", "json"}, c.args...)...)
		r.printed(t, `\n`)
		var said struct {
			URL        string
			Durability durability
		}
		if err := json.Unmarshal([]byte(r.out.String()), &said); err != nil {
			t.Fatal(err)
		}
		if said.Durability.Text == "" {
			t.Errorf("%v: no text", c.args)
		}
		if said.Durability.Text = ""; said.Durability != c.want {
			t.Errorf("%v: %+v, not %+v", c.args, said.Durability, c.want)
		}
		if code := r.end(t); code != exitOK {
			t.Errorf("%v: code %d: %s", c.args, code, &r.err)
		}
		var logged struct {
			Sync      string `json:"sync"`
			PowerLoss string `json:"power_loss"`
		}
		if err := json.NewDecoder(strings.NewReader(r.err.String())).Decode(&logged); err != nil || logged.Sync != c.want.Sync || logged.PowerLoss != c.want.PowerLoss {
			t.Errorf("%v logs %v, %s", c.args, err, &r.err)
		}
	}
}

// TestServeOnACluster: two nodes on one log, and a stream that is handed over when one ends.
func TestServeOnACluster(t *testing.T) {
	s := natstest.New(t, natstest.Options{User: "nova", Password: "geheim"})
	url := "nats://nova:geheim@" + s.Addr()
	if r := start(t, nil, nil, "serve", "--listen", "127.0.0.1:0", "--nats", s.URL()); r.wait(t) != exitUnreachable {
		t.Errorf("without a password: code %d: %s", r.code, &r.err)
	}
	node := func() (*running, map[string]string) {
		r := start(t, map[string]string{"NOVA_NATS": url}, nil, "serve", "--listen", "127.0.0.1:0")
		return r, map[string]string{"NOVA_SERVER": r.printed(t, `nova serves on (\S+)\n`)[1]}
	}
	a, envA := node()
	b, envB := node()
	wa, wb := &world{env: envA}, &world{env: envB}
	wa.ok(t, "", "create", addr)
	wa.ok(t, "0\n", "append", addr)
	wb.ok(t, "1\n", "append", addr, "--match-seq-num", "1")
	wb.ok(t, "", "fence", addr, "x")
	if code := a.end(t); code != exitOK {
		t.Errorf("code %d: %s", code, &a.err)
	}
	wb.ok(t, "2\n", "append", addr, "--match-seq-num", "2", "--fencing-token", "x")
	if got := wb.ok(t, "", "read", addr); got != "0\n1\n2\n" {
		t.Errorf("%q", got)
	}
	if b.end(t); strings.Contains(a.err.String()+b.err.String()+a.out.String()+b.out.String(), "geheim") {
		t.Error("the password is shown")
	}
}

// TestServeWithAuth: each verb of a token, over TLS.
func TestServeWithAuth(t *testing.T) {
	dir := t.TempDir()
	auth := filepath.Join(dir, "auth.json")
	text := `{"grants":[{"name":"all","token":"t-all","namespaces":{"*":["read","append","fence","admin"]}},{"name":"reader","token":"t-read","namespaces":{"demo":["read"]}}]}`
	if err := os.WriteFile(auth, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cert, key := certificate(t, dir)
	w := serve(t, "--auth", auth, "--tls-cert", cert, "--tls-key", key)
	if !strings.HasPrefix(w.env["NOVA_SERVER"], "https://") {
		t.Fatalf("it serves on %s", w.env["NOVA_SERVER"])
	}
	all := &world{env: copyOf(w.env, "NOVA_TOKEN", "t-all")}
	reader := &world{env: copyOf(w.env, "NOVA_TOKEN", "t-read")}
	w.fails(t, exitUnreachable, "", "ls") // the authority is not known
	if f := w.fails(t, exitUnreachable, "", "ls", "--ca", cert); !strings.Contains(f.Hint, "NOVA_TOKEN") {
		t.Errorf("no token: %+v", f)
	}
	all.ok(t, "", "create", addr, "--ca", cert)
	all.ok(t, "x\n", "append", addr, "--ca", cert)
	if got := reader.ok(t, "", "read", addr, "--ca", cert); got != "x\n" {
		t.Errorf("%q", got)
	}
	for _, args := range [][]string{{"append", addr}, {"append", addr, "--match-seq-num", "1"}, {"fence", addr, "a"}, {"trim", addr, "1"}, {"rm", addr}, {"create", addr + "2"}} {
		if f := reader.fails(t, exitUnreachable, "y\n", append(args, "--ca", cert)...); !strings.Contains(f.Hint, "--auth") {
			t.Errorf("%q: %+v", args, f)
		}
	}
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte("t-all\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.ok(t, "", "fence", addr, "a", "--ca", cert, "--token-file", file)
}

// certificate makes one for the loopback, signed by itself.
func certificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "nova"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	kder, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: kder}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// TestServeAnswersHealth: on the port that it serves on; and nobody reaches its nats-server, unless it was told to listen.
func TestServeAnswersHealth(t *testing.T) {
	w := serve(t, "--nats-listen", "127.0.0.1:0")
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, w.env["NOVA_SERVER"]+"/grpc.health.v1.Health/Check", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		t.Errorf("health answers %s", a.Status)
	}
	nc, err := nats.Connect(w.served.printed(t, `its nats-server: (\S+)\n`)[1])
	if err != nil {
		t.Fatal(err)
	}
	if nc.MaxPayload() != maxPayload {
		t.Errorf("the largest message is %d", nc.MaxPayload())
	}
	nc.Close()
	if quiet := serve(t); strings.Contains(quiet.served.out.String(), "nats-server") {
		t.Errorf("it listens: %s", &quiet.served.out)
	}
}
