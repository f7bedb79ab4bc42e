// Package s3 is a store in Amazon S3 or in a service that speaks its protocol and enforces If-Match and If-None-Match.
package s3

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	gcaws "gocloud.dev/aws"
	"gocloud.dev/blob"
	"gocloud.dev/blob/s3blob"

	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/artifact/objects/blobstore"
)

// Options shape a store. The zero value is good.
type Options struct {
	blobstore.Options
	// Encryption and KMSKey ask for server-side encryption of what is written.
	Encryption types.ServerSideEncryption
	KMSKey     string
	// Checksums says when requests carry a checksum; services that know none need when_required. It is a setting of its
	// own, since uploads don't take the client's.
	Checksums aws.RequestChecksumCalculation
}

// Open makes a store of a bucket. It sends nothing.
func Open(client *s3.Client, bucket string, o Options) (*objects.Guarded, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.Options = o.WithDefaults()
	b, err := s3blob.OpenBucket(context.Background(), client, bucket, &s3blob.Options{
		EncryptionType:             o.Encryption,
		KMSEncryptionID:            o.KMSKey,
		RequestChecksumCalculation: o.Checksums,
	})
	if err != nil {
		return nil, fmt.Errorf("s3: %w", err)
	}
	d := driver{client: client, bucket: bucket, o: o}
	return blobstore.New(b, "s3://"+bucket, blobstore.Driver{
		Token:     token,
		Condition: d.condition,
		BeforePut: d.beforePut,
		Classify:  classify,
		Clean:     d.clean,
	}, o.Options)
}

// OpenURL opens the store that s3://bucket/folder names, with the credentials that the AWS SDK finds. The parameters are
// use_path_style, ssetype, kmskeyid, and those of gocloud.dev/aws.V2ConfigFromURLParams: region, endpoint, profile,
// anonymous, role, request_checksum_calculation and more.
func OpenURL(ctx context.Context, u *url.URL, o objects.Options) (objects.Store, error) {
	if u.User != nil {
		return nil, errors.New("s3: credentials don't belong in the URL; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile")
	}
	q := u.Query()
	opts := Options{Encryption: types.ServerSideEncryption(q.Get("ssetype")), KMSKey: q.Get("kmskeyid")}
	opts.Options.Options = o
	var pathStyle bool
	if v := q.Get("use_path_style"); v != "" {
		var err error
		if pathStyle, err = strconv.ParseBool(v); err != nil {
			return nil, fmt.Errorf("s3: use_path_style is %q, not true or false", v)
		}
	}
	for _, own := range []string{"ssetype", "kmskeyid", "use_path_style"} {
		q.Del(own)
	}
	cfg, err := gcaws.V2ConfigFromURLParams(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("s3: %w", err)
	}
	opts.Checksums = cfg.RequestChecksumCalculation
	client := s3.NewFromConfig(cfg, func(s *s3.Options) {
		s.UsePathStyle = pathStyle || s.UsePathStyle
		s.DisableLogOutputChecksumValidationSkipped = true
	})
	g, err := Open(client, u.Host, opts)
	if err != nil {
		return nil, err
	}
	return objects.Under(g, u.Path)
}

type driver struct {
	client *s3.Client
	bucket string
	o      Options
}

// token is the object's entity tag.
func token(r *blob.Reader) (objects.Token, error) {
	var out s3.GetObjectOutput
	if !r.As(&out) || aws.ToString(out.ETag) == "" {
		return "", fmt.Errorf("%w: the answer has no entity tag", objects.ErrUnsupported)
	}
	return objects.Token(*out.ETag), nil
}

// condition writes a pointer as one object of one part: some services forget the condition when parts are joined.
func (d *driver) condition(as func(any) bool, old objects.Token, size int) error {
	var in *transfermanager.UploadObjectInput
	if !as(&in) {
		return objects.ErrUnsupported
	}
	if old == "" {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = aws.String(string(old))
	}
	return d.manage(as, d.o.PartsFor(int64(size)), int64(size)+1)
}

func (d *driver) beforePut(as func(any) bool, p blobstore.Parts) error { return d.manage(as, p, 0) }

// abortTimeout bounds the removal of the parts of an upload that failed.
const abortTimeout = 10 * time.Second

// manage gives the upload a manager that removes its parts even when its context has ended.
func (d *driver) manage(as func(any) bool, p blobstore.Parts, threshold int64) error {
	var tm *transfermanager.Client
	if !as(&tm) {
		return objects.ErrUnsupported
	}
	*tm = *transfermanager.New(d.client, func(o *transfermanager.Options) {
		o.PartSizeBytes = int64(p.Size)
		o.Concurrency = p.Parallel
		o.RequestChecksumCalculation = d.o.Checksums
		o.MultipartUploadThreshold = threshold
		o.FailTimeout = abortTimeout
	})
	return nil
}

// codes are answers that say more than their status.
var codes = map[string]error{
	"NoSuchBucket":               objects.ErrNoBucket,
	"PreconditionFailed":         objects.ErrConflict,
	"ConditionalRequestConflict": objects.ErrConflict,
	"OperationAborted":           objects.ErrConflict,
	"NotImplemented":             objects.ErrUnsupported,
	"RequestTimeout":             objects.ErrUnavailable,
	"ExpiredToken":               objects.ErrDenied,
	"InvalidToken":               objects.ErrDenied,
}

func classify(err error) error {
	var api smithy.APIError
	if errors.As(err, &api) {
		if kind := codes[api.ErrorCode()]; kind != nil {
			return fmt.Errorf("%w: %w", kind, err)
		}
	}
	var answer *awshttp.ResponseError
	if errors.As(err, &answer) && answer.Response != nil {
		return blobstore.ByStatus(answer.HTTPStatusCode(), err)
	}
	return blobstore.ByCode(err)
}

// clean aborts the multipart uploads that began before.
func (d *driver) clean(ctx context.Context, prefix string, olderThan time.Duration) error {
	before := time.Now().Add(-olderThan)
	pages := s3.NewListMultipartUploadsPaginator(d.client, &s3.ListMultipartUploadsInput{Bucket: &d.bucket, Prefix: &prefix})
	var failed error
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return errors.Join(failed, err)
		}
		for _, u := range page.Uploads {
			if u.Initiated != nil && u.Initiated.After(before) {
				continue
			}
			failed = errors.Join(failed, d.abort(ctx, u))
		}
	}
	return failed
}

func (d *driver) abort(ctx context.Context, u types.MultipartUpload) error {
	_, err := d.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &d.bucket, Key: u.Key, UploadId: u.UploadId})
	var gone *types.NoSuchUpload
	if errors.As(err, &gone) {
		return nil
	}
	return err
}
