package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/artifact/objects/blobstore"
	"github.com/typedfold/fold/runtime/artifact/objects/dir"
	"github.com/typedfold/fold/runtime/artifact/objects/s3"
	"github.com/typedfold/fold/runtime/artifact/transport"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/pebblestore"
)

var openers = objects.Openers{"s3": s3.OpenURL, "file": dir.OpenURL}

// syncDisk has the disk take what earlier measurements wrote, so that it is not written during the next one.
func syncDisk() { syscall.Sync() }

// transfer moves one artifact in all ways.
type transfer struct {
	o       options
	m       artifact.Manifest
	live    transport.Live
	remote  objects.Store
	local   objects.Store
	client  *awss3.Client
	bucket  string
	payload []byte // the packed artifact
	memory  string // a folder that is not on a disk, where there is one
	times   map[string][]float64
	// round names the objects of a round.
	round string
}

// transferRole measures, in turn, an artifact's upload to o.place and that of as many bytes from memory; its download
// into memory, with all checks, and a plain GET of the payload; its download to the disk, and a plain GET into a file that
// is synced; its publication to a directory, and a plain copy of its files that are synced.
func transferRole(ctx context.Context, o options) (_ result, err error) {
	m := startMeter()
	x := &transfer{o: o, times: map[string][]float64{}}
	if err := x.open(ctx); err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, x.remote.Close(), x.local.Close()) }()
	if x.memory, err = os.MkdirTemp(memoryFS(x.m.Size()), "fold-bench-"); err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(x.memory)) }()
	for i := range o.rounds {
		x.round = fmt.Sprintf("round-%d", i)
		if err := x.run(ctx, i); err != nil {
			return result{}, err
		}
	}
	r := m.done(len(x.payload))
	r.Times = x.times
	return r, nil
}

func (x *transfer) open(ctx context.Context) (err error) {
	if x.m, err = readManifest(x.o.artifacts); err != nil {
		return err
	}
	x.live = liveOf(x.m)
	var packed bytes.Buffer
	packed.Grow(int(x.m.PackedSize()))
	if err := artifact.Pack(ctx, x.o.artifacts, x.m, &packed); err != nil {
		return err
	}
	x.payload = packed.Bytes()
	if x.local, err = dir.Open(filepath.Join(x.o.dir, "published"), dir.Options{}); err != nil {
		return err
	}
	if x.remote, err = openers.Open(ctx, x.o.place, objects.Options{}); err != nil {
		return err
	}
	if _, err := objects.ForPublishing(ctx, x.remote, "", false); err != nil {
		return err
	}
	return x.plainClient()
}

// memoryFS is a folder in memory with room for size bytes and what an import leaves free; "" when there is none.
func memoryFS(size int64) string {
	const shm = "/dev/shm"
	var fs syscall.Statfs_t
	if err := syscall.Statfs(shm, &fs); err != nil || int64(fs.Bavail)*int64(fs.Bsize) < size+(512<<20) {
		return ""
	}
	return shm
}

func readManifest(dir string) (artifact.Manifest, error) {
	raw, err := os.ReadFile(filepath.Join(dir, artifact.ManifestName))
	if err != nil {
		return artifact.Manifest{}, err
	}
	return artifact.Parse(raw)
}

// plainClient is one of the store's, without anything of this module.
func (x *transfer) plainClient() error {
	u, err := url.Parse(x.o.place)
	if err != nil {
		return err
	}
	x.bucket = u.Host
	x.client = awss3.New(awss3.Options{
		BaseEndpoint: aws.String(u.Query().Get("endpoint")), Region: u.Query().Get("region"), UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), ""),
		DisableLogOutputChecksumValidationSkipped: true,
	})
	return nil
}

// liveOf is the log at an artifact's cursor.
func liveOf(m artifact.Manifest) transport.Live {
	return func(context.Context) (kv.LogInfo, error) {
		return kv.LogInfo{Bucket: m.Bucket, Created: time.Unix(0, m.Log.CreatedUnixNano), First: 1, Last: m.Rank()}, nil
	}
}

func (x *transfer) run(ctx context.Context, i int) error {
	type measure struct {
		name string
		run  func(context.Context) error
	}
	for _, pair := range [][2]measure{
		{{"ceiling", x.ceiling}, {"upload", func(ctx context.Context) error { return x.publish(ctx, x.remote) }}},
		{{"get", func(ctx context.Context) error { return x.get(ctx, io.Discard) }}, {"download", func(ctx context.Context) error { return x.download(ctx, x.memory) }}},
		{{"get-synced", x.getSynced}, {"download-synced", func(ctx context.Context) error { return x.download(ctx, x.o.dir) }}},
		{{"copy", x.copy}, {"publish", func(ctx context.Context) error { return x.publish(ctx, x.local) }}},
	} {
		for n := range pair {
			p := pair[(n+i)%2]
			syncDisk()
			from := time.Now()
			err := p.run(ctx)
			x.times[p.name] = append(x.times[p.name], time.Since(from).Seconds())
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
	}
	return x.clean(ctx)
}

// ceiling uploads as many bytes from memory, by the SDK's own means, in parts like those of an artifact.
func (x *transfer) ceiling(ctx context.Context) error {
	tm := transfermanager.New(x.client, func(o *transfermanager.Options) {
		o.PartSizeBytes, o.Concurrency = blobstore.DefaultPartSize, blobstore.DefaultParallel
	})
	_, err := tm.UploadObject(ctx, &transfermanager.UploadObjectInput{Bucket: &x.bucket, Key: aws.String(x.round + "/plain"), Body: bytes.NewReader(x.payload)})
	return err
}

func (x *transfer) publish(ctx context.Context, s objects.Store) error {
	t, err := transport.New(transport.Options{Store: s, Key: x.round})
	if err != nil {
		return err
	}
	return publishArtifact(ctx, t, x.o.artifacts, x.m, x.live)
}

// publishArtifact fails where the artifact is not the newest one then.
func publishArtifact(ctx context.Context, t *transport.Transport, from string, m artifact.Manifest, live transport.Live) error {
	out, err := t.Publish(ctx, from, m, live)
	if err == nil && !out.Published {
		err = fmt.Errorf("superseded by %v", out.By)
	}
	return errors.Join(err, out.Unread)
}

// get reads what ceiling wrote.
func (x *transfer) get(ctx context.Context, to io.Writer) error {
	out, err := x.client.GetObject(ctx, &awss3.GetObjectInput{Bucket: &x.bucket, Key: aws.String(x.round + "/plain")})
	if err != nil {
		return err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{to}, out.Body, make([]byte, 1<<20))
	if err == nil && n != int64(len(x.payload)) {
		err = fmt.Errorf("%d of %d bytes", n, len(x.payload))
	}
	return errors.Join(err, out.Body.Close())
}

// getSynced keeps what get reads in one file.
func (x *transfer) getSynced(ctx context.Context) error {
	f, err := os.Create(x.in(x.o.dir, "got"))
	if err != nil {
		return err
	}
	err = x.get(ctx, f)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func (x *transfer) download(ctx context.Context, dir string) error {
	t, err := transport.New(transport.Options{Store: x.remote, Key: x.round})
	if err != nil {
		return err
	}
	return t.Download(ctx, x.m, x.in(dir, "downloaded"), artifact.Options{Kinds: []store.Kind{pebblestore.Kind()}})
}

// in is a name for the round's files in a folder.
func (x *transfer) in(dir, what string) string { return filepath.Join(dir, x.round+"-"+what) }

// copy copies the artifact's files and syncs each.
func (x *transfer) copy(context.Context) error {
	to := x.in(x.o.dir, "copied")
	return filepath.WalkDir(x.o.artifacts, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(x.o.artifacts, path)
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.Mkdir(filepath.Join(to, rel), 0o700)
		}
		return copyFile(path, filepath.Join(to, rel))
	})
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, in.Close(), out.Close())
}

// clean removes what the round wrote.
func (x *transfer) clean(ctx context.Context) error {
	for _, s := range []objects.Store{x.remote, x.local} {
		for object, err := range s.List(ctx, x.round) {
			if err == nil {
				err = s.Delete(ctx, object.Key)
			}
			if err != nil {
				return err
			}
		}
	}
	return errors.Join(os.RemoveAll(x.in(x.memory, "downloaded")), os.RemoveAll(x.in(x.o.dir, "downloaded")),
		os.RemoveAll(x.in(x.o.dir, "got")), os.RemoveAll(x.in(x.o.dir, "copied")))
}
