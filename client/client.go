// Package client appends to streams and reads them. Writers that collide are kept apart in two ways: a batch may say which
// number its first record must get, and a fencing token says who may write at all. docs/streams.md tells when to use which.
package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"connectrpc.com/connect"

	novav1 "github.com/typedfold/fold/gen/go/nova/v1"
	"github.com/typedfold/fold/gen/go/nova/v1/novav1connect"
	"github.com/typedfold/fold/internal/nova"
)

// Tail is the end of a stream: the number that the next record gets, and the time of the last one in milliseconds of Unix
// time.
type Tail struct {
	SeqNum    uint64
	Timestamp int64
}

// Header is one name and value of a record. A name is UTF-8. Names may repeat.
type Header struct {
	Name  string
	Value []byte
}

// Record is what is appended. Its bytes must not change until the append has returned, or its ticket is settled.
type Record struct {
	Body    []byte
	Headers []Header
}

// Bodies are records without headers.
func Bodies(bodies ...[]byte) []Record {
	records := make([]Record, len(bodies))
	for i, b := range bodies {
		records[i].Body = b
	}
	return records
}

// AppendResult is where a batch lies.
type AppendResult struct {
	// Start is the number and time of its first record; End.SeqNum is one past its last one.
	Start, End Tail
	// Tail is the committed tail, which is not before End.
	Tail Tail
}

// Client talks to the servers of streams. It is safe for concurrent use.
type Client struct {
	rpc   novav1connect.DataPlaneServiceClient
	reads *reads
	token string // that one-shots present
	o     options
}

type options struct {
	http    connect.HTTPClient
	bearer  string
	tls     *tls.Config
	timeout time.Duration
}

// Option shapes a Client.
type Option func(*options)

// WithHTTPClient takes another HTTP client, which has to speak HTTP/2 for producers. Default: one of its own.
func WithHTTPClient(c connect.HTTPClient) Option { return func(o *options) { o.http = c } }

// WithBearerToken authenticates every call.
func WithBearerToken(token string) Option { return func(o *options) { o.bearer = token } }

// WithTLS is the TLS configuration for an https target.
func WithTLS(c *tls.Config) Option { return func(o *options) { o.tls = c } }

// WithTimeout bounds every call that is no producer and no read, and whose context has no earlier deadline; default 30 s.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// New is a client of the server, or of the servers behind a balancer, at target: http://host:port or https://host:port. It
// connects when it is first used.
func New(target string, opts ...Option) (*Client, error) {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("client: target %q is not http://host:port or https://host:port", target)
	}
	var o options
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	if o.timeout < 0 {
		return nil, invalid(fmt.Errorf("client: a negative timeout of %v", o.timeout))
	}
	o.timeout = cmp.Or(o.timeout, 30*time.Second)
	own := o.http == nil
	if own {
		protocols := new(http.Protocols)
		protocols.SetHTTP2(true)
		protocols.SetUnencryptedHTTP2(true)
		o.http = &http.Client{Transport: &http.Transport{
			Protocols: protocols, TLSClientConfig: o.tls, ForceAttemptHTTP2: true,
			HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second, MaxReadFrameSize: readFrame},
		}}
	}
	c := &Client{o: o}
	with := []connect.ClientOption{connect.WithInterceptors(bearer(o.bearer)),
		connect.WithCodec(codec{}), connect.WithAcceptCompression("gzip", nil, nil)} // it would cost more than all the rest
	c.rpc = novav1connect.NewDataPlaneServiceClient(once{o.http, own}, target, with...)
	c.reads = readsOf(once{o.http, own}, target, with...)
	return c, nil
}

// readFrame is how many bytes of a read a server sends at once: by the default of 16 KiB each of them costs it a system call,
// and the client one more to give room again.
const readFrame = 512 << 10

// bearer puts the token into every call.
type bearer string

func (b bearer) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, q connect.AnyRequest) (connect.AnyResponse, error) {
		if b != "" {
			q.Header().Set("Authorization", "Bearer "+string(b))
		}
		return next(ctx, q)
	}
}

func (b bearer) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		if b != "" {
			conn.RequestHeader().Set("Authorization", "Bearer "+string(b))
		}
		return conn
	}
}

func (b bearer) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// Append appends one batch to nova://namespace/stream, all of it or nothing. It is one attempt: nothing is sent twice. An
// error that matches ErrOutcomeUnknown says that the batch may have been appended; any other one, that it was not.
func (c *Client) Append(ctx context.Context, addr string, records ...Record) (*AppendResult, error) {
	return c.append(ctx, addr, nil, records)
}

// AppendMatch appends one batch whose first record must get the number expected; else it is a *SequenceError with Resent
// false, and nothing was appended. It is one attempt, as Append is.
func (c *Client) AppendMatch(ctx context.Context, addr string, expected uint64, records ...Record) (*AppendResult, error) {
	return c.append(ctx, addr, &expected, records)
}

func (c *Client) append(ctx context.Context, addr string, match *uint64, records []Record) (*AppendResult, error) {
	if err := checkAppend(addr, c.token, records); err != nil {
		return nil, fmt.Errorf("append to %s: %w", addr, err)
	}
	ctx, cancel, err := c.writing(ctx)
	defer cancel()
	if err != nil {
		return nil, fmt.Errorf("append to %s: %w", addr, err)
	}
	out, err := c.rpc.Append(ctx, connect.NewRequest(&novav1.AppendRequest{
		Addr: addr, FencingToken: c.token, Batch: &novav1.Batch{Records: wireRecords(records), MatchSeqNum: match},
	}))
	if err != nil {
		return nil, fmt.Errorf("append to %s: %w", addr, writeError(err, false))
	}
	return &AppendResult{Start: tailOf(out.Msg.GetStart()), End: tailOf(out.Msg.GetEnd()), Tail: tailOf(out.Msg.GetTail())}, nil
}

// writing bounds a call that writes. Under a context that has ended nothing is sent.
func (c *Client) writing(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if err := ctx.Err(); err != nil {
		return ctx, func() {}, said(ErrUnavailable, nova.NothingWritten+": "+err.Error(), err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.o.timeout)
	return ctx, cancel, nil
}

func checkAppend(addr, token string, records []Record) error {
	if _, err := nova.ParseAddr(addr); err != nil {
		return invalid(err)
	}
	if err := nova.CheckToken(token); err != nil {
		return invalid(err)
	}
	return checkRecords(records)
}

func checkRecords(records []Record) error {
	if err := nova.CheckSizes(len(records), bytesOf(records), nova.MaxBatchBytes); err != nil {
		return invalid(err)
	}
	for i := range records {
		for j := range records[i].Headers {
			if err := nova.CheckHeaderName(records[i].Headers[j].Name); err != nil {
				return invalid(err)
			}
		}
	}
	return nil
}

// Bytes is what the record counts for in the limits of batches: 8, two for each header, and the lengths of all its parts.
func (r *Record) Bytes() int {
	n := nova.RecordBytes + len(r.Body)
	for i := range r.Headers {
		n += nova.HeaderBytes + len(r.Headers[i].Name) + len(r.Headers[i].Value)
	}
	return n
}

func bytesOf(records []Record) int {
	n := 0
	for i := range records {
		n += records[i].Bytes()
	}
	return n
}

func wireRecords(records []Record) []*novav1.Record {
	values := make([]novav1.Record, len(records))
	out := make([]*novav1.Record, len(records))
	for i := range records {
		values[i].Body = records[i].Body
		for _, h := range records[i].Headers {
			values[i].Headers = append(values[i].Headers, &novav1.Header{Name: h.Name, Value: h.Value})
		}
		out[i] = &values[i]
	}
	return out
}

func tailOf(p *novav1.Position) Tail {
	return Tail{SeqNum: p.GetSeqNum(), Timestamp: p.GetTimestamp()}
}

// Tail is the stream's tail. It sees every append that has returned.
func (c *Client) Tail(ctx context.Context, addr string) (Tail, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.timeout)
	defer cancel()
	out, err := c.rpc.Tail(ctx, connect.NewRequest(&novav1.TailRequest{Addr: addr}))
	if err != nil {
		return Tail{}, fmt.Errorf("tail of %s: %w", addr, readError(err))
	}
	return tailOf(out.Msg.GetTail()), nil
}

// Trim removes the records before a number, as far as whole frames of the log go, and answers the first one that is left. It
// may be called again.
func (c *Client) Trim(ctx context.Context, addr string, before uint64) (first Tail, err error) {
	ctx, cancel, err := c.writing(ctx)
	defer cancel()
	if err != nil {
		return Tail{}, fmt.Errorf("trim %s: %w", addr, err)
	}
	out, err := c.rpc.Trim(ctx, connect.NewRequest(&novav1.TrimRequest{Addr: addr, SeqNum: before}))
	if err != nil {
		return Tail{}, fmt.Errorf("trim %s: %w", addr, writeError(err, false))
	}
	return tailOf(out.Msg.GetFirst()), nil
}

var errClosed = errors.New("producer closed")
