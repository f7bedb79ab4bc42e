package ring

import (
	"encoding/json"
	"errors"
	"iter"
	"net/http/httptest"
	"slices"
	"testing"

	fold "github.com/typedfold/fold/runtime"

	ringv1 "github.com/typedfold/fold/examples/hashring/gen/ring/v1"
	"github.com/typedfold/fold/examples/hashring/gen/ring/v1/ringv1fold"
)

func key(ring, id string) ringv1fold.OriginKey { return ringv1fold.OriginKey{Ring: ring, OriginID: id} }

func put(ring, id string, weight uint32) ringv1fold.OriginEvent {
	return ringv1fold.OriginEvent{Op: fold.OpPut, Key: key(ring, id), New: &ringv1.Origin{Ring: ring, OriginId: id, Address: id + ":80", Weight: weight}}
}

func gone(op fold.Op, ring, id string) ringv1fold.OriginEvent {
	return ringv1fold.OriginEvent{Op: op, Key: key(ring, id)}
}

func ids(r *Ring) (out []string) {
	for _, m := range r.Members() {
		out = append(out, m.ID)
	}
	return out
}

func TestHooksRebuildWhatABatchChanges(t *testing.T) {
	r := NewRings()
	rows := func(yield func(ringv1fold.OriginRow, error) bool) {
		for _, e := range []ringv1fold.OriginEvent{put("cdn", "o1", 1), put("cdn", "o2", 1), put("api", "a1", 1)} {
			if !yield(ringv1fold.OriginRow{Key: e.Key, Value: e.New}, nil) {
				return
			}
		}
	}
	if err := r.LoadOrigin(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	api := r.Get("api")
	batch := []ringv1fold.OriginEvent{
		put("cdn", "o3", 2), gone(fold.OpDelete, "cdn", "o1"), put("cdn", "o4", 0), put("new", "n1", 1),
		gone(fold.OpPurge, "cdn", "never.there"), gone(fold.OpAgedOut, "cdn", "o2"),
	}
	for range 2 { // after a crash a batch may come again
		old := r.Get("cdn")
		was := ids(old)
		if err := r.ApplyOrigin(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		if got := ids(r.Get("cdn")); !slices.Equal(got, []string{"o2", "o3"}) {
			t.Errorf("cdn: %q", got)
		}
		if got := ids(r.Get("new")); !slices.Equal(got, []string{"n1"}) {
			t.Errorf("new: %q", got)
		}
		if !slices.Equal(ids(old), was) {
			t.Errorf("a ring changed in a reader's hands: %q, was %q", ids(old), was)
		}
	}
	if r.Get("api") != api {
		t.Error("a ring that the batch did not touch was rebuilt")
	}
	if err := r.ApplyOrigin(t.Context(), []ringv1fold.OriginEvent{put("cdn", "o4", 1), gone(fold.OpDelete, "new", "n1")}); err != nil {
		t.Fatal(err)
	}
	if got := ids(r.Get("cdn")); !slices.Equal(got, []string{"o2", "o3", "o4"}) {
		t.Errorf("a weight that is not 0 any more: %q", got)
	}
	if _, there := (*r.current.Load())["new"]; there {
		t.Error("an empty ring stays in the map")
	}
	if got := ids(r.Get("no.such")); got != nil {
		t.Errorf("no such ring: %q", got)
	}
}

func TestLoadGivesBackTheScansError(t *testing.T) {
	broken := errors.New("disk on fire")
	var rows iter.Seq2[ringv1fold.OriginRow, error] = func(yield func(ringv1fold.OriginRow, error) bool) { yield(ringv1fold.OriginRow{}, broken) }
	if err := NewRings().LoadOrigin(t.Context(), rows); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

func TestHandler(t *testing.T) {
	r := NewRings()
	if err := r.ApplyOrigin(t.Context(), []ringv1fold.OriginEvent{put("cdn", "o1", 1), put("cdn", "o2", 1), put("cdn", "o3", 1)}); err != nil {
		t.Fatal(err)
	}
	get := func(path string) (int, []byte) {
		w := httptest.NewRecorder()
		r.Handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Code, w.Body.Bytes()
	}
	code, body := get("/cdn/some/path.jpg")
	var a answer
	if err := json.Unmarshal(body, &a); err != nil || code != 200 {
		t.Fatalf("%d %v %s", code, err, body)
	}
	want, _ := r.Get("cdn").Pick("some/path.jpg")
	if a.Request != "some/path.jpg" || a.Origin.ID != want.ID || len(a.Next) != 2 {
		t.Errorf("%+v, want %s first", a, want.ID)
	}
	if code, body := get("/cdn"); code != 200 || !json.Valid(body) {
		t.Errorf("members: %d %s", code, body)
	}
	if code, body := get("/none"); code != 200 || string(body) != "[]\n" {
		t.Errorf("members of no ring: %d %s", code, body)
	}
	if code, _ := get("/none/x"); code != 503 {
		t.Errorf("request to no ring: %d", code)
	}
}
