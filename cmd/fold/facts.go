package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// cursorFacts are a cursor with its memo.
type cursorFacts struct {
	Revision     uint64     `json:"revision,string"`
	SeenEvicting bool       `json:"seen_evicting"`
	WrittenAt    *time.Time `json:"written_at,omitempty"`
}

func cursorOf(c kv.Cursor) cursorFacts {
	return cursorFacts{Revision: c.Revision(), SeenEvicting: c.SeenEvicting, WrittenAt: someTime(c.Written())}
}

func (c cursorFacts) String() string {
	text := "none"
	if c.Revision > 0 {
		text = strconv.FormatUint(c.Revision, 10)
	}
	if c.WrittenAt != nil {
		text += ", written at " + stamp(*c.WrittenAt)
	}
	if c.SeenEvicting {
		text += ", and retention was seen to take current values"
	}
	return text
}

// logFacts name the log that a fold came from.
type logFacts struct {
	Created time.Time `json:"created"`
	// UnixNano is the same, as the identity is compared.
	UnixNano int64 `json:"created_unix_nano,string"`
	AgeLimit int64 `json:"age_limit_nanos,string"`
	Samples  int   `json:"samples"`
}

func logOf(i kv.Incarnation) *logFacts {
	if i.CreatedUnixNano == 0 {
		return nil
	}
	return &logFacts{
		Created: time.Unix(0, i.CreatedUnixNano).UTC(), UnixNano: i.CreatedUnixNano, AgeLimit: i.AgeLimit, Samples: len(i.Samples),
	}
}

func (l *logFacts) String() string {
	if l == nil {
		return "not recorded"
	}
	text := "created at " + stamp(l.Created)
	if l.AgeLimit > 0 {
		text += fmt.Sprintf(", keeps values for %v", time.Duration(l.AgeLimit))
	}
	return text
}

type owedFacts struct {
	Why  string `json:"why"`
	UpTo uint64 `json:"up_to,string"`
}

func owedOf(o kv.Owed) *owedFacts {
	if o == (kv.Owed{}) {
		return nil
	}
	return &owedFacts{Why: o.Why.String(), UpTo: o.At}
}

// storeFacts are what a store says of itself and of the fold in it.
type storeFacts struct {
	Path    string            `json:"path"`
	Backend string            `json:"backend"`
	Format  string            `json:"format"`
	Bytes   uint64            `json:"disk_bytes"`
	Bucket  string            `json:"bucket"`
	Scope   string            `json:"scope"`
	Cursor  cursorFacts       `json:"cursor"`
	Log     *logFacts         `json:"log,omitempty"`
	Owed    *owedFacts        `json:"owed,omitempty"`
	Schemas map[string]string `json:"schemas"`
	// Rows are all keys, Rejected those among them whose newest value a table refused, and Counts the rows by the first
	// token of their key.
	Rows     uint64            `json:"rows"`
	Rejected uint64            `json:"rejected"`
	Counts   map[string]uint64 `json:"counts"`
	Digest   string            `json:"digest"`
}

// readStore reads all of a store.
func readStore(ctx context.Context, path string, s store.Store, told *progress) (f storeFacts, err error) {
	snap, err := s.Snapshot()
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, snap.Close()) }()
	info := s.Info()
	f = storeFacts{Path: path, Backend: info.Backend, Format: info.Format, Bytes: s.Stats().DiskBytes, Cursor: cursorOf(snap.Cursor())}
	if err := f.readMeta(snap); err != nil {
		return f, err
	}
	told.now("counting the rows")
	if err := f.count(ctx, snap, told); err != nil {
		return f, err
	}
	told.now("hashing the rows")
	digest, err := fold.DigestOf(ctx, snap)
	f.Digest = digest.String()
	return f, err
}

func (f *storeFacts) readMeta(g store.Getter) error {
	bucket, err := store.Meta(g, store.MetaBucket)
	if err != nil {
		return err
	}
	scope, err := store.Meta(g, store.MetaScope)
	if err != nil {
		return err
	}
	log, err := store.LogOf(g)
	if err != nil {
		return err
	}
	owed, err := store.OwedOf(g)
	if err != nil {
		return err
	}
	f.Bucket, f.Scope, f.Log, f.Owed, f.Schemas = string(bucket), string(scope), logOf(log), owedOf(owed), map[string]string{}
	prefix := store.MetaKey(store.MetaSchema)
	return each(g, prefix, func(key, value []byte) error {
		f.Schemas[string(key[len(prefix):])] = string(value)
		return nil
	})
}

func (f *storeFacts) count(ctx context.Context, g store.Getter, told *progress) error {
	f.Counts = map[string]uint64{}
	return each(g, []byte{byte(store.SpaceData)}, func(key, value []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		rec, err := store.ParseRecord(value)
		if err != nil {
			return fmt.Errorf("key %q: %w", store.NATSKey(key), err)
		}
		first, _, _ := strings.Cut(store.NATSKey(key), ".")
		f.Counts[first]++
		f.Rows++
		told.rows.Add(1)
		if rec.Rejected {
			f.Rejected++
		}
		return nil
	})
}

// each calls do with what begins with a prefix, in order. The bytes are do's until it returns.
func each(g store.Getter, prefix []byte, do func(key, value []byte) error) (err error) {
	it, err := g.Iter(store.IterOptions{Lower: prefix, Upper: store.PrefixEnd(prefix)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for it.Next() {
		value, err := it.Value()
		if err != nil {
			return err
		}
		if err := do(it.Key(), value); err != nil {
			return err
		}
	}
	return it.Err()
}

func (f *storeFacts) print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line(t, "store", fmt.Sprintf("%s, format %s, %d bytes", f.Backend, f.Format, f.Bytes))
	line(t, "bucket", orNone(f.Bucket))
	line(t, "scope", orNone(f.Scope))
	line(t, "cursor", f.Cursor.String())
	line(t, "log", f.Log.String())
	if f.Owed != nil {
		line(t, "owed", fmt.Sprintf("an audit (%s) up to revision %d", f.Owed.Why, f.Owed.UpTo))
	}
	line(t, "schemas", strings.Join(slices.Sorted(maps.Keys(f.Schemas)), ", "))
	line(t, "rows", fmt.Sprintf("%d, %d of them rejected", f.Rows, f.Rejected))
	for _, first := range slices.Sorted(maps.Keys(f.Counts)) {
		line(t, "  "+first, strconv.FormatUint(f.Counts[first], 10))
	}
	line(t, "digest", f.Digest)
	_ = t.Flush() // what the output does not take can't be said there either
}

func orNone(text string) string {
	if text == "" {
		return "not recorded"
	}
	return text
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func someTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
