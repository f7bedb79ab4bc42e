// Package blobstore makes an objects.Store of a Go CDK bucket. What a pointer needs beyond that interface, a condition
// on a write and the token of a read, comes from a Driver; the packages s3, gcs and azure have theirs.
package blobstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/typedfold/fold/runtime/artifact/objects"
)

// Defaults of Options.
const (
	DefaultPartSize = 8 << 20
	DefaultParallel = 8
)

// Options shape a store. The zero value is good.
type Options struct {
	objects.Options
	// PartSize is the size of an upload's parts in bytes; 0 is DefaultPartSize. Stores limit the number of an object's
	// parts, S3 to 10,000, so a reader that is objects.Sized and large gets larger ones; any other one ends at that limit.
	PartSize int
	// Parallel is how many parts are under way at once, where the store can do that; 0 is DefaultParallel. An upload
	// holds about PartSize × (Parallel + 3) bytes. Of larger parts there are fewer at once.
	Parallel int
}

// Validate reports settings that mean nothing.
func (o Options) Validate() error {
	if o.PartSize < 0 || o.PartSize > 0 && o.PartSize < 5<<20 {
		return fmt.Errorf("blobstore: part size %d must be 5 MiB or more", o.PartSize)
	}
	if o.Parallel < 0 {
		return fmt.Errorf("blobstore: parallel %d must not be negative", o.Parallel)
	}
	return o.Options.Validate()
}

// WithDefaults fills in what is 0.
func (o Options) WithDefaults() Options {
	if o.PartSize == 0 {
		o.PartSize = DefaultPartSize
	}
	if o.Parallel == 0 {
		o.Parallel = DefaultParallel
	}
	return o
}

// Driver is what a kind of bucket adds to Go CDK. Every field may be nil.
type Driver struct {
	// Token is the token of what r reads, from the same answer as its bytes. Without Token and Condition no pointer can
	// be swapped.
	Token func(r *blob.Reader) (objects.Token, error)
	// Condition puts the condition on a pointer's write of size bytes. as is that of WriterOptions.BeforeWrite.
	Condition func(as func(any) bool, old objects.Token, size int) error
	// BeforePut prepares a payload's write. as is that of WriterOptions.BeforeWrite.
	BeforePut func(as func(any) bool, p Parts) error
	// Classify wraps an error of the store's library with the objects error that it is; ByStatus and ByCode help. A
	// refused condition is objects.ErrConflict.
	Classify func(error) error
	// Clean does what objects.Store.CleanUploads says.
	Clean func(ctx context.Context, prefix string, olderThan time.Duration) error
}

// New makes a store of the bucket, which it closes. The name is the store's in errors, without credentials.
func New(bucket *blob.Bucket, name string, d Driver, o Options) (*objects.Guarded, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if d.Classify == nil {
		d.Classify = ByCode
	}
	o = o.WithDefaults()
	limit := o.MaxPointer
	if limit == 0 {
		limit = objects.DefaultMaxPointer
	}
	return objects.Guard(&store{bucket: bucket, d: d, o: o, maxPointer: limit}, name, o.Options)
}

type store struct {
	bucket     *blob.Bucket
	d          Driver
	o          Options
	maxPointer int64
}

// ByStatus classifies an error by the status of the store's HTTP answer; 0 says that there was none.
func ByStatus(status int, err error) error {
	kind := objects.ErrUnavailable
	switch {
	case status == 0 || status == http.StatusRequestTimeout || status == http.StatusTooEarly || status == http.StatusTooManyRequests:
	case status == http.StatusNotFound:
		kind = objects.ErrNotFound
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		kind = objects.ErrDenied
	case status == http.StatusConflict || status == http.StatusPreconditionFailed:
		kind = objects.ErrConflict
	case status == http.StatusNotImplemented:
		kind = objects.ErrUnsupported
	case status < http.StatusInternalServerError:
		return err
	}
	return fmt.Errorf("%w: %w", kind, err)
}

// ByCode classifies an error by Go CDK's code. It knows no conflicts: FailedPrecondition has other causes too.
func ByCode(err error) error {
	switch gcerrors.Code(err) {
	case gcerrors.NotFound:
		return fmt.Errorf("%w: %w", objects.ErrNotFound, err)
	case gcerrors.PermissionDenied:
		return fmt.Errorf("%w: %w", objects.ErrDenied, err)
	case gcerrors.InvalidArgument, gcerrors.FailedPrecondition, gcerrors.Unimplemented, gcerrors.Canceled, gcerrors.DeadlineExceeded:
		return err
	}
	return fmt.Errorf("%w: %w", objects.ErrUnavailable, err)
}

// kind classifies what an operation without a condition failed with. Another request in its way is no conflict then.
func (s *store) kind(err error) error {
	if err == nil || errors.Is(err, objects.ErrUnsupported) {
		return err
	}
	err = s.d.Classify(err)
	if errors.Is(err, objects.ErrConflict) {
		return fmt.Errorf("%w: %v", objects.ErrUnavailable, err)
	}
	return err
}

const contentType = "application/octet-stream"

// Parts are how an object is uploaded: in parts of Size bytes, of which so many are under way at once.
type Parts struct {
	Size, Parallel int
}

const (
	// maxParts leaves room below what S3 takes, for a hint that falls short.
	maxParts = 9000
	partUnit = 1 << 20
)

// PartsFor are the parts of an object of that size; 0 is one that is not known. More than one part is always under way.
func (o Options) PartsFor(size int64) Parts {
	p := Parts{Size: o.PartSize, Parallel: o.Parallel}
	if size/maxParts < int64(p.Size) {
		return p
	}
	p.Size = int((size/maxParts/partUnit + 1) * partUnit)
	p.Parallel = max(min(2, o.Parallel), int(int64(o.Parallel)*int64(o.PartSize)/int64(p.Size)))
	return p
}

// Put uses Upload alone. Writers that are closed after a failure publish what they have got.
func (s *store) Put(ctx context.Context, key string, r io.Reader) error {
	var size int64
	if sized, ok := r.(objects.Sized); ok {
		size = sized.Size()
	}
	p := s.o.PartsFor(size)
	o := blob.WriterOptions{ContentType: contentType, BufferSize: p.Size, MaxConcurrency: p.Parallel}
	if before := s.d.BeforePut; before != nil {
		o.BeforeWrite = func(as func(any) bool) error { return before(as, p) }
	}
	return s.kind(s.bucket.Upload(ctx, key, r, &o))
}

func (s *store) Get(ctx context.Context, key string) (io.ReadCloser, objects.Info, error) {
	return s.GetFrom(ctx, key, 0)
}

func (s *store) GetFrom(ctx context.Context, key string, offset int64) (io.ReadCloser, objects.Info, error) {
	r, err := s.bucket.NewRangeReader(ctx, key, offset, -1, nil)
	if err != nil {
		return nil, objects.Info{}, s.kind(err)
	}
	info := objects.Info{Size: r.Size(), ModTime: r.ModTime()}
	if s.d.Token != nil {
		if t, err := s.d.Token(r); err == nil { // a payload needs none
			info.Version = string(t)
		}
	}
	return &body{r: r, s: s}, info, nil
}

func (s *store) Stat(ctx context.Context, key string) (objects.Info, error) {
	a, err := s.bucket.Attributes(ctx, key)
	if err != nil {
		return objects.Info{}, s.kind(err)
	}
	return objects.Info{Size: a.Size, ModTime: a.ModTime}, nil
}

// body classifies what reading fails with.
type body struct {
	r *blob.Reader
	s *store
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err == io.EOF {
		return n, err
	}
	return n, b.s.kind(err)
}

func (b *body) Close() error { return b.s.kind(b.r.Close()) }

func (s *store) List(ctx context.Context, prefix string) iter.Seq2[objects.Object, error] {
	return func(yield func(objects.Object, error) bool) {
		it := s.bucket.List(&blob.ListOptions{Prefix: prefix})
		for {
			o, err := it.Next(ctx)
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(objects.Object{}, s.kind(err))
				return
			}
			if !yield(objects.Object{Key: o.Key, Size: o.Size, ModTime: o.ModTime}, nil) {
				return
			}
		}
	}
}

func (s *store) Delete(ctx context.Context, key string) error {
	err := s.kind(s.bucket.Delete(ctx, key))
	if errors.Is(err, objects.ErrNotFound) {
		return nil
	}
	return err
}

func (s *store) ReadPointer(ctx context.Context, key string) ([]byte, objects.Token, error) {
	r, err := s.bucket.NewReader(ctx, key, nil)
	if err != nil {
		return nil, "", s.kind(err)
	}
	value, err := io.ReadAll(io.LimitReader(r, s.maxPointer+1))
	var token objects.Token
	if err == nil {
		token, err = s.token(r, value)
	}
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, "", s.kind(err)
	}
	return value, token, nil
}

// token of a bucket without a Driver's names the bytes: enough to compare with.
func (s *store) token(r *blob.Reader, value []byte) (objects.Token, error) {
	if s.d.Token != nil {
		return s.d.Token(r)
	}
	sum := sha256.Sum256(value)
	return objects.Token(hex.EncodeToString(sum[:])), nil
}

func (s *store) SwapPointer(ctx context.Context, key string, value []byte, old objects.Token) error {
	if s.d.Token == nil || s.d.Condition == nil {
		return objects.ErrUnsupported
	}
	err := s.bucket.Upload(ctx, key, bytes.NewReader(value), &blob.WriterOptions{
		ContentType:    contentType,
		BufferSize:     s.o.PartSize,
		MaxConcurrency: s.o.Parallel,
		BeforeWrite:    func(as func(any) bool) error { return s.d.Condition(as, old, len(value)) },
	})
	if err == nil || errors.Is(err, objects.ErrUnsupported) {
		return err
	}
	err = s.d.Classify(err)
	if old != "" && errors.Is(err, objects.ErrNotFound) {
		return fmt.Errorf("%w: it is gone: %w", objects.ErrConflict, err)
	}
	return err
}

func (s *store) CleanUploads(ctx context.Context, prefix string, olderThan time.Duration) error {
	if s.d.Clean == nil {
		return context.Cause(ctx)
	}
	return s.kind(s.d.Clean(ctx, prefix, olderThan))
}

func (s *store) Close() error { return s.bucket.Close() }
