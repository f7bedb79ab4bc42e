package jslog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/typedfold/fold/internal/nova"
)

// Keys of a stream's metadata in JetStream.
const (
	metaControls = "nova.controls"
	metaCreation = "nova.creation" // unlike any other: JetStream takes a second creation that says the same for none
	metaMaxAge   = "nova.max_age"
	metaMaxBytes = "nova.max_bytes"
	metaMaxCount = "nova.max_records"
)

// maxControls is bounded by the largest atomic batch of the server.
const maxControls = 1000

// Retention is what a stream's leader removes from its beginning. Zero values remove nothing. It is not JetStream's own,
// which could remove a control message, or the frame that says which number comes next.
type Retention struct {
	MaxAge     time.Duration
	MaxBytes   uint64 // of frames
	MaxRecords uint64
}

// Config makes a stream.
type Config struct {
	Replicas int  // default 1
	Memory   bool // else files
	// Window is how many messages a leader may have in flight; default 32.
	Window    int
	Retention Retention
}

// DefaultWindow is how many messages a leader has in flight.
const DefaultWindow = 32

func (c Config) controls() int {
	if c.Replicas <= 1 {
		return 1 // one server checks and stores in one step
	}
	return 2 * c.window()
}

func (c Config) window() int {
	if c.Window > 0 {
		return c.Window
	}
	return DefaultWindow
}

// Validate reports the first setting that makes no stream.
func (c Config) Validate() error {
	switch r := c.Retention; {
	case c.Replicas < 0 || c.Replicas > 5:
		return fmt.Errorf("%w: %d replicas; 1 to 5 are possible", nova.ErrInvalid, c.Replicas)
	case c.Window < 0 || c.controls() > maxControls:
		return fmt.Errorf("%w: a window of %d messages; at most %d are possible", nova.ErrInvalid, c.Window, maxControls/2)
	case r.MaxAge < 0:
		return fmt.Errorf("%w: a negative age of %v", nova.ErrInvalid, r.MaxAge)
	}
	return nil
}

var (
	// ErrBusy is a cluster that had no leader, or not enough servers, for a new stream.
	ErrBusy = errors.New("the cluster has no room for the stream now")
	// ErrMayExist is a creation that failed, of which an attempt had no answer, or only the first frame was not stored.
	ErrMayExist = errors.New("the stream may exist now")
)

// maxFirstSeq bounds the sequence that a log begins with. It is drawn, so that a leader of a stream that was deleted and
// made anew finds none of the sequences in the new log that it expects: their names are all that the two share. All
// sequences stay below 2^53, as some readers of JSON need.
const maxFirstSeq = 1 << 52

// Create makes a stream and its first frame, which says that the next number is 0, and notes that it has begun. When it fails
// without ErrMayExist, it has made none.
func Create(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, a nova.Addr, c Config) (*Log, error) {
	if err := errors.Join(a.Validate(), c.Validate()); err != nil {
		return nil, fmt.Errorf("create %s: %w", a, err)
	}
	storage := jetstream.FileStorage
	if c.Memory {
		storage = jetstream.MemoryStorage
	}
	subject := subjectOf(a)
	config := jetstream.StreamConfig{
		Name:               StreamName(a),
		Description:        "Nova stream " + a.String() + "; only its servers may publish",
		Subjects:           []string{subject + ".r", subject + ".c.*"},
		Retention:          jetstream.LimitsPolicy,
		Storage:            storage,
		Replicas:           max(c.Replicas, 1),
		MaxMsgs:            -1,
		MaxBytes:           -1,
		MaxMsgsPerSubject:  -1,
		MaxMsgSize:         -1,
		AllowRollup:        true,
		AllowMsgTTL:        true,
		AllowAtomicPublish: true,
		Metadata:           c.metadata(),
		FirstSeq:           rand.Uint64N(maxFirstSeq) + 1,
	}
	var s jetstream.Stream
	err := insist(ctx, func(ctx context.Context) (err error) {
		s, err = js.CreateStream(ctx, config)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", a, translate(err))
	}
	l, err := newLog(nc, js, s, a)
	if err != nil {
		return nil, err
	}
	config = s.CachedInfo().Config
	if err := insist(ctx, func(ctx context.Context) error { return l.begin(ctx, config) }); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMayExist, err)
	}
	return l, nil
}

// createFor bounds the attempts to create a stream in a cluster that has no leader or no room for it just then.
const createFor = 5 * time.Second

// insist does what may be done again, also when the cluster is busy for a moment: the same configuration a second time is no
// other stream, and its metadata make it unlike any other; the first frame is stored once. So an attempt that has got through
// without an answer is found by the next.
func insist(ctx context.Context, f func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, createFor)
	defer cancel()
	unanswered := false
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		asking, done := context.WithTimeout(ctx, requestTimeout)
		err := f(asking)
		done()
		if err == nil {
			return nil
		}
		if unanswered = unanswered || !answered(err); unanswered && !errors.Is(err, ErrMayExist) {
			err = fmt.Errorf("%w: %w", ErrMayExist, err)
		}
		if !busy(err) {
			return err
		}
		t := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-t.C:
		case <-within.Done():
			t.Stop()
			return fmt.Errorf("%w: %w", ErrBusy, err)
		}
	}
}

// Codes of the servers' errors: no servers to place a stream on, and a server that leads no more.
const (
	codeNoPeers   jetstream.ErrorCode = 10005
	codeNotLeader jetstream.ErrorCode = 10009
)

// busy reports whether a cluster may do a moment later what it has just refused, or not answered.
func busy(err error) bool {
	var refused *jetstream.APIError
	if errors.As(err, &refused) {
		return refused.Code == http.StatusServiceUnavailable || refused.ErrorCode == codeNoPeers || refused.ErrorCode == codeNotLeader
	}
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded)
}

// answered reports whether an attempt that failed did nothing for certain: a server says why, or it has reached none.
func answered(err error) bool {
	return errors.As(err, new(*jetstream.APIError)) || errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrPermissionViolation)
}

func (c Config) metadata() map[string]string {
	m := map[string]string{metaControls: strconv.Itoa(c.controls()), metaCreation: nuid.Next()}
	if c.Retention.MaxAge > 0 {
		m[metaMaxAge] = c.Retention.MaxAge.String()
	}
	if c.Retention.MaxBytes > 0 {
		m[metaMaxBytes] = strconv.FormatUint(c.Retention.MaxBytes, 10)
	}
	if c.Retention.MaxRecords > 0 {
		m[metaMaxCount] = strconv.FormatUint(c.Retention.MaxRecords, 10)
	}
	return m
}

// Retention is what the stream's metadata say.
func (l *Log) Retention() (Retention, error) {
	return retentionOf(l.stream.CachedInfo().Config.Metadata)
}

func retentionOf(m map[string]string) (r Retention, err error) {
	number := func(key string) (n uint64) {
		if text := m[key]; text != "" && err == nil {
			if n, err = strconv.ParseUint(text, 10, 64); err != nil {
				err = fmt.Errorf("%w: metadata %s=%q", ErrDamaged, key, text)
			}
		}
		return n
	}
	r.MaxBytes, r.MaxRecords = number(metaMaxBytes), number(metaMaxCount)
	if text := m[metaMaxAge]; text != "" && err == nil {
		if r.MaxAge, err = time.ParseDuration(text); err != nil {
			err = fmt.Errorf("%w: metadata %s=%q", ErrDamaged, metaMaxAge, text)
		}
	}
	return r, err
}

// Delete removes the stream and all its records.
func Delete(ctx context.Context, js jetstream.JetStream, a nova.Addr) error {
	if err := js.DeleteStream(ctx, StreamName(a)); err != nil {
		return fmt.Errorf("delete %s: %w", a, translate(err))
	}
	return nil
}

// Description is what JetStream knows of a stream.
type Description struct {
	Addr      nova.Addr
	Created   time.Time
	Replicas  int
	Memory    bool
	Retention Retention
	Bytes     uint64
	Frames    uint64
}

// List are the streams of a namespace, or of all for "".
func List(ctx context.Context, js jetstream.JetStream, namespace string) ([]Description, error) {
	subject := subjectPrefix + ">"
	if namespace != "" {
		subject = subjectPrefix + namespace + ".>"
	}
	lister := js.ListStreams(ctx, jetstream.WithStreamListSubject(subject))
	var all []Description
	for info := range lister.Info() {
		d, ok, err := describe(info)
		if err != nil {
			return nil, err
		}
		if ok && (namespace == "" || d.Addr.Namespace == namespace) {
			all = append(all, d)
		}
	}
	if err := lister.Err(); err != nil {
		return nil, fmt.Errorf("list streams: %w", err)
	}
	return all, nil
}

// Describe asks JetStream about the stream.
func (l *Log) Describe(ctx context.Context) (Description, error) {
	info, err := asked(ctx, func(ctx context.Context) (*jetstream.StreamInfo, error) { return l.stream.Info(ctx) })
	if err != nil {
		return Description{}, fmt.Errorf("describe %s: %w", l.addr, translate(err))
	}
	d, _, err := describe(info)
	return d, err
}

func describe(info *jetstream.StreamInfo) (Description, bool, error) {
	rest, ok := strings.CutPrefix(info.Config.Name, streamPrefix)
	namespace, stream, cut := strings.Cut(rest, "=")
	if !ok || !cut {
		return Description{}, false, nil
	}
	r, err := retentionOf(info.Config.Metadata)
	return Description{
		Addr: nova.Addr{Namespace: namespace, Stream: stream}, Created: info.Created, Replicas: info.Config.Replicas,
		Memory: info.Config.Storage == jetstream.MemoryStorage, Retention: r, Bytes: info.State.Bytes, Frames: info.State.Msgs,
	}, true, err
}

// PurgeBefore removes the frames before a sequence of the log, and never the last one.
func (l *Log) PurgeBefore(ctx context.Context, seq uint64) error {
	last, err := l.Last(ctx)
	if err != nil {
		return err
	}
	if seq = min(seq, last.Seq); seq <= 1 {
		return nil
	}
	return l.purge(ctx, seq)
}

// purge removes the frames before a sequence of the log, if that is the one that l was opened for: another one of its name
// has other sequences, of which these may be all.
func (l *Log) purge(ctx context.Context, seq uint64) error {
	if err := l.Current(ctx); err != nil {
		return fmt.Errorf("purge %s: %w", l.addr, err)
	}
	if err := l.stream.Purge(ctx, jetstream.WithPurgeSubject(l.record), jetstream.WithPurgeSequence(seq)); err != nil {
		return fmt.Errorf("purge %s before log sequence %d: %w", l.addr, seq, translate(err))
	}
	return nil
}
