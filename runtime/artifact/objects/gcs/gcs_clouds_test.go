//go:build clouds

package gcs_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/typedfold/fold/internal/cloudtest"
	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/artifact/objects/gcs"
	"github.com/typedfold/fold/runtime/artifact/objects/objectstest"
)

func TestConformance(t *testing.T) {
	server := sync.OnceValue(func() string {
		addr := cloudtest.FakeGCS(t)
		t.Setenv("STORAGE_EMULATOR_HOST", addr)
		return addr
	})
	next := 0
	objectstest.RunConformance(t, objectstest.Harness{
		Place: func(t *testing.T) string {
			next++
			name := "bucket-" + strings.Repeat("x", next)
			answer, err := http.Post("http://"+server()+"/storage/v1/b?project=p", "application/json", strings.NewReader(`{"name":"`+name+`"}`))
			if err != nil {
				t.Fatal(err)
			}
			if err := answer.Body.Close(); err != nil || answer.StatusCode != http.StatusOK {
				t.Fatalf("make a bucket: %s, %v", answer.Status, err)
			}
			return "gs://" + name + "?anonymous=true"
		},
		Open: func(ctx context.Context, place string) (objects.Store, error) {
			return objects.Openers{"gs": gcs.OpenURL}.Open(ctx, place, objects.Options{})
		},
		Processes: true,
		Many:      1010,
	})
}
