package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// createConsumer makes an ephemeral consumer over the bucket's last value of each key, and gives its name and how many
// messages it has to deliver.
func createConsumer(ctx context.Context, js jetstream.JetStream, cfg map[string]any) (name string, pending int, err error) {
	name = nats.NewInbox()[len("_INBOX."):]
	name = strings.ReplaceAll(name, ".", "")
	cfg["name"] = name
	cfg["deliver_policy"] = "last_per_subject"
	cfg["filter_subject"] = "$KV." + bucketName + ".>"
	cfg["ack_policy"] = "none"
	cfg["mem_storage"] = true
	cfg["num_replicas"] = 1
	cfg["inactive_threshold"] = int64(5 * time.Minute)
	body, err := json.Marshal(map[string]any{"stream_name": "KV_" + bucketName, "config": cfg})
	if err != nil {
		return "", 0, err
	}
	msg, err := js.Conn().RequestWithContext(ctx, fmt.Sprintf("$JS.API.CONSUMER.CREATE.KV_%s.%s.$KV.%s.>", bucketName, name, bucketName), body)
	if err != nil {
		return "", 0, err
	}
	var reply struct {
		Error   *struct{ Description string } `json:"error"`
		Pending int                           `json:"num_pending"`
	}
	if err := json.Unmarshal(msg.Data, &reply); err != nil {
		return "", 0, err
	}
	if reply.Error != nil {
		return "", 0, fmt.Errorf("create consumer: %s", reply.Error.Description)
	}
	return name, reply.Pending, nil
}

// barePush reads the bucket with a push consumer under flow control, and drops what it reads.
func barePush(ctx context.Context, _ options, js jetstream.JetStream) (result, error) {
	nc := js.Conn()
	m := startMeter()
	inbox := nats.NewInbox()
	done := make(chan struct{})
	got, want := 0, make(chan int, 1)
	total := -1
	sub, err := nc.Subscribe(inbox, func(msg *nats.Msg) {
		if len(msg.Data) == 0 && msg.Header.Get("Status") == "100" {
			if msg.Reply != "" {
				_ = msg.Respond(nil)
			}
			return
		}
		if got++; total < 0 {
			total = <-want
		}
		if got == total {
			close(done)
		}
	})
	if err != nil {
		return result{}, err
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return result{}, err
	}
	_, pending, err := createConsumer(ctx, js, map[string]any{
		"deliver_subject": inbox, "flow_control": true, "idle_heartbeat": int64(5 * time.Second),
	})
	if err != nil {
		return result{}, err
	}
	want <- pending
	select {
	case <-done:
		return m.done(pending), nil
	case <-ctx.Done():
		return result{}, ctx.Err()
	}
}

// barePull reads the bucket with two requests of 10,000 in flight, and drops what it reads.
func barePull(ctx context.Context, _ options, js jetstream.JetStream) (result, error) {
	nc := js.Conn()
	m := startMeter()
	name, pending, err := createConsumer(ctx, js, map[string]any{})
	if err != nil {
		return result{}, err
	}
	const batch = 10_000
	inbox := nats.NewInbox()
	next := fmt.Sprintf("$JS.API.CONSUMER.MSG.NEXT.KV_%s.%s", bucketName, name)
	ask := func() error {
		return nc.PublishRequest(next, inbox, []byte(fmt.Sprintf(`{"batch":%d,"expires":30000000000}`, batch)))
	}
	done := make(chan struct{})
	failed := make(chan error, 1)
	got := 0
	sub, err := nc.Subscribe(inbox, func(msg *nats.Msg) {
		if msg.Header != nil && msg.Header.Get("Status") != "" {
			return
		}
		got++
		if got%batch == 0 {
			if err := ask(); err != nil {
				failed <- err
			}
		}
		if got == pending {
			close(done)
		}
	})
	if err != nil {
		return result{}, err
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return result{}, err
	}
	for range 2 {
		if err := ask(); err != nil {
			return result{}, err
		}
	}
	select {
	case <-done:
		return m.done(pending), nil
	case err := <-failed:
		return result{}, err
	case <-ctx.Done():
		return result{}, ctx.Err()
	}
}

// watchAll is nats.go's own watcher into a plain map.
func watchAll(ctx context.Context, o options, js jetstream.JetStream) (result, error) {
	bucket, err := js.KeyValue(ctx, bucketName)
	if err != nil {
		return result{}, err
	}
	m := startMeter()
	w, err := bucket.WatchAll(ctx)
	if err != nil {
		return result{}, err
	}
	state := map[string]jetstream.KeyValueEntry{}
	for e := range w.Updates() {
		if e == nil {
			break
		}
		state[e.Key()] = e
	}
	r := m.done(len(state))
	if len(state) < o.keys {
		return result{}, fmt.Errorf("watch all gave %d of %d keys", len(state), o.keys)
	}
	return r, w.Stop()
}

func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	return s[min(int(q*float64(len(s))), len(s)-1)]
}
