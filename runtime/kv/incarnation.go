package kv

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Sample is one applied message that can be looked up again to tell one log from another.
type Sample struct {
	Revision uint64
	UnixNano int64
}

// Incarnation is what a fold remembers of the log that its cursor belongs to.
type Incarnation struct {
	// CreatedUnixNano is the log's creation time; 0 is "nothing remembered".
	CreatedUnixNano int64
	// AgeLimit is the lowest Retention.AgeLimit of the log that was read since its last watch was opened, in nanoseconds; 0
	// is none.
	AgeLimit int64
	// Samples are a few applied messages, newest last. The slice is not written to.
	Samples []Sample
}

const (
	incarnationGen      = 1
	incarnationGenAging = 2 // with an age limit
	owedGen             = 1
	// maxSamplesRead is how many samples a record may name: a bound on what is read back from a server.
	maxSamplesRead = 64
)

// AppendBytes appends the record that a store and an artifact keep.
func (i Incarnation) AppendBytes(b []byte) []byte {
	gen := byte(incarnationGen)
	if i.AgeLimit > 0 {
		gen = incarnationGenAging
	}
	b = binary.AppendVarint(append(b, gen), i.CreatedUnixNano)
	if i.AgeLimit > 0 {
		b = binary.AppendUvarint(b, uint64(i.AgeLimit))
	}
	b = binary.AppendUvarint(b, uint64(len(i.Samples)))
	for _, s := range i.Samples {
		b = binary.AppendUvarint(b, s.Revision)
		b = binary.AppendVarint(b, s.UnixNano)
	}
	return b
}

// ParseIncarnation reads what AppendBytes writes, and refuses everything else.
func ParseIncarnation(b []byte) (Incarnation, error) {
	bad := fmt.Errorf("kv: log identity record of %d bytes is not one", len(b))
	if len(b) == 0 || b[0] != incarnationGen && b[0] != incarnationGenAging {
		return Incarnation{}, bad
	}
	r := varints{b: b[1:]}
	i := Incarnation{CreatedUnixNano: r.signed()}
	if b[0] == incarnationGenAging {
		limit := r.unsigned()
		if limit == 0 || limit > math.MaxInt64 {
			return Incarnation{}, bad
		}
		i.AgeLimit = int64(limit)
	}
	n := r.unsigned()
	if n > maxSamplesRead {
		return Incarnation{}, bad
	}
	for range n {
		i.Samples = append(i.Samples, Sample{Revision: r.unsigned(), UnixNano: r.signed()})
	}
	if r.bad || len(r.b) != 0 {
		return Incarnation{}, bad
	}
	return i, nil
}

// Owes is a set of reasons for which a fold can't be sure of what it holds.
type Owes uint8

const (
	// OwesIdentity: nothing proved that the log which a watch resumed on is the one that the cursor came from.
	OwesIdentity Owes = 1 << iota
	// OwesMarkers: a delete marker may have vanished from inside the log before the fold saw it.
	OwesMarkers
	// OwesListing: retention may have taken current values before the fold listed them.
	OwesListing

	owesAll = OwesIdentity | OwesMarkers | OwesListing
)

func (o Owes) String() string {
	s := ""
	for i, name := range []string{"identity", "markers", "listing"} {
		if o&(1<<i) != 0 {
			if s != "" {
				s += "+"
			}
			s += name
		}
	}
	if s == "" {
		return "none"
	}
	return s
}

// Owed is the mark of a fold that owes an audit. It is committed with the cursor, and artifacts carry it. The zero
// value owes nothing. Marks are comparable with ==.
type Owed struct {
	Why Owes
	// At is the latest revision up to which something may have been missed.
	At uint64
}

// Add is the mark with one more reason.
func (o Owed) Add(why Owes, at uint64) Owed {
	if why == 0 {
		return o
	}
	return Owed{Why: o.Why | why, At: max(o.At, at)}
}

func (o Owed) String() string {
	if o.Why == 0 {
		return "none"
	}
	return fmt.Sprintf("%v up to revision %d", o.Why, o.At)
}

// AppendBytes appends the record that a store keeps.
func (o Owed) AppendBytes(b []byte) []byte {
	return binary.AppendUvarint(append(b, owedGen, byte(o.Why)), o.At)
}

// ParseOwed reads what AppendBytes writes, and refuses everything else.
func ParseOwed(b []byte) (Owed, error) {
	if len(b) < 3 || b[0] != owedGen || Owes(b[1])&^owesAll != 0 {
		return Owed{}, fmt.Errorf("kv: audit record of %d bytes is not one", len(b))
	}
	r := varints{b: b[2:]}
	at := r.unsigned()
	if r.bad || len(r.b) != 0 {
		return Owed{}, fmt.Errorf("kv: audit record of %d bytes is not one", len(b))
	}
	return Owed{Why: Owes(b[1]), At: at}, nil
}

// varints reads varints one after the other; bad is set by the first that is not there, or is longer than it need be.
type varints struct {
	b   []byte
	bad bool
}

func (r *varints) unsigned() uint64 {
	v, n := binary.Uvarint(r.b)
	return r.took(v, n)
}

func (r *varints) signed() int64 {
	v, n := binary.Varint(r.b)
	return int64(r.took(uint64(v), n))
}

func (r *varints) took(v uint64, n int) uint64 {
	if n <= 0 || n > 1 && r.b[n-1] == 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}
