package natskv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

const (
	streamPrefix  = "KV_"
	subjectPrefix = "$KV."
)

// Bucket is one JetStream KV bucket. It is safe for concurrent use and implements kv.Bucket.
type Bucket struct {
	api         api
	name        string
	stream      string
	prefix      string // of the subjects of stored keys
	putPrefix   string // of the subjects that writes go to
	cfg         BucketConfig
	differences []Difference
}

var _ kv.Bucket = (*Bucket)(nil)

// Difference is one setting that an existing bucket has otherwise than asked.
type Difference struct {
	Setting    string
	Want, Have string
}

func (d Difference) String() string {
	return fmt.Sprintf("%s: want %s, have %s", d.Setting, d.Want, d.Have)
}

// Open opens a bucket, and creates it with cfg if it is absent. An existing one is used as it is; see Differences.
func Open(ctx context.Context, js jetstream.JetStream, name string, cfg BucketConfig) (*Bucket, error) {
	b, err := newBucket(js, name, cfg)
	if err != nil {
		return nil, err
	}
	info, err := b.api.streamInfo(ctx, b.stream)
	if apiCode(err) == codeStreamNotFound {
		info, err = b.create(ctx, js)
	}
	if err != nil {
		return nil, fmt.Errorf("open: %w", asBucketError(name, err))
	}
	b.adopt(info)
	return b, nil
}

// Bind opens a bucket that exists: else an error that matches kv.ErrBucketNotFound.
func Bind(ctx context.Context, js jetstream.JetStream, name string, cfg BucketConfig) (*Bucket, error) {
	b, err := newBucket(js, name, cfg)
	if err != nil {
		return nil, err
	}
	info, err := b.api.streamInfo(ctx, b.stream)
	if err != nil {
		return nil, fmt.Errorf("bind: %w", asBucketError(name, err))
	}
	b.adopt(info)
	return b, nil
}

func newBucket(js jetstream.JetStream, name string, cfg BucketConfig) (*Bucket, error) {
	if js == nil || js.Conn() == nil {
		return nil, errors.New("open bucket: no JetStream; is the connection up?")
	}
	if !bucketName.MatchString(name) {
		return nil, fmt.Errorf("bucket name %q: allowed are A-Z a-z 0-9 - _", name)
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("bucket %q: config: %w", name, err)
	}
	cfg = cfg.withDefaults()
	return &Bucket{api: newAPI(js, cfg.Timeout), name: name, stream: streamPrefix + name, cfg: cfg}, nil
}

// adopt takes over what the stream says: a mirror keeps its origin's subjects, and is written through it.
func (b *Bucket) adopt(info *jetstream.StreamInfo) {
	b.prefix = subjectPrefix + b.name + "."
	b.putPrefix = b.prefix
	viaAPI := !b.api.isDefault()
	if m := info.Config.Mirror; m != nil {
		origin := strings.TrimPrefix(m.Name, streamPrefix)
		b.prefix = subjectPrefix + origin + "."
		b.putPrefix = b.prefix
		if m.External != nil && m.External.APIPrefix != "" {
			b.putPrefix = m.External.APIPrefix + "." + b.prefix
			viaAPI = false
		}
	}
	if viaAPI {
		b.putPrefix = b.api.prefix + b.putPrefix
	}
	b.differences = differences(b.cfg, b.cfg.streamConfig(b.name), info.Config)
}

// Name is the bucket's name.
func (b *Bucket) Name() string { return b.name }

// Differences are the settings that the bucket had otherwise than the config when it was opened.
func (b *Bucket) Differences() []Difference { return append([]Difference(nil), b.differences...) }

// Info reads the log's identity and bounds from its leader.
func (b *Bucket) Info(ctx context.Context) (kv.LogInfo, error) {
	info, err := b.api.streamInfo(ctx, b.stream)
	if err != nil {
		return kv.LogInfo{}, fmt.Errorf("log info: %w", asBucketError(b.name, err))
	}
	return b.logInfo(info), nil
}

func (b *Bucket) logInfo(info *jetstream.StreamInfo) kv.LogInfo {
	return kv.LogInfo{
		Bucket:     b.name,
		Created:    info.Created,
		First:      info.State.FirstSeq,
		Last:       info.State.LastSeq,
		Messages:   info.State.Msgs,
		Subjects:   info.State.NumSubjects,
		ServerTime: info.TimeStamp,
		Retention: kv.Retention{
			EvictsCurrentValues: evictsCurrentValues(&info.Config),
			First:               info.State.FirstSeq,
		},
	}
}

// evictsCurrentValues reports whether retention can take a key's current value.
func evictsCurrentValues(c *jetstream.StreamConfig) bool {
	return c.MaxAge > 0 || c.AllowMsgTTL || evictsByLimit(c)
}

func evictsByLimit(c *jetstream.StreamConfig) bool {
	return c.Discard == jetstream.DiscardOld && (c.MaxBytes > 0 || c.MaxMsgs > 0)
}

// ageOnly reports whether age is the only way in which retention can take a current value.
func ageOnly(c *jetstream.StreamConfig) bool {
	return c.MaxAge > 0 && !c.AllowMsgTTL && !evictsByLimit(c)
}

// gapIsYoung reports whether nothing can have aged out of a gap whose messages were all written after writtenAt.
func gapIsYoung(info *jetstream.StreamInfo, writtenAt int64) bool {
	if info.TimeStamp.IsZero() {
		return false
	}
	return protocol.GapHoldsNoEviction(protocol.GapAge{
		AgeOnly:   ageOnly(&info.Config),
		MaxAge:    info.Config.MaxAge.Nanoseconds(),
		WrittenAt: writtenAt,
		Now:       info.TimeStamp.UnixNano(),
	})
}

// kindToOp is the update that an event of the log is.
func kindToOp(k protocol.EventKind) kv.Op {
	switch k {
	case protocol.EventDelete:
		return kv.OpDelete
	case protocol.EventPurge:
		return kv.OpPurge
	case protocol.EventAgedOut:
		return kv.OpAgedOut
	default:
		return kv.OpPut
	}
}

// deadline bounds one operation.
func (b *Bucket) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, b.cfg.Timeout)
}

// pause waits for d or the context's end.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
