package natstest_test

import (
	"os"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/typedfold/fold/internal/natstest"
)

func TestRestartKeepsPortAndData(t *testing.T) {
	s := natstest.New(t)
	put(t, s, "a")
	url := s.URL()
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if s.URL() != url {
		t.Fatalf("url after restart: %s, want %s", s.URL(), url)
	}
	if got := put(t, s, "b"); got != 2 {
		t.Fatalf("revision after restart: %d, want 2", got)
	}
}

func TestCredentialsAreChecked(t *testing.T) {
	s := natstest.New(t, natstest.Options{Token: "t0ken"})
	if nc, err := nats.Connect(s.URL()); err == nil {
		nc.Close()
		t.Fatal("connected without the token")
	}
	put(t, s, "a")
}

func TestShutdownRemovesItsOwnFolder(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s, err := natstest.Start(natstest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Shutdown(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 0 {
		t.Fatalf("%d entries left behind", len(left))
	}
}

func put(t *testing.T, s *natstest.Server, key string) uint64 {
	t.Helper()
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := js.KeyValue("b")
	if err != nil {
		if bucket, err = js.CreateKeyValue(&nats.KeyValueConfig{Bucket: "b"}); err != nil {
			t.Fatal(err)
		}
	}
	rev, err := bucket.Put(key, nil)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}
