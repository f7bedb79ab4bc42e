package mem_test

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/artifact/objects/mem"
	"github.com/typedfold/fold/runtime/artifact/objects/objectstest"
)

func TestConformance(t *testing.T) {
	var places sync.Map
	next := 0
	objectstest.RunConformance(t, objectstest.Harness{
		Place: func(t *testing.T) string {
			s, err := mem.Open(objects.Options{})
			if err != nil {
				t.Fatal(err)
			}
			next++
			places.Store(strconv.Itoa(next), s)
			return strconv.Itoa(next)
		},
		Open: func(_ context.Context, place string) (objects.Store, error) {
			s, _ := places.Load(place)
			return objects.Guard(unclosed{s.(*objects.Guarded)}, "mem", objects.Options{})
		},
	})
}

// unclosed is shared by the stores that are opened at its place.
type unclosed struct{ *objects.Guarded }

func (unclosed) Close() error { return nil }
