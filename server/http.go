package server

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/typedfold/fold/internal/nova"
	"github.com/typedfold/fold/internal/nova/jslog"
	"github.com/typedfold/fold/internal/nova/node"
	"github.com/typedfold/fold/internal/nova/sequencer"
)

// routes adds the JSON interface, and openapi.yaml, which describes it.
func (s *Server) routes(mux *http.ServeMux) {
	for pattern, h := range s.handlers() {
		mux.Handle(pattern, s.json(pattern, h))
	}
	mux.HandleFunc("GET /openapi.yaml", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(openAPI) // a client that is gone needs no answer
	})
}

//go:embed openapi.yaml
var openAPI []byte

func (s *Server) handlers() map[string]handler {
	const stream = "/v1/{namespace}/{stream}"
	return map[string]handler{
		"POST " + stream + "/records":   s.postRecords,
		"GET " + stream + "/records":    s.getRecords,
		"DELETE " + stream + "/records": s.trimRecords,
		"GET " + stream + "/tail":       s.getTail,
		"GET " + stream + "/fence":      s.getFence,
		"PUT " + stream + "/fence":      s.putFence,
		"DELETE " + stream + "/fence":   s.deleteFence,
		"PUT " + stream:                 s.putStream,
		"GET " + stream:                 s.getStream,
		"DELETE " + stream:              s.deleteStream,
		"GET /v1/{namespace}":           s.listStreams,
		"GET /v1":                       s.listStreams,
	}
}

// handler answers one request; its value becomes JSON, unless it has written an answer of its own (nil, nil).
type handler func(w http.ResponseWriter, q *http.Request) (any, error)

// json runs a handler as guard runs a procedure.
func (s *Server) json(pattern string, h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		q.Body = http.MaxBytesReader(w, q.Body, int64(s.o.MaxBody))
		if q.Method != http.MethodGet { // what is left of a body is read even when the answer is known
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(2 * s.o.UnaryTimeout)) // where there is a connection
		}
		var body any
		err := s.call(q.Context(), pattern, q.Header, func(ctx context.Context) (err error) {
			if err := asJSON(q); err != nil {
				return err
			}
			body, err = h(w, q.WithContext(ctx))
			return err
		})
		switch {
		case err != nil:
			writeProblem(w, problemOf(err))
		case body != nil:
			writeJSON(w, http.StatusOK, body)
		}
	})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a client that is gone needs no answer
}

// positionJSON is a place in a stream.
type positionJSON struct {
	SeqNum    uint64 `json:"seq_num"`
	Timestamp int64  `json:"timestamp"`
}

func jsonOf(p nova.Position) positionJSON { return positionJSON(p) }

// problemJSON is every answer that is no success.
type problemJSON struct {
	Code         string        `json:"code"`
	Message      string        `json:"message"`
	Tail         *positionJSON `json:"tail,omitempty"`
	First        *positionJSON `json:"first,omitempty"`
	FencingToken *string       `json:"fencing_token,omitempty"`
	Outcome      string        `json:"outcome,omitempty"`
	RequestID    string        `json:"request_id,omitempty"`
}

func (p problem) json(request string) problemJSON {
	out := problemJSON{Code: p.name, Message: p.text, FencingToken: p.installed, Outcome: p.outcome, RequestID: request}
	if p.tail != nil {
		out.Tail = new(jsonOf(*p.tail))
	}
	if p.first != nil {
		out.First = new(jsonOf(*p.first))
	}
	return out
}

func writeProblem(w http.ResponseWriter, p problem) {
	if p.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	writeJSON(w, p.status, p.json(w.Header().Get(RequestIDHeader)))
}

func addrOf(q *http.Request) nova.Addr {
	return nova.Addr{Namespace: q.PathValue("namespace"), Stream: q.PathValue("stream")}
}

func (s *Server) streamOf(q *http.Request, v Verb) (*node.Stream, error) {
	a := addrOf(q)
	if err := a.Validate(); err != nil {
		return nil, err
	}
	if err := s.may(q.Context(), v, a.Namespace); err != nil {
		return nil, err
	}
	return s.node.Stream(q.Context(), a)
}

// readJSON reads a body that has no fields but those of v.
func readJSON(q *http.Request, v any) error {
	d := json.NewDecoder(q.Body)
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("more than one JSON value")
		}
	}
	var tooLarge *http.MaxBytesError
	if err == nil || errors.As(err, &tooLarge) {
		return err
	}
	return fmt.Errorf("%w: body: %w", nova.ErrInvalid, err)
}

func (s *Server) unary(q *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(q.Context(), s.o.UnaryTimeout)
}

func (s *Server) postRecords(_ http.ResponseWriter, q *http.Request) (any, error) {
	st, err := s.streamOf(q, VerbAppend)
	if err != nil {
		return nil, err
	}
	var body struct {
		Records []struct {
			Headers []headerJSON    `json:"headers"`
			Body    json.RawMessage `json:"body"`
		} `json:"records"`
		Match *uint64 `json:"match_seq_num"`
		Token string  `json:"fencing_token"`
	}
	f, err := formatOf(q.URL.Query())
	if err != nil {
		return nil, err
	}
	if err := readJSON(q, &body); err != nil {
		return nil, err
	}
	a := sequencer.Append{Records: make([]nova.Record, len(body.Records))}
	a.Token = body.Token
	if body.Match != nil {
		a.HasMatch, a.Match = true, *body.Match
	}
	for i, r := range body.Records {
		if a.Records[i].Body, err = f.body(r.Body); err != nil {
			return nil, err
		}
		for _, h := range r.Headers {
			a.Records[i].Headers = append(a.Records[i].Headers, nova.Header(h))
		}
	}
	ctx, cancel := s.unary(q)
	defer cancel()
	r, err := s.append(ctx, st, a)
	if err != nil {
		return nil, err
	}
	return map[string]positionJSON{"start": jsonOf(r.Start), "end": jsonOf(r.End), "tail": jsonOf(r.Tail)}, nil
}

func (s *Server) getTail(_ http.ResponseWriter, q *http.Request) (any, error) {
	st, err := s.streamOf(q, VerbRead)
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.unary(q)
	defer cancel()
	now, err := st.Stands(ctx)
	return map[string]positionJSON{"tail": jsonOf(now.Tail)}, err
}

func (s *Server) getFence(_ http.ResponseWriter, q *http.Request) (any, error) {
	st, err := s.streamOf(q, VerbRead)
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.unary(q)
	defer cancel()
	now, err := st.Stands(ctx)
	return map[string]string{"fencing_token": now.Token}, err
}

func (s *Server) putFence(_ http.ResponseWriter, q *http.Request) (any, error) {
	var body struct {
		Token *string `json:"fencing_token"`
	}
	if err := readJSON(q, &body); err != nil {
		return nil, err
	}
	if body.Token == nil {
		return nil, fmt.Errorf("%w: fencing_token is missing; DELETE clears the token", nova.ErrInvalid)
	}
	return s.fence(q, *body.Token)
}

func (s *Server) deleteFence(_ http.ResponseWriter, q *http.Request) (any, error) {
	return s.fence(q, "")
}

func (s *Server) fence(q *http.Request, token string) (any, error) {
	st, err := s.streamOf(q, VerbFence)
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.unary(q)
	defer cancel()
	tail, err := st.Fence(ctx, token)
	return map[string]positionJSON{"tail": jsonOf(tail)}, err
}

func (s *Server) trimRecords(_ http.ResponseWriter, q *http.Request) (any, error) {
	st, err := s.streamOf(q, VerbAdmin)
	if err != nil {
		return nil, err
	}
	before, err := strconv.ParseUint(q.URL.Query().Get("before"), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%w: before is the number of the first record that is kept", nova.ErrInvalid)
	}
	ctx, cancel := s.unary(q)
	defer cancel()
	first, err := st.Trim(ctx, before)
	return map[string]positionJSON{"first": jsonOf(first)}, changing(err)
}

// retentionJSON is what is removed from a stream's beginning. An age is text, as "72h".
type retentionJSON struct {
	MaxAge     string `json:"max_age,omitempty"`
	MaxBytes   uint64 `json:"max_bytes,omitempty"`
	MaxRecords uint64 `json:"max_records,omitempty"`
}

// streamJSON is a stream as lists have it.
type streamJSON struct {
	Addr      string         `json:"addr"`
	Created   time.Time      `json:"created"`
	Replicas  int            `json:"replicas"`
	Memory    bool           `json:"memory"`
	Retention *retentionJSON `json:"retention,omitempty"`
	Bytes     uint64         `json:"bytes"`
}

func streamJSONOf(d jslog.Description) streamJSON {
	s := streamJSON{Addr: d.Addr.String(), Created: d.Created, Replicas: d.Replicas, Memory: d.Memory, Bytes: d.Bytes}
	if r := d.Retention; r != (jslog.Retention{}) {
		s.Retention = &retentionJSON{MaxBytes: r.MaxBytes, MaxRecords: r.MaxRecords}
		if r.MaxAge > 0 {
			s.Retention.MaxAge = r.MaxAge.String()
		}
	}
	return s
}

func (s *Server) putStream(w http.ResponseWriter, q *http.Request) (any, error) {
	a := addrOf(q)
	if err := a.Validate(); err != nil {
		return nil, err
	}
	if err := s.may(q.Context(), VerbAdmin, a.Namespace); err != nil {
		return nil, err
	}
	var body struct {
		Replicas  int            `json:"replicas"`
		Memory    bool           `json:"memory"`
		Retention *retentionJSON `json:"retention"`
	}
	if q.ContentLength != 0 {
		if err := readJSON(q, &body); err != nil {
			return nil, err
		}
	}
	c := jslog.Config{Replicas: body.Replicas, Memory: body.Memory}
	if r := body.Retention; r != nil {
		c.Retention.MaxBytes, c.Retention.MaxRecords = r.MaxBytes, r.MaxRecords
		if r.MaxAge != "" {
			age, err := time.ParseDuration(r.MaxAge)
			if err != nil {
				return nil, fmt.Errorf("%w: max_age: %w", nova.ErrInvalid, err)
			}
			c.Retention.MaxAge = age
		}
	}
	ctx, cancel := s.unary(q)
	defer cancel()
	if err := s.node.Create(ctx, a, c); err != nil {
		return nil, changing(err)
	}
	writeJSON(w, http.StatusCreated, map[string]string{"addr": a.String()})
	return nil, nil
}

func (s *Server) getStream(_ http.ResponseWriter, q *http.Request) (any, error) {
	st, err := s.streamOf(q, VerbRead)
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.unary(q)
	defer cancel()
	d, err := describe(ctx, st)
	return struct {
		streamJSON
		First        positionJSON `json:"first"`
		Tail         positionJSON `json:"tail"`
		FencingToken string       `json:"fencing_token"`
		Leader       string       `json:"leader"`
	}{streamJSONOf(d.Description), jsonOf(d.first), jsonOf(d.tail), d.token, d.leader}, err
}

func (s *Server) deleteStream(w http.ResponseWriter, q *http.Request) (any, error) {
	a := addrOf(q)
	if err := s.may(q.Context(), VerbAdmin, a.Namespace); err != nil {
		return nil, err
	}
	ctx, cancel := s.unary(q)
	defer cancel()
	if err := s.node.Delete(ctx, a); err != nil {
		return nil, changing(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil, nil
}

func (s *Server) listStreams(_ http.ResponseWriter, q *http.Request) (any, error) {
	ctx, cancel := s.unary(q)
	defer cancel()
	all, err := s.list(ctx, q.PathValue("namespace"))
	out := make([]streamJSON, len(all))
	for i, d := range all {
		out[i] = streamJSONOf(d)
	}
	return map[string][]streamJSON{"streams": out}, err
}
