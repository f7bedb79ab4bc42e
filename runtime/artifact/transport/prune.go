package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/protocol"
)

// DefaultKeep is how many generations stay.
const DefaultKeep = 3

// PruneOptions say what stays.
type PruneOptions struct {
	// Keep is how many of the newest generations stay, the current one among them; 0 is DefaultKeep.
	Keep int
	// TTL is the export lease's; what is younger than four of them stays.
	TTL time.Duration
	// Live reads the log.
	Live Live
	// Now is the time; the zero time is the clock's.
	Now time.Time
}

// Validate reports what is missing or wrong.
func (o PruneOptions) Validate() error {
	switch {
	case o.Live == nil:
		return errors.New("prune: no Live to read the log by")
	case o.Keep < 0 || o.TTL < 0:
		return fmt.Errorf("prune: keep %d and ttl %v must not be negative", o.Keep, o.TTL)
	}
	return nil
}

// Pruned is what a prune did.
type Pruned struct {
	// Names are the generations that were removed, Bytes what their payloads had.
	Names []string
	Bytes int64
	// Unread is why the log could not be read; then only what is long out of date goes.
	Unread error
}

// Prune removes the generations that nobody can publish any more and that are none of the newest, and what dead uploads
// left. It ends early when the pointer moves. On an error, what was removed until then is returned too. Downloads of what
// it removes fail with ErrGone. Generations of the pointer's own revision stay until it has a later one.
func (t *Transport) Prune(ctx context.Context, o PruneOptions) (Pruned, error) {
	if err := o.Validate(); err != nil {
		return Pruned{}, err
	}
	done, err := t.prune(ctx, o)
	if err != nil {
		err = fmt.Errorf("prune %q: %w", t.base, err)
	}
	return done, err
}

func (t *Transport) prune(ctx context.Context, o PruneOptions) (done Pruned, err error) {
	c := candidates{grace: graceOf(o.TTL), now: o.Now}
	if c.now.IsZero() {
		c.now = time.Now()
	}
	// The decision's order: what is there, the pointer, the log.
	if c.payloads, err = t.list(ctx, t.payloadFolder(), payloadSuffix); err != nil {
		return done, err
	}
	all, pointer, err := t.generations(ctx)
	if err != nil {
		return done, err
	}
	var fatal error
	if c.live, done.Unread, fatal = o.Live.end(ctx); fatal != nil {
		return done, fatal
	}
	if o.Keep == 0 {
		o.Keep = DefaultKeep
	}
	for _, name := range c.prunable(all, o.Keep) {
		now, _, _, err := t.readPointer(ctx)
		if err != nil {
			return done, err
		}
		if !bytes.Equal(now, pointer) {
			break // what was decided by it is out of date; the next prune decides anew
		}
		// The manifest first: what is announced has its payload, whenever this ends.
		if err := t.store.Delete(ctx, t.manifestKey(name)); err != nil {
			return done, err
		}
		if err := t.store.Delete(ctx, t.payloadKey(name)); err != nil {
			return done, err
		}
		done.Names, done.Bytes = append(done.Names, name), done.Bytes+c.payloads[name].Size
	}
	for _, prefix := range []string{t.payloadFolder(), t.manifestFolder(), t.pointerKey()} {
		if err := t.store.CleanUploads(ctx, prefix, c.grace.long); err != nil {
			return done, err
		}
	}
	return done, nil
}

type graces struct{ short, long time.Duration }

func graceOf(ttl time.Duration) graces {
	short, long := protocol.PruneGrace(ttl.Nanoseconds())
	return graces{time.Duration(short), time.Duration(long)}
}

// candidates are what a prune decides on.
type candidates struct {
	payloads map[string]objects.Object
	live     protocol.Position
	grace    graces
	now      time.Time
}

// prunable are the names of the generations to remove, in their order.
func (c *candidates) prunable(all []Generation, keep int) (names []string) {
	slices.SortFunc(all, newest(c.live))
	var pointer protocol.PointerState
	facts := map[string]protocol.Payload{}
	stored := map[string]time.Time{}
	for name, o := range c.payloads {
		facts[name], stored[name] = named(name), o.ModTime
	}
	for _, g := range all {
		if g.Current {
			pointer = protocol.PointerState{Present: true, Readable: g.Err == nil, At: positionOf(&g.Manifest)}
		}
		if g.Name == "" {
			continue
		}
		p := named(g.Name)
		if p.Target = g.Current; g.Err == nil {
			p.At = positionOf(&g.Manifest)
		}
		if _, whole := c.payloads[g.Name]; whole && g.Err == nil && keep > 0 {
			p.Kept = true
			keep--
		}
		facts[g.Name] = p
		if g.Stored.After(stored[g.Name]) {
			stored[g.Name] = g.Stored
		}
	}
	for name, p := range facts {
		age := c.now.Sub(stored[name])
		p.AgedOut, p.LongAgedOut = age >= c.grace.short, age >= c.grace.long
		if protocol.PayloadPrunable(p, pointer, c.live) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, strings.Compare)
	return names
}

// named is what an artifact's name says.
func named(name string) protocol.Payload {
	rank, ok := rankOf(name)
	return protocol.Payload{Ranked: ok, At: protocol.Position{Revision: rank}}
}
