package main

import (
	"cmp"
	"context"
	"errors"
	neturl "net/url"
	"os"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/artifact/objects/azure"
	"github.com/typedfold/fold/runtime/artifact/objects/dir"
	"github.com/typedfold/fold/runtime/artifact/objects/gcs"
	"github.com/typedfold/fold/runtime/artifact/objects/s3"
	"github.com/typedfold/fold/runtime/artifact/transport"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
	"github.com/typedfold/fold/runtime/store/pebblestore"
)

var openers = objects.Openers{"file": dir.OpenURL, "s3": s3.OpenURL, "gs": gcs.OpenURL, "azblob": azure.OpenURL}

func isURL(at string) bool { return strings.Contains(at, "://") }

// checkFolders refuses the URL of an object store where there must be a folder; its text may hold secrets.
func checkFolders(paths ...string) error {
	for _, path := range paths {
		if isURL(path) {
			return usageError("fold verify, fold artifacts and fold import take one, and fold export --publish", "%s is a URL, and this must be a folder", objects.RedactURL(path))
		}
	}
	return nil
}

// taken are the artifacts that the command takes: of any kind of store that it knows.
func taken() artifact.Options {
	return artifact.Options{Kinds: []store.Kind{pebblestore.Kind(), logstore.Kind()}}
}

func addKey(c *cobra.Command, key *string) {
	c.Flags().StringVar(key, "key", "", "the `name` of the fold's artifacts in the object store, with the folder before it")
}

// remote opens the artifacts under a key to read them; the store is the caller's to close.
func remote(ctx context.Context, url, key string, told *progress) (*transport.Transport, objects.Store, error) {
	if err := checkRemote(url, key); err != nil {
		return nil, nil, err
	}
	if u, err := neturl.Parse(url); err == nil && u.Scheme == "file" { // which opening would make
		if _, err := os.Stat(u.Path); err != nil {
			return nil, nil, err
		}
	}
	told.now("opening the object store")
	s, err := openers.Open(ctx, url, objects.Options{})
	if err != nil {
		return nil, nil, err
	}
	t, err := transportOf(s, key, told)
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	return t, s, nil
}

func checkRemote(url, key string) error {
	scheme, _, _ := strings.Cut(url, "://")
	switch {
	case !isURL(url) || openers[scheme] == nil:
		return usageError("such as s3://bucket/folder, gs://bucket, azblob://container or file:///folder", "%q is no URL of an object store", objects.RedactURL(url))
	case key == "":
		return usageError("name the artifacts of one fold with --key", "--key is missing")
	}
	if err := objects.CheckKey(key); err != nil || strings.HasSuffix(key, "/") {
		err = cmp.Or(err, objects.ErrBadKey)
		return usageError("take letters, digits, dots and dashes, with slashes between", "--key: %w", err)
	}
	return nil
}

func transportOf(s objects.Store, key string, told *progress) (*transport.Transport, error) {
	folder, name := path.Split(key)
	return transport.New(transport.Options{Store: s, Prefix: strings.TrimSuffix(folder, "/"), Key: name, Progress: func(p transport.Progress) { told.bytes.Store(p.Done) }})
}

// liveLog is the log of a bucket on a server.
type liveLog struct {
	transport.Live
	close func()
}

// live connects to the server, when it is asked for by a flag. The log is nil when it is not.
func (f *logFlags) live(ctx context.Context, env func(string) string, recorded string, told *progress) (*liveLog, error) {
	if !f.asked() {
		return nil, nil
	}
	return f.connect(ctx, env, recorded, told)
}

func (f *logFlags) connect(ctx context.Context, env func(string) string, recorded string, told *progress) (*liveLog, error) {
	name := cmp.Or(f.bucket, recorded)
	if name == "" {
		return nil, usageError("name it with --bucket", "nothing says which bucket it is")
	}
	told.now("connecting")
	conn, bucket, err := f.bind(ctx, env, name)
	if err != nil {
		_ = conn.Shutdown(context.WithoutCancel(ctx))
		return nil, err
	}
	return &liveLog{Live: bucket.Info, close: func() { _ = conn.Shutdown(context.WithoutCancel(ctx)) }}, nil
}

// logFlags say which bucket's log artifacts are compared with.
type logFlags struct {
	serverFlags
	bucket string
}

// asked reports whether the log is to be read.
func (f *logFlags) asked() bool { return f.bucket != "" || f.server != "" }

func (f *logFlags) add(c *cobra.Command, what string) {
	c.Flags().StringVar(&f.bucket, "bucket", "", what)
	f.serverFlags.add(c)
}

// fresh reports whether a fold can go on from the artifact without a gap, as the log is now.
func fresh(m *artifact.Manifest, log kv.LogInfo) bool {
	at := protocol.Position{Log: m.Log.CreatedUnixNano, Revision: m.Rank()}
	bounds := protocol.LogBounds{Log: transport.End(log).Log, First: log.First, Last: log.Last}
	return protocol.RestoreAllowed(at, protocol.Position{}, bounds)
}
