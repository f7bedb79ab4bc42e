package streamchaos

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/internal/nova/frame"
)

// entry is one frame of a log, at its sequence.
type entry struct {
	seq uint64
	frame.Frame
}

// image is all that one replica of a log holds.
type image struct {
	replica string
	entries []entry
	// control are the sequences of the newest takeover's messages, in order.
	control []uint64
	digest  uint64 // of all messages, as they lie there
	last    uint64 // sequence
	wrong   []string
}

// scan reads every message of a log from one replica, up to the log's last sequence as it is now. JetStream puts an ephemeral
// consumer on a replica of its choice; the image says on which.
func scan(ctx context.Context, js jetstream.JetStream, name string) (*image, error) {
	s, err := js.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("scan %s: %w", name, err)
	}
	last := s.CachedInfo().State.LastSeq
	c, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy, InactiveThreshold: time.Minute, MemoryStorage: true, Replicas: 1})
	if err != nil {
		return nil, fmt.Errorf("scan %s: %w", name, err)
	}
	defer func() { _ = s.DeleteConsumer(context.WithoutCancel(ctx), c.CachedInfo().Name) }()
	img := &image{}
	if at := c.CachedInfo().Cluster; at != nil {
		img.replica = at.Leader
	}
	msgs, err := c.Messages()
	if err != nil {
		return nil, fmt.Errorf("scan %s: %w", name, err)
	}
	defer msgs.Stop()
	digest := fnv.New64a()
	for img.last < last {
		m, err := msgs.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, fmt.Errorf("scan %s: at sequence %d of %d: %w", name, img.last, last, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, fmt.Errorf("scan %s: %w", name, err)
		}
		if meta.Sequence.Stream <= img.last {
			return nil, fmt.Errorf("scan %s: sequence %d after %d", name, meta.Sequence.Stream, img.last)
		}
		img.last = meta.Sequence.Stream
		_, _ = digest.Write(binary.LittleEndian.AppendUint64(nil, img.last))
		_, _ = digest.Write([]byte(m.Subject()))
		_, _ = digest.Write(m.Data())
		img.take(m.Subject(), img.last, m.Data())
	}
	img.digest = digest.Sum64()
	return img, nil
}

func (img *image) take(subject string, seq uint64, data []byte) {
	switch {
	case strings.HasSuffix(subject, ".r"):
		f, err := frame.Parse(data)
		if err != nil {
			img.wrong = append(img.wrong, fmt.Sprintf("sequence %d: %v", seq, err))
			return
		}
		img.entries = append(img.entries, entry{seq: seq, Frame: f})
	case strings.HasSuffix(subject, ".c.renewal"):
	case strings.Contains(subject, ".c."):
		img.control = append(img.control, seq)
	default:
		img.wrong = append(img.wrong, fmt.Sprintf("sequence %d has subject %q", seq, subject))
	}
}

// scanAll reads a log from each of its replicas.
func scanAll(ctx context.Context, js jetstream.JetStream, k streamKind) (all []*image, err error) {
	found := map[string]bool{}
	for len(found) < int(k.replicas) {
		var img *image
		err = until(ctx, "scan", func(ctx context.Context) (err error) {
			img, err = scan(ctx, js, k.jetStream())
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("replicas %v: %w", found, err)
		}
		if img.replica == "" && k.replicas > 1 {
			return nil, errors.New("the consumer does not say on which replica it is")
		}
		if !found[img.replica] {
			found[img.replica] = true
			all = append(all, img)
		}
	}
	return all, nil
}
