package natskv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/runtime/kv"
)

// API levels of the server that the switches need.
const (
	levelMessageTTL    = 1 // 2.11
	levelAtomicPublish = 2 // 2.12
)

// create makes the bucket, or finds it when somebody else was faster. Whatever the answer to the request was, the
// bucket exists only if the lookup after it says so.
func (b *Bucket) create(ctx context.Context, js jetstream.JetStream) (*jetstream.StreamInfo, error) {
	cfg := b.cfg.streamConfig(b.name)
	if err := b.applySwitches(ctx, js, &cfg); err != nil {
		return nil, err
	}
	create := func() error {
		ctx, cancel := b.deadline(ctx)
		defer cancel()
		_, err := js.CreateStream(ctx, cfg)
		return err
	}
	err := create()
	if needsRawCreate(ctx, err) {
		err = b.createRaw(ctx, cfg)
	}
	if err != nil && !isAlreadyThere(err) {
		return nil, b.createRefused(err)
	}
	info, lookup := b.api.streamInfo(ctx, b.stream)
	if lookup != nil && err != nil {
		return nil, errors.Join(b.createRefused(err), lookup)
	}
	return info, lookup
}

// applySwitches turns on what the server has, and refuses what it does not have and was required.
func (b *Bucket) applySwitches(ctx context.Context, js jetstream.JetStream, cfg *jetstream.StreamConfig) error {
	level := serverLevel(ctx, js, b.cfg.Timeout)
	if (b.cfg.MessageTTL == Required || b.cfg.MarkerTTL != 0) && level < levelMessageTTL {
		return &kv.UnsupportedError{Op: "create bucket", Setting: "MessageTTL", Detail: "the server has no per-message TTL; it needs nats-server 2.11"}
	}
	if b.cfg.AtomicPublish == Required && level < levelAtomicPublish {
		return &kv.UnsupportedError{Op: "create bucket", Setting: "AtomicPublish", Detail: "the server has no atomic publish; it needs nats-server 2.12"}
	}
	cfg.AllowMsgTTL = b.cfg.MessageTTL != Off && level >= levelMessageTTL
	cfg.AllowAtomicPublish = b.cfg.AtomicPublish != Off && level >= levelAtomicPublish
	return nil
}

// turnOn has an existing stream take batches where that is asked for. The other settings go back as they came, so that
// those which this client does not know stay too.
func (b *Bucket) turnOn(ctx context.Context, info *jetstream.StreamInfo) (*jetstream.StreamInfo, error) {
	if !b.cfg.TurnOnAtomicPublish || info.Config.AllowAtomicPublish {
		return info, nil
	}
	if level := serverLevel(ctx, b.js, b.cfg.Timeout); level < levelAtomicPublish {
		return nil, &kv.UnsupportedError{Op: "turn on atomic publish", Setting: "AtomicPublish", Detail: "the server has none; it needs nats-server 2.12"}
	}
	var reply struct {
		Config map[string]json.RawMessage `json:"config"`
	}
	err := b.api.request(ctx, "STREAM.INFO."+b.stream, nil, &reply)
	if err == nil && reply.Config == nil {
		err = fmt.Errorf("%w: the stream's information has no configuration", errUnparsable)
	}
	if err == nil {
		reply.Config["allow_atomic"] = json.RawMessage("true")
		err = b.api.request(ctx, "STREAM.UPDATE."+b.stream, reply.Config, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("turn on atomic publish: %w", err)
	}
	return b.api.streamInfo(ctx, b.stream)
}

// needsRawCreate: some providers answer in shapes that nats.go can't parse, or too late for it.
func needsRawCreate(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() != nil {
		return false
	}
	var syntax *json.SyntaxError
	var shape *json.UnmarshalTypeError
	return errors.As(err, &syntax) || errors.As(err, &shape) || strings.Contains(err.Error(), "unexpected end of JSON") ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout)
}

// createRaw sends the settings as plain JSON. An answer that can't be parsed counts as created; the caller looks.
func (b *Bucket) createRaw(ctx context.Context, cfg jetstream.StreamConfig) error {
	err := b.api.request(ctx, "STREAM.CREATE."+b.stream, cfg, nil)
	if errors.Is(err, errUnparsable) {
		return nil
	}
	return err
}

// refusal reads JetStream's code and text from either client's error.
func refusal(err error) (code int, errCode int, text string) {
	var ours *APIError
	if errors.As(err, &ours) {
		return ours.Code, int(ours.ErrCode), ours.Description
	}
	var theirs *jetstream.APIError
	if errors.As(err, &theirs) {
		return theirs.Code, int(theirs.ErrorCode), theirs.Description
	}
	return 0, 0, ""
}

// isAlreadyThere reports refusals under which the bucket may exist: it does, with other settings, or the account is at
// its limit of streams and this may be one of them.
func isAlreadyThere(err error) bool {
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return true
	}
	code, errCode, text := refusal(err)
	return code == codeStreamExists || errCode == codeStreamExists || code >= 400 && strings.Contains(text, "maximum number of streams")
}

func (b *Bucket) createRefused(err error) error {
	_, errCode, text := refusal(err)
	if errCode == codeMaxBytesRequired {
		return &kv.UnsupportedError{Op: "create bucket", Setting: "MaxBytes", Detail: "the account allows no unlimited bucket, so MaxBytes must be set: " + text}
	}
	return fmt.Errorf("create: %w", err)
}

// differences lists what have has otherwise than asked. A switch that was left to the server differs never.
func differences(cfg BucketConfig, want, have jetstream.StreamConfig) []Difference {
	var out []Difference
	add := func(setting string, want, have any) {
		w, h := fmt.Sprint(want), fmt.Sprint(have)
		if w != h {
			out = append(out, Difference{Setting: setting, Want: w, Have: h})
		}
	}
	unlimited := func(n int64) int64 {
		if n <= 0 {
			return 0
		}
		return n
	}
	add("Storage", want.Storage, have.Storage)
	add("History", want.MaxMsgsPerSubject, have.MaxMsgsPerSubject)
	add("MaxAge", want.MaxAge, have.MaxAge)
	add("MaxBytes", unlimited(want.MaxBytes), unlimited(have.MaxBytes))
	add("MaxValueSize", unlimited(int64(want.MaxMsgSize)), unlimited(int64(have.MaxMsgSize)))
	add("MaxMessages", 0, unlimited(have.MaxMsgs))
	add("Discard", want.Discard, have.Discard)
	add("Replicas", want.Replicas, have.Replicas)
	add("Placement", placement(want.Placement), placement(have.Placement))
	add("Compression", want.Compression, have.Compression)
	add("MarkerTTL", want.SubjectDeleteMarkerTTL, have.SubjectDeleteMarkerTTL)
	add("Sealed", cfg.Sealed, have.DenyPurge && have.DenyDelete && !have.AllowRollup)
	switchDiffers := func(setting string, s Switch, have bool) {
		if s == Off && have || s == Required && !have {
			add(setting, s == Required, have)
		}
	}
	switchDiffers("MessageTTL", cfg.MessageTTL, have.AllowMsgTTL)
	switchDiffers("AtomicPublish", cfg.AtomicPublish, have.AllowAtomicPublish)
	return out
}

func placement(p *jetstream.Placement) string {
	if p == nil {
		return "any"
	}
	return p.Cluster + strconv.Quote(strings.Join(p.Tags, ","))
}
