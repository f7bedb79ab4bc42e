package natskv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
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

	js      jetstream.JetStream
	opened  atomic.Bool
	opening chan struct{} // holds one token: whoever has it opens

	// batchesOn numbers the connection over which the stream said last that it takes batches; 0 for none.
	batchesOn atomic.Uint64
	// checks counts the checks of the fence record that were sent.
	checks atomic.Uint64
	// single: the log is one server's, which checks and stores in one step. tail is where a fenced write was last stored.
	single bool
	tail   atomic.Pointer[protocol.FenceTail]
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
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// Lazy is a bucket that its first use opens, and creates with cfg if it is absent: for a node that has to start, and
// to serve what it holds, while the server is away. Until then every use fails, and tries again.
func Lazy(js jetstream.JetStream, name string, cfg BucketConfig) (*Bucket, error) {
	return newBucket(js, name, cfg)
}

// ready opens the bucket unless it is open.
func (b *Bucket) ready(ctx context.Context) error {
	if b.opened.Load() {
		return nil
	}
	select {
	case <-b.opening:
	case <-ctx.Done():
		return fmt.Errorf("open: bucket %q: %w", b.name, ctx.Err())
	}
	defer func() { b.opening <- struct{}{} }()
	if b.opened.Load() {
		return nil
	}
	if err := b.connected(ctx); err != nil {
		return fmt.Errorf("open: %w", err)
	}
	info, err := b.api.streamInfo(ctx, b.stream)
	if apiCode(err) == codeStreamNotFound {
		info, err = b.create(ctx, b.js)
	}
	if err == nil {
		info, err = b.turnOn(ctx, info)
	}
	if err != nil {
		return fmt.Errorf("open: %w", asBucketError(b.name, err))
	}
	b.adopt(info)
	b.opened.Store(true)
	return nil
}

// connectWait is how long a use waits for a connection that is being made, before it says that there is none.
const connectWait = time.Second

// connected waits a little for the connection, so that a server that is away is said so at once, and not when an
// operation's deadline has passed.
func (b *Bucket) connected(ctx context.Context) error {
	nc := b.api.nc
	if nc.IsConnected() {
		return nil
	}
	changed := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer nc.RemoveStatusListener(changed)
	if nc.IsConnected() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, connectWait)
	defer cancel()
	select {
	case <-changed:
	case <-ctx.Done():
	}
	if nc.IsConnected() {
		return nil
	}
	return fmt.Errorf("bucket %q: %w: %v", b.name, ErrNotConnected, nc.Status())
}

// Bind opens a bucket that exists: else an error that matches kv.ErrBucketNotFound.
func Bind(ctx context.Context, js jetstream.JetStream, name string, cfg BucketConfig) (*Bucket, error) {
	b, err := newBucket(js, name, cfg)
	if err != nil {
		return nil, err
	}
	info, err := b.api.streamInfo(ctx, b.stream)
	if err == nil {
		info, err = b.turnOn(ctx, info)
	}
	if err != nil {
		return nil, fmt.Errorf("bind: %w", asBucketError(name, err))
	}
	b.adopt(info)
	b.opened.Store(true)
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
	b := &Bucket{api: newAPI(js, cfg.Timeout), name: name, stream: streamPrefix + name, cfg: cfg, js: js, opening: make(chan struct{}, 1)}
	b.opening <- struct{}{}
	return b, nil
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
	b.single = info.Config.Replicas <= 1
	b.differences = differences(b.cfg, b.cfg.streamConfig(b.name), info.Config)
}

// Name is the bucket's name.
func (b *Bucket) Name() string { return b.name }

// Differences are the settings that the bucket had otherwise than the config when it was opened.
// There are none to tell of a Lazy bucket that has not been used.
func (b *Bucket) Differences() []Difference {
	if !b.opened.Load() {
		return nil
	}
	return append([]Difference(nil), b.differences...)
}

// Info reads the log's identity and bounds from its leader.
func (b *Bucket) Info(ctx context.Context) (kv.LogInfo, error) {
	if err := b.ready(ctx); err != nil {
		return kv.LogInfo{}, err
	}
	info, err := b.api.streamInfo(ctx, b.stream)
	if err != nil {
		return kv.LogInfo{}, fmt.Errorf("log info: %w", asBucketError(b.name, err))
	}
	return b.logInfo(info), nil
}

func (b *Bucket) logInfo(info *jetstream.StreamInfo) kv.LogInfo {
	maxBytes, maxMessages := limits(&info.Config)
	return kv.LogInfo{
		Bucket:   b.name,
		Created:  info.Created,
		First:    info.State.FirstSeq,
		Last:     info.State.LastSeq,
		Messages: info.State.Msgs,
		Subjects: info.State.NumSubjects,
		Bytes:    info.State.Bytes,
		MaxBytes: maxBytes, MaxMessages: maxMessages,
		ServerTime: info.TimeStamp,
		Retention: kv.Retention{
			EvictsCurrentValues: evictsCurrentValues(&info.Config),
			EvictsInside:        info.Config.AllowMsgTTL,
			First:               info.State.FirstSeq,
			AgeLimit:            ageLimit(&info.Config),
		},
		Markers: protocol.MarkerRules{
			Purge:      !info.Config.DenyPurge,
			Delete:     !info.Config.DenyDelete,
			Rollup:     info.Config.AllowRollup,
			MessageTTL: info.Config.AllowMsgTTL,
			MarkerTTL:  info.Config.SubjectDeleteMarkerTTL.Nanoseconds(),
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

// limits are those that make the log discard its oldest messages, where nothing else does.
func limits(c *jetstream.StreamConfig) (bytes, messages uint64) {
	if !evictsByLimit(c) || c.MaxAge > 0 || c.AllowMsgTTL {
		return 0, 0
	}
	return uint64(max(c.MaxBytes, 0)), uint64(max(c.MaxMsgs, 0))
}

// ageOnly reports whether age is the only way in which retention can take a current value.
func ageOnly(c *jetstream.StreamConfig) bool {
	return c.MaxAge > 0 && !c.AllowMsgTTL && !evictsByLimit(c)
}

// ageLimit is how long a message is kept where age is the only way to take one; else 0.
func ageLimit(c *jetstream.StreamConfig) time.Duration {
	if !ageOnly(c) {
		return 0
	}
	return c.MaxAge
}

// gapIsYoung reports whether nothing can have aged out of a gap whose messages were all written after writtenAt, on a log
// whose age limit was noted, in nanoseconds, when that message was read.
func gapIsYoung(info *jetstream.StreamInfo, writtenAt, noted int64) bool {
	if info.TimeStamp.IsZero() {
		return false
	}
	return protocol.GapHoldsNoEviction(protocol.GapAge{
		AgeOnly:   ageOnly(&info.Config),
		MaxAge:    info.Config.MaxAge.Nanoseconds(),
		Noted:     noted,
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
