package artifact

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/zeebo/blake3"

	"github.com/typedfold/fold/runtime/kv"
)

// Names in an artifact's folder.
const (
	ManifestName = "MANIFEST.json"
	DataName     = "data"
)

// Schema is the generation of manifests that this build writes; it reads those from 1 on.
const Schema = 3

// Limits of a manifest. A fold of 100 GiB has some thousand files.
const (
	MaxManifest = 64 << 20
	MaxFiles    = 150_000
	// MaxPath is the longest path of a file, in bytes: what a tar header takes as it is.
	MaxPath = 100
)

// Hash is a BLAKE3 hash of 32 bytes.
type Hash [32]byte

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// File is one file of an artifact.
type File struct {
	// Path is below DataName, with slashes.
	Path string
	Size int64
	Hash Hash
}

// Manifest says what an artifact is. It comes from Parse, Export or an import, and is not to be changed.
type Manifest struct {
	Schema int
	// Backend and Format are the store's, as its Info has them.
	Backend string
	Format  string
	// Cursor is the position that the files are exactly consistent with; none for an empty fold.
	Cursor kv.Cursor
	// Created is when it was exported, in whole seconds.
	Created time.Time
	// Files are all of them, sorted by path.
	Files []File
	// Scope is what the fold follows; HasScope is false where that is not recorded.
	Scope    kv.Scope
	HasScope bool
	// Bucket is the bucket's name; "" where that is not recorded, as always before schema 3.
	Bucket string
	// Log is the log that it was folded from, and Owed the audit that it owes; zero where none is recorded, as always
	// before schema 3.
	Log  kv.Incarnation
	Owed kv.Owed
	// Schemas are the schema records of the fold's tables, by the message's full name.
	Schemas map[string]string

	raw []byte
}

// Bytes are the manifest's bytes as they were read or written; the caller does not write to them.
func (m *Manifest) Bytes() []byte { return m.raw }

// Hash is the hash of Bytes. As they have the hash of each file, it names the whole artifact.
func (m *Manifest) Hash() Hash { return blake3.Sum256(m.raw) }

// Rank is the cursor's revision, by which artifacts of one log are ordered; 0 without one.
func (m *Manifest) Rank() uint64 { return m.Cursor.Revision() }

// Size is what the files add up to.
func (m *Manifest) Size() int64 {
	n := int64(0)
	for i := range m.Files {
		n += m.Files[i].Size
	}
	return n
}

// The JSON form. Whole numbers that a reader may take for floating point, times in nanoseconds, are strings.
type (
	wireManifest struct {
		Schema  int               `json:"schema_version"`
		Backend string            `json:"backend"`
		Format  string            `json:"backend_version"`
		Cursor  string            `json:"cursor_hex"`
		Created int64             `json:"created_at_unix"`
		Bucket  string            `json:"bucket,omitempty"`
		Scope   any               `json:"scope,omitempty"`
		Log     *wireLog          `json:"log,omitempty"`
		Owed    *wireOwed         `json:"owed,omitempty"`
		Schemas map[string]string `json:"schemas,omitempty"`
		Files   []wireFile        `json:"files"`
	}
	wireFile struct {
		Path string `json:"path"`
		Size int64  `json:"size"`
		Hash string `json:"blake3"`
	}
	wireLog struct {
		Created int64        `json:"created_unix_nano,string"`
		Age     int64        `json:"age_limit_nano,string,omitempty"`
		Samples []wireSample `json:"samples"`
	}
	wireSample struct {
		Revision uint64 `json:"revision"`
		UnixNano int64  `json:"unix_nano,string"`
	}
	wireOwed struct {
		Why []string `json:"why"`
		At  uint64   `json:"at"`
	}
)

// scopeAll is the whole bucket in JSON; prefixes are {"Prefixes": [...]}.
const (
	scopeAll      = "All"
	scopePrefix   = "Prefix"
	scopePrefixes = "Prefixes"
)

func (m *Manifest) wire() *wireManifest {
	w := &wireManifest{
		Schema: Schema, Backend: m.Backend, Format: m.Format, Cursor: hex.EncodeToString(m.Cursor.AppendBytes(nil)),
		Created: m.Created.Unix(), Bucket: m.Bucket, Schemas: m.Schemas, Files: make([]wireFile, len(m.Files)),
	}
	switch {
	case m.HasScope && m.Scope.IsAll():
		w.Scope = scopeAll
	case m.HasScope:
		w.Scope = map[string][]string{scopePrefixes: m.Scope.List()}
	}
	if m.Log.CreatedUnixNano != 0 || m.Log.AgeLimit != 0 || len(m.Log.Samples) > 0 {
		w.Log = &wireLog{Created: m.Log.CreatedUnixNano, Age: m.Log.AgeLimit, Samples: []wireSample{}}
		for _, s := range m.Log.Samples {
			w.Log.Samples = append(w.Log.Samples, wireSample(s))
		}
	}
	if m.Owed.Why != 0 {
		w.Owed = &wireOwed{Why: strings.Split(m.Owed.Why.String(), "+"), At: m.Owed.At}
	}
	for i, f := range m.Files {
		w.Files[i] = wireFile{f.Path, f.Size, f.Hash.String()}
	}
	return w
}

// sealed is the manifest with its bytes: what Parse makes of what is written.
func (m *Manifest) sealed() (Manifest, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(m.wire()); err != nil {
		return Manifest{}, fmt.Errorf("write the manifest: %w", err)
	}
	s, err := Parse(b.Bytes())
	if err != nil {
		return Manifest{}, fmt.Errorf("write the manifest: %w", err)
	}
	return s, nil
}
