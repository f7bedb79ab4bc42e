package transport

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

// Options make a Transport.
type Options struct {
	// Store holds the artifacts. One that is published to should come from objects.ForPublishing. It stays the caller's.
	Store objects.Store
	// Prefix is the folder that Key is in; "" is none.
	Prefix string
	// Key names the artifacts of one fold: those of all nodes that follow the same bucket under the same scope. They may
	// have stores of several kinds, if each takes artifacts of all of them; else each kind needs a key of its own.
	Key string
	// Progress, when not nil, is told of each piece that was sent or received, on the goroutine that moves it.
	Progress func(Progress)
}

// Progress is how far one transfer is.
type Progress struct {
	// Name is the artifact's. Upload tells the direction.
	Name   string
	Upload bool
	// Done and Total count bytes of its payload. An upload that is tried again begins again.
	Done, Total int64
}

// Validate reports what is missing or wrong.
func (o Options) Validate() error {
	if o.Store == nil {
		return errors.New("transport: no store")
	}
	if o.Key == "" || strings.Contains(o.Key, "/") {
		return fmt.Errorf("transport: key %q must be a name without slashes; Prefix is for the folder", o.Key)
	}
	t := Transport{base: base(o)}
	for _, key := range []string{t.payloadKey(nameOf(0, artifact.Hash{})), t.pointerKey()} {
		if err := objects.CheckKey(key); err != nil {
			return fmt.Errorf("transport: %w", err)
		}
	}
	return nil
}

// Live reads the log from its leader; the Info of a kv.Watcher is one.
type Live func(ctx context.Context) (kv.LogInfo, error)

// Transport publishes and fetches the artifacts under one key. It is safe for concurrent use, by any number of processes.
type Transport struct {
	store    objects.Store
	base     string
	progress func(Progress)
}

// New makes a Transport. It does not touch the store.
func New(o Options) (*Transport, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Transport{store: o.Store, base: base(o), progress: o.Progress}, nil
}

func base(o Options) string {
	if folder := strings.Trim(o.Prefix, "/"); folder != "" {
		return folder + "/" + o.Key
	}
	return o.Key
}

const (
	payloadSuffix  = ".tar"
	manifestSuffix = ".json"
	rankDigits     = 16
	hashDigits     = 16
)

func (t *Transport) pointerKey() string     { return t.base + ".manifest.json" }
func (t *Transport) payloadFolder() string  { return t.base + ".payloads/" }
func (t *Transport) manifestFolder() string { return t.base + ".manifests/" }

func (t *Transport) payloadKey(name string) string { return t.payloadFolder() + name + payloadSuffix }
func (t *Transport) manifestKey(name string) string {
	return t.manifestFolder() + name + manifestSuffix
}

// Name is what an artifact's objects are named by: its cursor's revision and the beginning of its manifest's hash.
func Name(m artifact.Manifest) string { return nameOf(m.Rank(), m.Hash()) }

func nameOf(rank uint64, h artifact.Hash) string {
	return fmt.Sprintf("%0*x-%s", rankDigits, rank, h.String()[:hashDigits])
}

// rankOf is the revision in an artifact's name; ok is false for what no Name is.
func rankOf(name string) (rank uint64, ok bool) {
	digits, hash, ok := strings.Cut(name, "-")
	if !ok || len(digits) != rankDigits || len(hash) != hashDigits {
		return 0, false
	}
	_, err := strconv.ParseUint(hash, 16, 64)
	if err != nil {
		return 0, false
	}
	rank, err = strconv.ParseUint(digits, 16, 64)
	return rank, err == nil && digits+"-"+hash == strings.ToLower(name)
}

// positionOf is where an artifact's cursor is.
func positionOf(m *artifact.Manifest) protocol.Position {
	return protocol.Position{Log: m.Log.CreatedUnixNano, Revision: m.Rank()}
}

// End is the log that is there, and its last revision; zero for one that can't name itself.
func End(i kv.LogInfo) protocol.Position {
	if i.Created.IsZero() {
		return protocol.Position{}
	}
	return protocol.Position{Log: i.Created.UnixNano(), Revision: i.Last}
}

// end reads the log. Where it can't be read, the decisions go by the zero Position, and err tells why; the end of ctx is
// fatal.
func (live Live) end(ctx context.Context) (p protocol.Position, err, fatal error) {
	info, err := live(ctx)
	if ctx.Err() != nil {
		return p, nil, context.Cause(ctx)
	}
	if err != nil {
		return p, err, nil
	}
	return End(info), nil, nil
}

// pointerState is the decisions' view of a pointer's bytes.
func pointerState(raw []byte) protocol.PointerState {
	m, err := artifact.Parse(raw)
	if err != nil {
		return protocol.PointerState{Present: true}
	}
	return protocol.PointerState{Present: true, Readable: true, At: positionOf(&m)}
}

// readPointer returns nothing for a pointer that is not there.
func (t *Transport) readPointer(ctx context.Context) (raw []byte, token objects.Token, state protocol.PointerState, err error) {
	raw, token, err = t.store.ReadPointer(ctx, t.pointerKey())
	switch {
	case errors.Is(err, objects.ErrNotFound):
		return nil, "", protocol.PointerState{}, nil
	case err != nil:
		return nil, "", protocol.PointerState{}, err
	}
	return raw, token, pointerState(raw), nil
}
