// Package s3test runs an S3 server that enforces conditional writes, versitygw, as a process beside the tests. The Go
// toolchain builds it, at the version that tools/go.mod pins; later runs find it built.
package s3test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// Region is the one that the server is in.
const Region = "us-east-1"

const (
	// buildTimeout bounds a build from nothing: 200 seconds of one core.
	buildTimeout = 12 * time.Minute
	startTimeout = 30 * time.Second
	// starts is how many ports are tried: another process may take a free one first.
	starts = 5
)

// Server is one server with its buckets in a folder of their own. Methods are safe for concurrent use.
type Server struct {
	// Endpoint is the server's URL, without credentials.
	Endpoint string
	// Key and Secret are the root's credentials.
	Key, Secret string

	cmd     *exec.Cmd
	done    chan struct{} // closed when the process is collected
	client  *s3.Client
	buckets atomic.Int64
}

// New starts a server and kills it at the test's end. For the rest of the test the environment is Env, with no
// configuration of the user's.
func New(t *testing.T) *Server {
	t.Helper()
	s, err := Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	for name, value := range s.Env(filepath.Join(t.TempDir(), "none")) {
		t.Setenv(name, value)
	}
	return s
}

// Start starts a server whose buckets are in dir, for a program that is no test. The caller stops it.
func Start(ctx context.Context, dir string) (*Server, error) {
	binary, err := Build(ctx)
	if err != nil {
		return nil, err
	}
	for range starts {
		var s *Server
		if s, err = start(ctx, binary, dir); !errors.Is(err, errExited) {
			return s, err
		}
	}
	return nil, fmt.Errorf("%w %d times: %w", errExited, starts, err)
}

// Env is the environment of a client that reads the server's credentials there, and nothing else of the user's. No file
// is called none.
func (s *Server) Env(none string) map[string]string {
	return map[string]string{
		"AWS_ACCESS_KEY_ID": s.Key, "AWS_SECRET_ACCESS_KEY": s.Secret, "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "",
		"AWS_CONFIG_FILE": none, "AWS_SHARED_CREDENTIALS_FILE": none, "AWS_EC2_METADATA_DISABLED": "true", "AWS_CA_BUNDLE": "",
	}
}

// Build makes the server's program, or finds it made, and returns its path. Processes that do so at once wait for each
// other.
func Build(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("s3test: go env: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(out)))
	binary := filepath.Join(root, ".tmp", "versitygw")
	if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
		return "", fmt.Errorf("s3test: %w", err)
	}
	unlock, err := lock(ctx, binary+".lock")
	if err != nil {
		return "", fmt.Errorf("s3test: wait for another build: %w", err)
	}
	defer unlock()
	cmd := exec.CommandContext(ctx, "go", "build", "-modfile=tools/go.mod", "-trimpath", "-ldflags=-s -w", "-o", binary, "github.com/versity/versitygw/cmd/versitygw")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("s3test: build the server in %v: %w\n%s", buildTimeout, err, out)
	}
	return binary, nil
}

var errExited = errors.New("s3test: the server exited")

func start(ctx context.Context, binary, dir string) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, fmt.Errorf("s3test: free port: %w", err)
	}
	s := &Server{Endpoint: "http://" + port, Key: rand.Text(), Secret: rand.Text(), done: make(chan struct{})}
	var out bytes.Buffer
	s.cmd = exec.Command(binary, "--port", port, "--region", Region, "--quiet", "--keep-alive", "posix", dir)
	s.cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+s.Key, "ROOT_SECRET_KEY="+s.Secret)
	s.cmd.Stdout, s.cmd.Stderr = &out, &out
	s.cmd.SysProcAttr = dieWithParent()
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("s3test: %w", err)
	}
	go func() {
		defer close(s.done)
		_ = s.cmd.Wait() // its output says more
	}()
	s.client = s3.New(s3.Options{
		BaseEndpoint: &s.Endpoint, Region: Region, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(s.Key, s.Secret, ""),
	})
	if err := s.ready(ctx); err != nil {
		s.Stop()
		return nil, fmt.Errorf("%w\n%s", err, out.String())
	}
	return s, nil
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// ready waits until the server lists its buckets to who has its credentials, which no other server does.
func (s *Server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := s.client.ListBuckets(ctx, nil)
		if err == nil {
			return nil
		}
		select {
		case <-s.done:
			return errExited
		case <-ctx.Done():
			return fmt.Errorf("s3test: not ready after %v: %w", startTimeout, err)
		case <-tick.C:
		}
	}
}

// Stop kills the server.
func (s *Server) Stop() {
	_ = s.cmd.Process.Kill()
	<-s.done
}

// Client is one that the server trusts.
func (s *Server) Client() *s3.Client { return s.client }

// Bucket makes an empty bucket and returns its URL.
func (s *Server) Bucket(t *testing.T) string {
	t.Helper()
	place, err := s.NewBucket(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return place
}

// NewBucket makes an empty bucket and returns its URL.
func (s *Server) NewBucket(ctx context.Context) (string, error) {
	name := fmt.Sprintf("bucket-%d", s.buckets.Add(1))
	if _, err := s.client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String(name)}); err != nil {
		return "", fmt.Errorf("s3test: make bucket %s: %w", name, err)
	}
	q := url.Values{"region": {Region}, "use_path_style": {"true"}, "endpoint": {s.Endpoint}}
	return "s3://" + name + "?" + q.Encode(), nil
}
