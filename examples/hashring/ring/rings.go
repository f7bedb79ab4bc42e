package ring

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"net/http"
	"sync/atomic"

	fold "github.com/typedfold/fold/runtime"

	ringv1 "github.com/typedfold/fold/examples/hashring/gen/ring/v1"
	"github.com/typedfold/fold/examples/hashring/gen/ring/v1/ringv1fold"
)

// Bucket is the logical bucket of the origins, as their schema names it.
const Bucket = "ring"

// Rings are the rings of a fold by name. They are the table's hooks: register the table with them, and ask Get. Reads
// take no lock.
type Rings struct {
	ringv1fold.UnimplementedOriginHooks
	current atomic.Pointer[map[string]*Ring] // replaced, never changed
}

// NewRings are no rings yet.
func NewRings() *Rings {
	r := &Rings{}
	r.current.Store(&map[string]*Ring{})
	return r
}

// Get is the ring of a name as it is now, an empty one when it has no origin.
func (r *Rings) Get(name string) *Ring {
	if ring := (*r.current.Load())[name]; ring != nil {
		return ring
	}
	return &Ring{}
}

// LoadOrigin builds the rings from the fold as it was on disk.
func (r *Rings) LoadOrigin(_ context.Context, rows iter.Seq2[ringv1fold.OriginRow, error]) error {
	members := map[string][]Member{}
	for row, err := range rows {
		if err != nil {
			return err
		}
		members[row.Key.Ring] = append(members[row.Key.Ring], memberOf(row.Value))
	}
	rings := map[string]*Ring{}
	for name, m := range members {
		rings[name] = New(m...)
	}
	r.current.Store(&rings)
	return nil
}

// ApplyOrigin rebuilds the rings that a batch changes, once each. A batch that comes twice gives the same rings.
func (r *Rings) ApplyOrigin(_ context.Context, events []ringv1fold.OriginEvent) error {
	rings := maps.Clone(*r.current.Load())
	changed := map[string]map[string]Member{}
	for i := range events {
		e := &events[i]
		members := changed[e.Key.Ring]
		if members == nil {
			members = map[string]Member{}
			if ring := rings[e.Key.Ring]; ring != nil {
				for _, m := range ring.Members() {
					members[m.ID] = m
				}
			}
			changed[e.Key.Ring] = members
		}
		switch {
		case e.Op == fold.OpPut:
			members[e.Key.OriginID] = memberOf(e.New)
		case e.Op.Removes():
			delete(members, e.Key.OriginID)
		}
	}
	for name, members := range changed {
		ms := make([]Member, 0, len(members))
		for _, m := range members {
			ms = append(ms, m)
		}
		if rings[name] = New(ms...); len(rings[name].Members()) == 0 {
			delete(rings, name)
		}
	}
	r.current.Store(&rings)
	return nil
}

func memberOf(o *ringv1.Origin) Member {
	return Member{ID: o.GetOriginId(), Address: o.GetAddress(), Weight: o.GetWeight()}
}

// Handler answers GET /{ring} with the members of a ring, and GET /{ring}/{request} with the origin of a request and
// those to try after it.
func (r *Rings) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{ring}", func(w http.ResponseWriter, req *http.Request) {
		writeJSON(w, append([]Member{}, r.Get(req.PathValue("ring")).Members()...))
	})
	mux.HandleFunc("GET /{ring}/{request...}", func(w http.ResponseWriter, req *http.Request) {
		order := r.Get(req.PathValue("ring")).Order(req.PathValue("request"))
		if len(order) == 0 {
			http.Error(w, "this ring has no origin", http.StatusServiceUnavailable)
			return
		}
		writeJSON(w, answer{Request: req.PathValue("request"), Origin: order[0], Next: order[1:]})
	})
	return mux
}

type answer struct {
	Request string   `json:"request"`
	Origin  Member   `json:"origin"`
	Next    []Member `json:"next"`
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a client that went away
}
