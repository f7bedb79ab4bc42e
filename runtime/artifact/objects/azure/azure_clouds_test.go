//go:build clouds

package azure_test

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"

	"github.com/typedfold/fold/internal/cloudtest"
	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/artifact/objects/azure"
	"github.com/typedfold/fold/runtime/artifact/objects/objectstest"
)

func TestConformance(t *testing.T) {
	server := sync.OnceValue(func() string {
		addr := cloudtest.Azurite(t)
		t.Setenv("AZURE_STORAGE_ACCOUNT", cloudtest.AzuriteAccount)
		t.Setenv("AZURE_STORAGE_KEY", cloudtest.AzuriteKey)
		return addr
	})
	next := 0
	objectstest.RunConformance(t, objectstest.Harness{
		Place: func(t *testing.T) string {
			next++
			name := fmt.Sprintf("container-%d", next)
			cred, err := azblob.NewSharedKeyCredential(cloudtest.AzuriteAccount, cloudtest.AzuriteKey)
			if err != nil {
				t.Fatal(err)
			}
			client, err := azblob.NewClientWithSharedKeyCredential("http://"+server()+"/"+cloudtest.AzuriteAccount, cred, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.CreateContainer(t.Context(), name, nil); err != nil {
				t.Fatal(err)
			}
			return "azblob://" + name + "?" + url.Values{"protocol": {"http"}, "localemu": {"true"}, "domain": {server()}}.Encode()
		},
		Open: func(ctx context.Context, place string) (objects.Store, error) {
			return objects.Openers{"azblob": azure.OpenURL}.Open(ctx, place, objects.Options{})
		},
		Processes: true,
		Many:      1010,
	})
}
