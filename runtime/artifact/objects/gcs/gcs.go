// Package gcs is a store in Google Cloud Storage.
package gcs

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"cloud.google.com/go/storage"
	"gocloud.dev/blob"
	"gocloud.dev/blob/gcsblob"
	"gocloud.dev/gcp"
	"google.golang.org/api/googleapi"

	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/artifact/objects/blobstore"
)

// Open makes a store of a bucket of Go CDK's package gcsblob, which it closes. The name is the bucket's.
func Open(bucket *blob.Bucket, name string, o blobstore.Options) (*objects.Guarded, error) {
	return blobstore.New(bucket, "gs://"+name, blobstore.Driver{
		Token:     token,
		Condition: condition,
		Classify:  classify,
	}, o)
}

// OpenURL opens the store that gs://bucket/folder names, with Google's application default credentials; with
// anonymous=true, and where STORAGE_EMULATOR_HOST is set, with none. The parameters are those of gcsblob.URLOpener that
// need no gRPC.
func OpenURL(ctx context.Context, u *url.URL, o objects.Options) (objects.Store, error) {
	if u.User != nil {
		return nil, errors.New("gcs: credentials don't belong in the URL; set GOOGLE_APPLICATION_CREDENTIALS")
	}
	var opener gcsblob.URLOpener
	if anonymous, _ := strconv.ParseBool(u.Query().Get("anonymous")); !anonymous {
		creds, err := gcp.DefaultCredentials(ctx)
		if err != nil {
			return nil, fmt.Errorf("gcs: %w: %w", objects.ErrDenied, err)
		}
		if opener.Client, err = gcp.NewHTTPClient(gcp.DefaultTransport(), creds.TokenSource); err != nil {
			return nil, fmt.Errorf("gcs: %w", err)
		}
	}
	bucket, err := opener.OpenBucketURL(ctx, &url.URL{Scheme: u.Scheme, Host: u.Host, RawQuery: u.RawQuery})
	if err != nil {
		return nil, fmt.Errorf("gcs: %w", err)
	}
	g, err := Open(bucket, u.Host, blobstore.Options{Options: o})
	if err != nil {
		return nil, errors.Join(err, bucket.Close())
	}
	return objects.Under(g, u.Path)
}

// token is the object's generation.
func token(r *blob.Reader) (objects.Token, error) {
	var in *storage.Reader
	if !r.As(&in) || in.Attrs.Generation == 0 {
		return "", fmt.Errorf("%w: the answer has no generation", objects.ErrUnsupported)
	}
	return objects.Token(strconv.FormatInt(in.Attrs.Generation, 10)), nil
}

// maxAttempts of the library, which else sends a conditional write again until its context ends.
const maxAttempts = 4

// condition writes a pointer in one request: a chunk is larger than it.
func condition(as func(any) bool, old objects.Token, size int) error {
	var object **storage.ObjectHandle
	if !as(&object) {
		return objects.ErrUnsupported
	}
	match := storage.Conditions{DoesNotExist: true}
	if old != "" {
		generation, err := strconv.ParseInt(string(old), 10, 64)
		if err != nil || generation == 0 {
			return fmt.Errorf("%w: %q is no generation", objects.ErrUnsupported, old)
		}
		match = storage.Conditions{GenerationMatch: generation}
	}
	*object = (*object).If(match).Retryer(storage.WithMaxAttempts(maxAttempts))
	var w *storage.Writer
	if !as(&w) {
		return objects.ErrUnsupported
	}
	w.ChunkSize = max(w.ChunkSize, size+1)
	return nil
}

func classify(err error) error {
	if errors.Is(err, storage.ErrBucketNotExist) {
		return fmt.Errorf("%w: %w", objects.ErrNoBucket, err)
	}
	var answer *googleapi.Error
	if errors.As(err, &answer) {
		return blobstore.ByStatus(answer.Code, err)
	}
	return blobstore.ByCode(err)
}
