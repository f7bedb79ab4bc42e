package natskv

import (
	"fmt"
	"regexp"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/runtime/kv"
)

// EmptyPut is what a message without KV headers and without bytes means.
type EmptyPut uint8

const (
	// EmptyPutIsValue: a value of no bytes, which a message of defaults is on the wire.
	EmptyPutIsValue EmptyPut = iota
	// EmptyPutIsTombstone: a delete, in buckets that the Rust library slipstream writes.
	EmptyPutIsTombstone
)

// Switch is a setting that a server may not have.
type Switch uint8

const (
	// Unset is the setting's own default.
	Unset Switch = iota
	// WhereSupported turns it on if the server has it.
	WhereSupported
	// Off leaves it off.
	Off
	// Required refuses to create the bucket on a server without it.
	Required
)

// BucketConfig says how a bucket is created, and how this process reads it. The first group applies at creation only:
// an existing bucket is used as it is, and Bucket.Differences tells what it has instead.
type BucketConfig struct {
	Description string
	// Storage is file (the zero value) or memory.
	Storage jetstream.StorageType
	// History is how many messages of a key are kept, 1 to 64; 0 is 1.
	History int
	// MaxAge is how long a message is kept; 0 is for good.
	MaxAge time.Duration
	// MaxBytes bounds the bucket; 0 is no limit.
	MaxBytes int64
	// MaxValueSize bounds one value, in bytes; 0 is no limit of the bucket's own.
	MaxValueSize int32
	// DiscardOld evicts the oldest messages of a full bucket. The default refuses new ones.
	DiscardOld bool
	// Replicas is 1 to 5; 0 is 1.
	Replicas  int
	Placement *jetstream.Placement
	// Compression stores with S2.
	Compression bool
	// MarkerTTL, when not 0, makes the server write a marker for a value that ages out, and keep it that long.
	MarkerTTL time.Duration
	// MessageTTL lets a put name its own TTL. A bucket that allows it may lose current values, so it is off by default,
	// and WhereSupported with a MarkerTTL (docs/adr/0006-supersession-is-no-expiry.md).
	MessageTTL Switch
	// AtomicPublish lets several messages be stored as one, which batches need; by default WhereSupported.
	AtomicPublish Switch
	// Sealed refuses, for good, everything that could take a delete marker out of the log: purges, rollups and per-message
	// TTLs.
	Sealed   bool
	Metadata map[string]string

	// TurnOnAtomicPublish also lets an existing bucket that does not take batches take them from now on: the only setting of
	// one that is ever changed. It needs the right to update the stream, and a server that has it; else opening fails. An
	// edit of other settings by somebody else in the same moment may be lost.
	TurnOnAtomicPublish bool

	// MaxBatch is how many operations one batch may have: the server's own limit, which it does not tell; default
	// kv.MaxBatch, as the server's.
	MaxBatch int
	// EmptyPut is how this process reads puts without bytes.
	EmptyPut EmptyPut
	// Timeout bounds each operation; default 30 s.
	Timeout time.Duration
	// Watch tunes watches and listings.
	Watch WatchConfig
}

// WatchConfig tunes a watch. The zero value is the measured default.
type WatchConfig struct {
	// Batch is the messages of one pull request, of which two are in flight; default 10,000 (5,000 hydrated
	// a million keys 7 % slower, 20,000 no faster). It bounds what a watch holds.
	Batch int
	// MaxBytes bounds one pull request in bytes; default 8 MiB.
	MaxBytes int
	// Heartbeat is how often a quiet server says that it is there; default 5 s. After two and a half of silence the
	// watch is lost.
	Heartbeat time.Duration
	// ProbeEvery is how often a quiet watch asks how far the log has moved; default 5 s.
	ProbeEvery time.Duration
	// InactiveThreshold is how long the server keeps the consumer of a process that went away; default 5 min.
	InactiveThreshold time.Duration
}

var bucketName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

func (c BucketConfig) withDefaults() BucketConfig {
	c.History = max(c.History, 1)
	c.Replicas = max(c.Replicas, 1)
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	if c.AtomicPublish == Unset {
		c.AtomicPublish = WhereSupported
	}
	if c.MessageTTL == Unset {
		c.MessageTTL = Off
		if c.MarkerTTL != 0 {
			c.MessageTTL = WhereSupported
		}
	}
	if c.MaxBatch == 0 {
		c.MaxBatch = kv.MaxBatch
	}
	w := &c.Watch
	if w.Batch == 0 {
		w.Batch = 10_000
	}
	if w.MaxBytes == 0 {
		w.MaxBytes = 8 << 20
	}
	if w.Heartbeat == 0 {
		w.Heartbeat = 5 * time.Second
	}
	if w.ProbeEvery == 0 {
		w.ProbeEvery = 5 * time.Second
	}
	if w.InactiveThreshold == 0 {
		w.InactiveThreshold = 5 * time.Minute
	}
	return c
}

// Validate checks the settings that need no server.
func (c BucketConfig) Validate() error {
	switch {
	case c.History < 0 || c.History > jetstream.KeyValueMaxHistory:
		return fmt.Errorf("option History is %d; 1 to %d", c.History, jetstream.KeyValueMaxHistory)
	case c.Replicas < 0 || c.Replicas > 5:
		return fmt.Errorf("option Replicas is %d; 1 to 5", c.Replicas)
	case c.MaxAge < 0 || c.MaxBytes < 0 || c.MaxValueSize < 0 || c.Timeout < 0:
		return fmt.Errorf("options MaxAge, MaxBytes, MaxValueSize and Timeout are not negative")
	case c.MarkerTTL != 0 && c.MarkerTTL < time.Second:
		return fmt.Errorf("option MarkerTTL is %v; at least 1s, or 0 for no markers", c.MarkerTTL)
	case c.MarkerTTL != 0 && c.MessageTTL == Off:
		return fmt.Errorf("option MarkerTTL needs MessageTTL, which is off")
	case c.Sealed && c.MarkerTTL != 0:
		return fmt.Errorf("options Sealed and MarkerTTL exclude each other: a marker with a TTL leaves the log")
	case c.Sealed && c.MessageTTL != Off && c.MessageTTL != Unset:
		return fmt.Errorf("options Sealed and MessageTTL exclude each other: a marker with a TTL leaves the log")
	case c.TurnOnAtomicPublish && c.AtomicPublish == Off:
		return fmt.Errorf("option TurnOnAtomicPublish needs AtomicPublish, which is off")
	case c.MaxBatch < 0:
		return fmt.Errorf("option MaxBatch is %d; at least 1, or 0 for %d", c.MaxBatch, kv.MaxBatch)
	case c.Watch.Batch < 0 || c.Watch.MaxBytes < 0:
		return fmt.Errorf("options Watch.Batch and Watch.MaxBytes are not negative")
	case c.Watch.Heartbeat < 0 || c.Watch.Heartbeat > 30*time.Second:
		return fmt.Errorf("option Watch.Heartbeat is %v; at most 30s", c.Watch.Heartbeat)
	}
	return nil
}

// streamConfig is the bucket as JetStream stores it.
func (c BucketConfig) streamConfig(name string) jetstream.StreamConfig {
	s := jetstream.StreamConfig{
		Name:                   streamPrefix + name,
		Description:            c.Description,
		Subjects:               []string{subjectPrefix + name + ".>"},
		Retention:              jetstream.LimitsPolicy,
		MaxMsgsPerSubject:      int64(c.History),
		MaxAge:                 c.MaxAge,
		MaxBytes:               -1,
		MaxMsgSize:             -1,
		MaxMsgs:                -1,
		MaxConsumers:           -1,
		Discard:                jetstream.DiscardNew,
		Storage:                c.Storage,
		Replicas:               c.Replicas,
		Placement:              c.Placement,
		AllowRollup:            !c.Sealed,
		DenyDelete:             true,
		DenyPurge:              c.Sealed,
		AllowDirect:            true,
		Duplicates:             2 * time.Minute,
		AllowMsgTTL:            c.MessageTTL == Required || c.MarkerTTL != 0,
		AllowAtomicPublish:     c.AtomicPublish == Required,
		SubjectDeleteMarkerTTL: c.MarkerTTL,
		Metadata:               c.Metadata,
	}
	if c.MaxBytes > 0 {
		s.MaxBytes = c.MaxBytes
	}
	if c.MaxValueSize > 0 {
		s.MaxMsgSize = c.MaxValueSize
	}
	if c.DiscardOld {
		s.Discard = jetstream.DiscardOld
	}
	if c.MaxAge > 0 {
		s.Duplicates = min(s.Duplicates, c.MaxAge)
	}
	if c.Compression {
		s.Compression = jetstream.S2Compression
	}
	return s
}
