// Package cloudtest runs emulators of clouds as processes beside the tests of `make test-clouds`, which gets their
// programs first and names them in the environment.
package cloudtest

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"
)

// The account that every Azurite has; its key is public.
const (
	AzuriteAccount = "devstoreaccount1"
	AzuriteKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

const startTimeout = time.Minute

// FakeGCS runs fake-gcs-server, the program that FAKE_GCS_SERVER names, until the test's end, and returns its address.
func FakeGCS(t *testing.T) string {
	t.Helper()
	addr := freeAddr(t)
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	run(t, addr, program(t, "FAKE_GCS_SERVER"), "-backend", "memory", "-scheme", "http", "-host", host, "-port", port,
		"-external-url", "http://"+addr, "-public-host", addr, "-log-level", "error")
	return addr
}

// Azurite runs Azurite's blob service, the script that AZURITE_BLOB names, until the test's end, and returns its address.
func Azurite(t *testing.T) string {
	t.Helper()
	addr := freeAddr(t)
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	run(t, addr, "node", program(t, "AZURITE_BLOB"), "--silent", "--blobHost", host, "--blobPort", port, "--location", t.TempDir(),
		"--skipApiVersionCheck", "--disableTelemetry")
	return addr
}

func program(t *testing.T, name string) string {
	t.Helper()
	path := os.Getenv(name)
	if path == "" {
		t.Fatalf("%s names no program; run make test-clouds", name)
	}
	return path
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

// run starts a server, waits until it takes connections, and kills it at the test's end.
func run(t *testing.T, addr, name string, args ...string) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait() // its output says more
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
	})
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if c, err := net.Dial("tcp", addr); err == nil {
			_ = c.Close()
			return
		}
		select {
		case <-done:
			t.Fatalf("%s exited: %s", name, out.String())
		case <-ctx.Done():
			t.Fatalf("%s is not ready after %v", name, startTimeout)
		case <-tick.C:
		}
	}
}
