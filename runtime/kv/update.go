package kv

import "time"

// Op is what an update does to its key.
type Op uint8

const (
	// OpPut sets the key's value, which may be empty.
	OpPut Op = iota + 1
	// OpDelete removes the key.
	OpDelete
	// OpPurge removes the key and, in the bucket, its history.
	OpPurge
	// OpAgedOut: retention removed the value from the bucket; nobody deleted the key, so a fold keeps it.
	OpAgedOut
)

func (o Op) String() string {
	switch o {
	case OpPut:
		return "put"
	case OpDelete:
		return "delete"
	case OpPurge:
		return "purge"
	case OpAgedOut:
		return "aged_out"
	}
	return "unknown"
}

// Removes reports whether the key is gone after the update.
func (o Op) Removes() bool { return o == OpDelete || o == OpPurge }

// Reason is why an update came to be.
type Reason uint8

const (
	// ReasonUser: a writer asked for it.
	ReasonUser Reason = iota + 1
	// ReasonMaxAge: the server's marker for a value that aged out.
	ReasonMaxAge
	// ReasonPurge: the server's marker for a purge.
	ReasonPurge
	// ReasonRemove: the server's marker for a removed message.
	ReasonRemove
	// ReasonRepair: a repair found that the key had been deleted.
	ReasonRepair
)

func (r Reason) String() string {
	switch r {
	case ReasonUser:
		return "user"
	case ReasonMaxAge:
		return "max_age"
	case ReasonPurge:
		return "purge"
	case ReasonRemove:
		return "remove"
	case ReasonRepair:
		return "repair"
	}
	return "unknown"
}

// Update is one change of one key, as the log delivered it. Key and Value are immutable and may be kept; nobody
// writes to Value after the update was handed over.
type Update struct {
	Key   string
	Value []byte
	// ContentType is the message's Content-Type header, "" for almost all.
	ContentType string
	Version     Version
	// UnixNano is the server's time of the message; 0 when it is not known.
	UnixNano int64
	Op       Op
	Reason   Reason
	// Rejected is set by a fold whose table refused the update, and kept with the row in its store.
	Rejected bool
}

// Time is UnixNano as a time; the zero time when it is not known.
func (u *Update) Time() time.Time {
	if u.UnixNano == 0 {
		return time.Time{}
	}
	return time.Unix(0, u.UnixNano)
}

// Size is what the update holds of payload, in bytes: the measure of queue and batch limits.
func (u *Update) Size() int { return len(u.Key) + len(u.Value) }

// Entry is one key's current state as a read found it, tombstones included.
type Entry struct {
	Update
}

// IsTombstone reports whether the entry says that the key is gone from the bucket: deleted, purged, or aged out.
func (e *Entry) IsTombstone() bool { return e.Op != OpPut }
