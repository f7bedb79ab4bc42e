package s3_test

import (
	"context"
	"net/url"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/typedfold/fold/internal/s3test"
	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/artifact/objects/objectstest"
	"github.com/typedfold/fold/runtime/artifact/objects/s3"
)

func TestConformance(t *testing.T) {
	server := sync.OnceValue(func() *s3test.Server { return s3test.New(t) })
	objectstest.RunConformance(t, objectstest.Harness{
		Place:     func(t *testing.T) string { return server().Bucket(t) },
		Open:      open,
		Processes: true,
		Many:      1010, // a page has 1000
		Leftovers: func(ctx context.Context, place string) (int, error) {
			u, err := url.Parse(place)
			if err != nil {
				return 0, err
			}
			page, err := server().Client().ListMultipartUploads(ctx, &awss3.ListMultipartUploadsInput{Bucket: aws.String(u.Host)})
			if err != nil {
				return 0, err
			}
			return len(page.Uploads), nil
		},
	})
}

func open(ctx context.Context, place string) (objects.Store, error) {
	return objects.Openers{"s3": s3.OpenURL}.Open(ctx, place, objects.Options{})
}
