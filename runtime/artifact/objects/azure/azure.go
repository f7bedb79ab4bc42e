// Package azure is a store in Azure Blob Storage.
package azure

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	azblobblob "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"gocloud.dev/blob"
	"gocloud.dev/blob/azureblob"

	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/artifact/objects/blobstore"
)

// Open makes a store of a bucket of Go CDK's package azureblob, which it closes. The name is the container's.
func Open(bucket *blob.Bucket, name string, o blobstore.Options) (*objects.Guarded, error) {
	return blobstore.New(bucket, "azblob://"+name, blobstore.Driver{
		Token:     token,
		Condition: condition,
		Classify:  classify,
	}, o)
}

// OpenURL opens the store that azblob://container/folder names. The account and its credentials come from the
// environment as azureblob reads it: AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN,
// AZURE_STORAGE_CONNECTION_STRING, or what azidentity finds. The parameters are those of azureblob.URLOpener:
// storage_account, domain, protocol, cdn, localemu.
func OpenURL(ctx context.Context, u *url.URL, o objects.Options) (objects.Store, error) {
	if u.User != nil {
		return nil, errors.New("azure: credentials don't belong in the URL; set AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN")
	}
	opener := azureblob.URLOpener{MakeClient: azureblob.NewDefaultClient, ServiceURLOptions: *azureblob.NewDefaultServiceURLOptions()}
	bucket, err := opener.OpenBucketURL(ctx, &url.URL{Scheme: u.Scheme, Host: u.Host, RawQuery: u.RawQuery})
	if err != nil {
		return nil, fmt.Errorf("azure: %w", err)
	}
	g, err := Open(bucket, u.Host, blobstore.Options{Options: o})
	if err != nil {
		return nil, errors.Join(err, bucket.Close())
	}
	return objects.Under(g, u.Path)
}

// token is the blob's entity tag.
func token(r *blob.Reader) (objects.Token, error) {
	var in azblobblob.DownloadStreamResponse
	if !r.As(&in) || in.ETag == nil || *in.ETag == "" {
		return "", fmt.Errorf("%w: the answer has no entity tag", objects.ErrUnsupported)
	}
	return objects.Token(*in.ETag), nil
}

func condition(as func(any) bool, old objects.Token, _ int) error {
	var o *azblob.UploadStreamOptions
	if !as(&o) {
		return objects.ErrUnsupported
	}
	match := &azblobblob.ModifiedAccessConditions{}
	tag := azcore.ETag(old)
	if old == "" {
		tag = azcore.ETagAny
		match.IfNoneMatch = &tag
	} else {
		match.IfMatch = &tag
	}
	o.AccessConditions = &azblob.AccessConditions{ModifiedAccessConditions: match}
	return nil
}

func classify(err error) error {
	if bloberror.HasCode(err, bloberror.ContainerNotFound, bloberror.ContainerBeingDeleted) {
		return fmt.Errorf("%w: %w", objects.ErrNoBucket, err)
	}
	var answer *azcore.ResponseError
	if errors.As(err, &answer) {
		return blobstore.ByStatus(answer.StatusCode, err)
	}
	return blobstore.ByCode(err)
}
