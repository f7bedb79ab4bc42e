package natskv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// api sends JetStream API requests over one connection, each with a deadline.
type api struct {
	nc      *nats.Conn
	prefix  string // ends with a dot
	timeout time.Duration
}

func newAPI(js jetstream.JetStream, timeout time.Duration) api {
	o := js.Options()
	prefix := jetstream.DefaultAPIPrefix
	switch {
	case o.Domain != "":
		prefix = "$JS." + o.Domain + ".API."
	case o.APIPrefix != "":
		prefix = o.APIPrefix
		if prefix[len(prefix)-1] != '.' {
			prefix += "."
		}
	}
	return api{nc: js.Conn(), prefix: prefix, timeout: timeout}
}

func (a api) isDefault() bool { return a.prefix == jetstream.DefaultAPIPrefix }

// errUnparsable is an answer that is not the JSON that was expected.
var errUnparsable = errors.New("answer can't be parsed")

// request sends body as JSON and reads the answer into out. What the server refuses is an *APIError.
func (a api) request(ctx context.Context, subject string, body, out any) error {
	data, err := json.Marshal(body)
	if body == nil {
		data, err = nil, nil
	}
	if err != nil {
		return fmt.Errorf("encode %s: %w", subject, err)
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	msg, err := a.exchange(ctx, &nats.Msg{Subject: a.prefix + subject, Data: data})
	if err != nil {
		return fmt.Errorf("request %s: %w", subject, err)
	}
	var refusal struct {
		Error *APIError `json:"error"`
	}
	if err := json.Unmarshal(msg.Data, &refusal); err != nil {
		return fmt.Errorf("request %s: %w: %w", subject, errUnparsable, err)
	}
	if refusal.Error != nil {
		return refusal.Error
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(msg.Data, out); err != nil {
		return fmt.Errorf("request %s: %w: %w", subject, errUnparsable, err)
	}
	return nil
}

// exchange sends one message and waits for its answer. A connection that breaks meanwhile ends the wait, since an answer
// is lost with it: without that, a server's restart would cost the whole deadline.
func (a api) exchange(ctx context.Context, msg *nats.Msg) (*nats.Msg, error) {
	ctx, stop := a.whileConnected(ctx)
	defer stop()
	reply, err := a.nc.RequestMsgWithContext(ctx, msg)
	if err != nil && context.Cause(ctx) == nats.ErrDisconnected {
		err = nats.ErrDisconnected
	}
	return reply, err
}

// whileConnected is ctx, which also ends when the connection breaks, with nats.ErrDisconnected as its cause. stop frees it.
func (a api) whileConnected(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	broken := a.nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case _, open := <-broken:
			if open {
				cancel(nats.ErrDisconnected)
			}
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		cancel(nil)
		a.nc.RemoveStatusListener(broken)
		wg.Wait()
	}
}

func (a api) streamInfo(ctx context.Context, stream string) (*jetstream.StreamInfo, error) {
	var info jetstream.StreamInfo
	if err := a.request(ctx, "STREAM.INFO."+stream, nil, &info); err != nil {
		return nil, err
	}
	return &info, nil
}

// storedMsg is a message as STREAM.MSG.GET answers, which only the stream's leader does.
type storedMsg struct {
	Subject string    `json:"subject"`
	Seq     uint64    `json:"seq"`
	Header  []byte    `json:"hdrs"`
	Data    []byte    `json:"data"`
	Time    time.Time `json:"time"`
}

type msgGetRequest struct {
	Seq     uint64 `json:"seq,omitempty"`
	LastFor string `json:"last_by_subj,omitempty"`
}

// message reads one message from the stream's leader; found is false when there is none.
func (a api) message(ctx context.Context, stream string, req msgGetRequest) (msg storedMsg, found bool, err error) {
	var reply struct {
		Message storedMsg `json:"message"`
	}
	err = a.request(ctx, "STREAM.MSG.GET."+stream, req, &reply)
	if apiCode(err) == codeNoMessage {
		return storedMsg{}, false, nil
	}
	return reply.Message, err == nil, err
}

// consumerConfig is the part of a consumer's settings that this package uses.
type consumerConfig struct {
	Name              string        `json:"name"`
	DeliverPolicy     string        `json:"deliver_policy"`
	OptStartSeq       uint64        `json:"opt_start_seq,omitempty"`
	AckPolicy         string        `json:"ack_policy"`
	ReplayPolicy      string        `json:"replay_policy"`
	FilterSubject     string        `json:"filter_subject,omitempty"`
	FilterSubjects    []string      `json:"filter_subjects,omitempty"`
	HeadersOnly       bool          `json:"headers_only,omitempty"`
	InactiveThreshold time.Duration `json:"inactive_threshold"`
	Replicas          int           `json:"num_replicas"`
	MemoryStorage     bool          `json:"mem_storage"`
}

// consumerState is what is read of a consumer.
type consumerState struct {
	Delivered struct {
		Consumer uint64 `json:"consumer_seq"`
		Stream   uint64 `json:"stream_seq"`
	} `json:"delivered"`
	NumPending uint64 `json:"num_pending"`
	NumWaiting int    `json:"num_waiting"` // requests that it has not fulfilled
}

func (a api) createConsumer(ctx context.Context, stream string, c consumerConfig) (state consumerState, err error) {
	subject := "CONSUMER.CREATE." + stream + "." + c.Name
	if c.FilterSubject != "" {
		subject += "." + c.FilterSubject
	}
	req := struct {
		Stream string         `json:"stream_name"`
		Config consumerConfig `json:"config"`
		Action string         `json:"action"`
	}{stream, c, "create"}
	err = a.request(ctx, subject, req, &state)
	return state, err
}

func (a api) consumerInfo(ctx context.Context, stream, name string) (state consumerState, err error) {
	err = a.request(ctx, "CONSUMER.INFO."+stream+"."+name, nil, &state)
	return state, err
}

func (a api) deleteConsumer(ctx context.Context, stream, name string) error {
	return a.request(ctx, "CONSUMER.DELETE."+stream+"."+name, nil, nil)
}
