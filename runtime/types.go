package fold

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/typedfold/fold/internal/machine"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/repair"
	"github.com/typedfold/fold/runtime/store"
)

// SupportsGen1 is what code of the first generator generation refers to: it compiles against every runtime that
// still serves it.
const SupportsGen1 = true

// The ports and values that users meet, under this package's name.
type (
	// Bucket is a bucket to follow and to write: natskv.Open gives one.
	Bucket = kv.Bucket
	// Store is a durable fold's storage: pebblestore.Open and logstore.Open give one.
	Store = store.Store
	// Cursor is a resume position.
	Cursor = kv.Cursor
	// Scope is the part of a bucket that a fold follows.
	Scope = kv.Scope
	// RawEntry is one message of the bucket, before any table looked at it.
	RawEntry = kv.Update
	// Op is what an update did to its key.
	Op = kv.Op
	// Reason is why an update came to be.
	Reason = kv.Reason

	// ConflictError is a write refused because the key's revision was not the expected one.
	ConflictError = kv.ConflictError
	// ExistsError is a create of a key that has a value.
	ExistsError = kv.ExistsError
	// ExpiredError is a cursor that the log has moved past; it matches ErrCursorExpired.
	ExpiredError = kv.ExpiredError
	// LogChangedError is a log that is not the one the cursor came from; it matches ErrLogReplaced or ErrLogRewound.
	LogChangedError = kv.LogChangedError
	// RepairOptions shape the repair of a cursor that is no resume position any more.
	RepairOptions = repair.Options
	// RepairLog is what a repair asks the bucket; every Bucket is one.
	RepairLog = repair.Log
	// RepairReport is what one repair or audit saw, decided and did.
	RepairReport = repair.Report
	// RefusedError is a repair that could not be proved safe; it matches ErrRepairRefused and what ended the watch.
	RefusedError = repair.RefusedError
	// FailStopError ends a fold whose hooks or store failed too many times in a row.
	FailStopError = machine.FailStopError
	// ShutdownError is a Close whose last flush did not finish before the deadline.
	ShutdownError = machine.ShutdownError
)

// What a fold may do when its cursor is no resume position any more (RepairOptions.Mode).
const (
	RepairAuto    = repair.Auto
	RepairRelist  = repair.Relist
	RepairRestore = repair.Restore
	RepairOff     = repair.Off
)

const (
	OpPut     = kv.OpPut
	OpDelete  = kv.OpDelete
	OpPurge   = kv.OpPurge
	OpAgedOut = kv.OpAgedOut

	ReasonUser   = kv.ReasonUser
	ReasonMaxAge = kv.ReasonMaxAge
	ReasonPurge  = kv.ReasonPurge
	ReasonRemove = kv.ReasonRemove
	ReasonRepair = kv.ReasonRepair
)

// AllKeys is the whole bucket, the default scope.
func AllKeys() Scope { return kv.AllKeys() }

// Prefixes is the union of the keys that begin with one of the prefixes.
func Prefixes(prefixes ...string) (Scope, error) { return kv.Prefixes(prefixes...) }

// Revision is a position in the bucket's log.
type Revision interface{ Seq() uint64 }

// Seq is a bare stream sequence as a Revision.
type Seq uint64

// Seq is the sequence itself.
func (s Seq) Seq() uint64 { return uint64(s) }

// Rev is one key's revision: what an Update or a Delete at a revision expects to find. The zero value is no revision.
type Rev[K Key] struct {
	key K
	seq uint64
}

// NewRev is the revision of a key at a stream sequence.
func NewRev[K Key](key K, seq uint64) Rev[K] { return Rev[K]{key: key, seq: seq} }

// Key is the key that the revision belongs to.
func (r Rev[K]) Key() K { return r.key }

// Seq is the stream sequence; 0 for no revision.
func (r Rev[K]) Seq() uint64 { return r.seq }

// Row is one row as a read found it.
type Row[K Key, V proto.Message] struct {
	Key K
	// Value is the caller's own message; nil under KeysOnly.
	Value V
	// Rev is the revision of Value.
	Rev Rev[K]
	// Time is the server's time of that revision.
	Time time.Time
	// Stale is set when the bucket's newest value of the key was rejected, and Value is the last accepted one.
	Stale *Rejection
}

// Prefix is the rows of a table whose key begins with some of its parts. Generated functions make them.
type Prefix[K Key] struct {
	bytes []byte
	err   error
}

// NewPrefix is a prefix of NATS keys, which ends in '.' except for a table with only one key; for generated code. An
// error is given back by the first use.
func NewPrefix[K Key](natsKeyPrefix []byte, err error) Prefix[K] {
	return Prefix[K]{bytes: natsKeyPrefix, err: err}
}

// String is the prefix of NATS keys.
func (p Prefix[K]) String() string { return string(p.bytes) }

// Bound is one end of a Range.
type Bound[K Key] struct {
	key  K
	kind boundKind
}

type boundKind uint8

const (
	boundNone boundKind = iota
	boundIncl
	boundExcl
)

// Incl is a bound at k, k included.
func Incl[K Key](k K) Bound[K] { return Bound[K]{key: k, kind: boundIncl} }

// Excl is a bound at k, k not included.
func Excl[K Key](k K) Bound[K] { return Bound[K]{key: k, kind: boundExcl} }

// Unbounded is no bound.
func Unbounded[K Key]() Bound[K] { return Bound[K]{} }
