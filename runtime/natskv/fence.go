package natskv

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

var _ kv.Fencer = (*Bucket)(nil)

// ttlNever keeps a message though the bucket has a max age.
const ttlNever = "never"

// proofValue is what a check key holds: nobody reads it.
var proofValue = []byte("0")

// fenceCheck is what one message asks of the fence record; the zero value asks nothing.
type fenceCheck struct {
	key    int
	expect uint64
}

// checkOf is the next check of the record at a revision; 0 is none. The process's writes take the keys in turn.
func (b *Bucket) checkOf(fence uint64) fenceCheck {
	if fence == 0 {
		return fenceCheck{}
	}
	key, expect := protocol.FenceCheck(fence, b.checks.Add(1))
	return fenceCheck{key: key, expect: expect}
}

func (c fenceCheck) asked() bool { return c.expect != 0 }

// header is h, and what the message asks for: the fence record's revision where there is one to check, else its own key's.
func (c fenceCheck) header(b *Bucket, h nats.Header, expect uint64) nats.Header {
	if !c.asked() && expect == expectAny {
		return h
	}
	out := make(nats.Header, len(h)+2)
	for name, v := range h {
		out[name] = v
	}
	c.set(b, out, expect)
	return out
}

// set is header in place. The checked subject is a whole one: with a wildcard, a server of several lets pass what a Fence
// on its way is about to refuse.
func (c fenceCheck) set(b *Bucket, h nats.Header, expect uint64) {
	switch {
	case c.asked():
		h[headerExpectedSeq] = []string{strconv.FormatUint(c.expect, 10)}
		h[headerExpectedOf] = []string{b.prefix + kv.FenceKey(c.key)}
	case expect != expectAny:
		h[headerExpectedSeq] = []string{strconv.FormatUint(expect, 10)}
	}
}

// checkMoved looks into a refusal of a write with a check: nil is that the same write may be sent again.
func (b *Bucket) checkMoved(ctx context.Context, c fenceCheck) error {
	key := kv.FenceKey(c.key)
	now, found, err := b.entry(ctx, key)
	if err != nil {
		return fmt.Errorf("refused by revision, and the fence record can't be read: %w", err)
	}
	refused := protocol.CheckRefused{Expected: c.expect}
	if found {
		refused.Found = now.Version.Rank()
	}
	if protocol.CheckMoved(refused) {
		return &kv.FenceMovedError{Bucket: b.name, Key: key, Want: c.expect, Got: refused.Found}
	}
	return nil
}

// FenceRecord reads the record from the leader.
func (b *Bucket) FenceRecord(ctx context.Context) (kv.FenceRecord, error) {
	ctx, cancel := b.deadline(ctx)
	defer cancel()
	e, err := b.Entry(ctx, kv.FenceKey(0))
	if err != nil {
		return kv.FenceRecord{}, fmt.Errorf("fence record: %w", err)
	}
	return kv.ReadFenceRecord(b.name, &e)
}

// InstallFence writes the record in one batch, whatever stands. A bucket that could lose it is refused, and so is one
// that does not take batches.
func (b *Bucket) InstallFence(ctx context.Context, token string) (kv.Version, error) {
	last, err := b.installFence(ctx, token)
	if err != nil {
		return kv.Version{}, fmt.Errorf("install fence: %w", err)
	}
	return last, nil
}

func (b *Bucket) installFence(ctx context.Context, token string) (kv.Version, error) {
	value, err := kv.FenceValue(token)
	if err != nil {
		return kv.Version{}, err
	}
	lookup := ctx
	ctx, cancel := b.deadline(ctx)
	defer cancel()
	if err := b.ready(ctx); err != nil {
		return kv.Version{}, err
	}
	info, err := b.api.streamInfo(ctx, b.stream)
	if err != nil {
		return kv.Version{}, asBucketError(b.name, err)
	}
	if err := b.keepsFence(&info.Config); err != nil {
		return kv.Version{}, err
	}
	if protocol.FenceKeys > b.cfg.MaxBatch {
		return kv.Version{}, &kv.BatchSizeError{Ops: protocol.FenceKeys, Limit: b.cfg.MaxBatch}
	}
	s := sending{name: "install fence", forever: info.Config.AllowMsgTTL, expect: make([]uint64, protocol.FenceKeys)}
	for i := range s.expect {
		s.expect[i] = expectAny
		s.batch.Ops = append(s.batch.Ops, kv.BatchOp{Kind: kv.BatchPut, Key: kv.FenceKey(i), Value: value})
	}
	last, err := b.send(ctx, lookup, &s)
	return last, b.roomForFence(err)
}

// roomForFence says of a refused record which limit of the bucket it is that refuses it.
func (b *Bucket) roomForFence(err error) error {
	var api *APIError
	if !errors.As(err, &api) {
		return err
	}
	no := &kv.UnsupportedError{Op: "fence", Detail: fmt.Sprintf("bucket %q has no room for the record's %d messages: %s", b.name, protocol.FenceKeys, api.Description)}
	switch full := api.ErrCode == codeStoreFailed; {
	case api.ErrCode == codeMessageTooLarge:
		no.Setting, no.Advice = "MaxValueSize", fmt.Sprintf("run `nats stream edit %s --max-msg-size 1024`, or more", b.stream)
	case full && strings.Contains(api.Description, "maximum bytes"):
		no.Setting, no.Advice = "MaxBytes", fmt.Sprintf("delete rows and run `nats kv compact %s`, or raise the limit: `nats stream edit %s --max-bytes …`", b.name, b.stream)
	case full && strings.Contains(api.Description, "maximum messages"):
		no.Setting, no.Advice = "MaxMsgs", fmt.Sprintf("delete rows and run `nats kv compact %s`, or raise the limit: `nats stream edit %s --max-msgs …`", b.name, b.stream)
	default:
		return err
	}
	return no
}

// keepsFence refuses a bucket that could lose its fence record by itself, or does not store it in one step.
func (b *Bucket) keepsFence(c *jetstream.StreamConfig) error {
	refuse := func(setting, detail, advice string) error {
		return &kv.UnsupportedError{Op: "fence", Setting: setting, Detail: fmt.Sprintf("bucket %q %s", b.name, detail), Advice: advice}
	}
	edit := "run `nats stream edit " + b.stream
	switch {
	case c.Mirror != nil:
		return refuse("Mirror", "is a mirror of stream "+c.Mirror.Name, "fence the bucket that it mirrors")
	case len(c.Sources) > 0:
		return refuse("Sources", "takes messages of other streams, which nobody checks", edit+"` and take its sources out")
	case c.Retention != jetstream.LimitsPolicy:
		return refuse("Retention", fmt.Sprintf("has retention %v, which removes what was read", c.Retention), "make the bucket anew with the retention \"limits\"")
	case c.MaxAge > 0 && !c.AllowMsgTTL:
		return refuse("MessageTTL", fmt.Sprintf("would lose its fence record after %v", c.MaxAge),
			"open a new bucket with natskv.BucketConfig.MessageTTL, or "+edit+" --allow-msg-ttl`; or set no max age")
	case evictsByLimit(c):
		return refuse("DiscardOld", fmt.Sprintf("discards its oldest messages at %d bytes or %d messages, its fence record among them", c.MaxBytes, c.MaxMsgs),
			edit+" --discard new`, or set no limit")
	case c.DiscardNewPerSubject:
		return refuse("DiscardNewPerSubject", "refuses another value of a key that it holds, so that its first fence would be its last",
			"make the bucket anew without discard-new-per-subject")
	case !c.AllowAtomicPublish:
		return b.noBatches("fence", nil)
	}
	return nil
}

// ProveFence writes a check key under the record's revision.
func (b *Bucket) ProveFence(ctx context.Context, revision uint64) (kv.Version, error) {
	if revision == 0 {
		return kv.Version{}, errors.New("prove fence: no revision")
	}
	key := kv.CheckKey(int(b.checks.Load() % protocol.FenceKeys))
	ctx, cancel := b.deadline(ctx)
	defer cancel()
	if err := b.ready(ctx); err != nil {
		return kv.Version{}, fmt.Errorf("prove fence: %w", err)
	}
	return b.writeAt(ctx, "prove fence", key, proofValue, nil, atAny, revision)
}
