package artifact

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// Parse reads and checks a manifest of schema 1 to 3. It keeps b. Unknown and repeated members are refused, as are values
// of another type than they should have, and null; but a null scope is none. Its error is an *InvalidError, which matches
// store.ErrFormat for a schema that is too new.
func Parse(b []byte) (Manifest, error) {
	if len(b) > MaxManifest {
		return Manifest{}, invalidFor(ErrTooLarge, ManifestName, "%d bytes, the limit is %d", len(b), MaxManifest)
	}
	if !utf8.Valid(b) {
		return Manifest{}, invalid(ManifestName, "not in UTF-8")
	}
	schema, err := schemaOf(b)
	if err != nil {
		return Manifest{}, err
	}
	m := Manifest{raw: b}
	p := parser{dec: json.NewDecoder(bytes.NewReader(b)), schema: schema}
	p.dec.UseNumber()
	if err := p.manifest(&m); err != nil {
		return Manifest{}, invalidFor(err, ManifestName, "can't be read")
	}
	if err := m.validate(); err != nil {
		return Manifest{}, err
	}
	return m, nil
}

// schemaOf looks ahead at the schema's number, since what follows may be of a schema that this build doesn't know. It
// refuses what is not one JSON value.
func schemaOf(b []byte) (int, error) {
	var head struct {
		Schema int `json:"schema_version"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return 0, invalidFor(err, ManifestName, "can't be read")
	}
	if head.Schema > Schema {
		return 0, invalidFor(store.ErrFormat, ManifestName, "schema %d, this build reads 1 to %d", head.Schema, Schema)
	}
	return head.Schema, nil
}

// parser reads JSON member by member, each by the type that it must have.
type parser struct {
	dec    *json.Decoder
	schema int
}

// member reads the value of one member of an object.
type member struct {
	name     string
	optional bool
	read     func() error
}

func (p *parser) manifest(m *Manifest) error {
	members := []member{
		{"schema_version", false, func() error { return p.integer(&m.Schema) }},
		{"backend", false, func() error { return p.text(&m.Backend) }},
		{"backend_version", false, func() error { return p.text(&m.Format) }},
		{"cursor_hex", false, func() error { return p.cursor(&m.Cursor) }},
		{"created_at_unix", false, func() error { return p.created(&m.Created) }},
		{"files", false, func() error { return p.files(m) }},
		{"scope", p.schema != 2, func() error { return p.scope(m) }},
	}
	if p.schema >= 3 {
		members = append(members,
			member{"bucket", true, func() error { return p.text(&m.Bucket) }},
			member{"log", true, func() error { return p.log(&m.Log) }},
			member{"owed", true, func() error { return p.owed(&m.Owed) }},
			member{"schemas", true, func() error { return p.schemas(m) }},
		)
	}
	if err := p.object(members); err != nil {
		return err
	}
	switch {
	case p.schema == 1 && m.HasScope:
		return errors.New("schema 1 has no scope")
	case p.schema == 2 && !m.HasScope:
		return errors.New("schema 2 must have a scope")
	}
	return nil
}

func (p *parser) object(members []member) error {
	if err := p.delim('{'); err != nil {
		return err
	}
	return p.members(members)
}

// members reads an object whose beginning was read.
func (p *parser) members(members []member) error {
	var seen uint64
	err := p.each(func(name string) error {
		i := slices.IndexFunc(members, func(m member) bool { return m.name == name })
		switch {
		case i < 0:
			return fmt.Errorf("%q is not known in schema %d", name, p.schema)
		case seen&(1<<i) != 0:
			return fmt.Errorf("%q is there twice", name)
		}
		seen |= 1 << i
		if err := members[i].read(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, m := range members {
		if !m.optional && seen&(1<<i) == 0 {
			return fmt.Errorf("%q is missing", m.name)
		}
	}
	return nil
}

// each calls read for each member of an object whose beginning was read.
func (p *parser) each(read func(name string) error) error {
	for p.dec.More() {
		var name string
		if err := p.text(&name); err != nil {
			return err
		}
		if err := read(name); err != nil {
			return err
		}
	}
	return p.delim('}')
}

// list calls read for each element of a list.
func (p *parser) list(read func() error) error {
	if err := p.delim('['); err != nil {
		return err
	}
	for i := 0; p.dec.More(); i++ {
		if err := read(); err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
	}
	return p.delim(']')
}

func (p *parser) delim(want json.Delim) error {
	tok, err := p.dec.Token()
	if err == nil && tok != want {
		return fmt.Errorf("%v is not %v", tok, want)
	}
	return err
}

func (p *parser) text(into *string) error {
	tok, err := p.dec.Token()
	if err != nil {
		return err
	}
	s, ok := tok.(string)
	if !ok {
		return fmt.Errorf("%v is not a text", tok)
	}
	*into = s
	return nil
}

// number is the text of a number, or of one in a string.
func (p *parser) number(quoted bool) (string, error) {
	tok, err := p.dec.Token()
	if err != nil {
		return "", err
	}
	if s, ok := tok.(string); ok && quoted {
		return s, nil
	}
	if n, ok := tok.(json.Number); ok && !quoted {
		return n.String(), nil
	}
	return "", fmt.Errorf("%v is not a number of this form", tok)
}

func (p *parser) integer(into *int) error {
	n, err := p.signed(false)
	*into = int(n)
	return err
}

func (p *parser) signed(quoted bool) (int64, error) {
	s, err := p.number(quoted)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err == nil && strconv.FormatInt(n, 10) != s {
		err = fmt.Errorf("%q is no whole number", s)
	}
	return n, err
}

func (p *parser) unsigned(into *uint64) error {
	s, err := p.number(false)
	if err != nil {
		return err
	}
	*into, err = strconv.ParseUint(s, 10, 64)
	return err
}

func (p *parser) cursor(c *kv.Cursor) error {
	var s string
	if err := p.text(&s); err != nil {
		return err
	}
	b, err := lowerHex(s)
	if err != nil {
		return err
	}
	*c, err = kv.ParseCursor(b)
	return err
}

func lowerHex(s string) ([]byte, error) {
	b, err := hex.DecodeString(s)
	if err == nil && hex.EncodeToString(b) != s {
		err = errors.New("hexadecimal digits must be in lower case")
	}
	return b, err
}

// maxUnix is the year 9999's end.
const maxUnix = 253402300799

func (p *parser) created(t *time.Time) error {
	n, err := p.signed(false)
	if err == nil && (n < 0 || n > maxUnix) {
		err = fmt.Errorf("%d is no time", n)
	}
	*t = time.Unix(n, 0).UTC()
	return err
}

func (p *parser) files(m *Manifest) error {
	return p.list(func() error {
		if len(m.Files) == MaxFiles {
			return fmt.Errorf("%w: more than %d files", ErrTooLarge, MaxFiles)
		}
		var f File
		err := p.object([]member{
			{"path", false, func() error { return p.text(&f.Path) }},
			{"size", false, func() (err error) { f.Size, err = p.signed(false); return err }},
			{"blake3", false, func() error { return p.hash(&f.Hash) }},
		})
		m.Files = append(m.Files, f)
		return err
	})
}

func (p *parser) hash(h *Hash) error {
	var s string
	if err := p.text(&s); err != nil {
		return err
	}
	b, err := lowerHex(s)
	if err == nil && len(b) != len(h) {
		err = fmt.Errorf("a hash of %d bytes, not %d", len(b), len(h))
	}
	copy(h[:], b)
	return err
}

// scope reads "All", {"Prefix": "a."} and {"Prefixes": ["a.", "b."]}; null is none.
func (p *parser) scope(m *Manifest) error {
	tok, err := p.dec.Token()
	switch {
	case err != nil || tok == nil:
		return err
	case tok == scopeAll:
		m.HasScope = true
		return nil
	case tok != json.Delim('{'):
		return fmt.Errorf("%v is no scope", tok)
	}
	var prefixes []string
	add := func() error {
		prefixes = append(prefixes, "")
		return p.text(&prefixes[len(prefixes)-1])
	}
	forms := 0
	err = p.members([]member{
		{scopePrefix, true, func() error { forms++; return add() }},
		{scopePrefixes, true, func() error { forms++; return p.list(add) }},
	})
	if err == nil && forms != 1 {
		err = fmt.Errorf("%d forms of scope", forms)
	}
	if err != nil {
		return err
	}
	m.Scope, err = kv.Prefixes(prefixes...)
	m.HasScope = true
	return err
}

// maxSamples is far above what a fold notes.
const maxSamples = 64

func (p *parser) log(i *kv.Incarnation) error {
	sample := func() error {
		if len(i.Samples) == maxSamples {
			return fmt.Errorf("more than %d samples", maxSamples)
		}
		var s kv.Sample
		err := p.object([]member{
			{"revision", false, func() error { return p.unsigned(&s.Revision) }},
			{"unix_nano", false, func() (err error) { s.UnixNano, err = p.signed(true); return err }},
		})
		i.Samples = append(i.Samples, s)
		return err
	}
	return p.object([]member{
		{"created_unix_nano", false, func() (err error) { i.CreatedUnixNano, err = p.signed(true); return err }},
		{"age_limit_nano", true, func() error { return p.ageLimit(&i.AgeLimit) }},
		{"samples", false, func() error { return p.list(sample) }},
	})
}

func (p *parser) ageLimit(into *int64) (err error) {
	if *into, err = p.signed(true); err == nil && *into <= 0 {
		err = fmt.Errorf("%d is no limit", *into)
	}
	return err
}

func (p *parser) owed(o *kv.Owed) error {
	why := func() error {
		var name string
		if err := p.text(&name); err != nil {
			return err
		}
		for _, known := range []kv.Owes{kv.OwesIdentity, kv.OwesMarkers, kv.OwesListing} {
			if known.String() == name && o.Why&known == 0 {
				o.Why |= known
				return nil
			}
		}
		return fmt.Errorf("%q is no reason for an audit, or is there twice", name)
	}
	return p.object([]member{
		{"why", false, func() error { return p.list(why) }},
		{"at", false, func() error { return p.unsigned(&o.At) }},
	})
}

func (p *parser) schemas(m *Manifest) error {
	if err := p.delim('{'); err != nil {
		return err
	}
	m.Schemas = map[string]string{}
	return p.each(func(name string) error {
		if _, ok := m.Schemas[name]; ok {
			return fmt.Errorf("%q is there twice", name)
		}
		var record string
		err := p.text(&record)
		m.Schemas[name] = record
		return err
	})
}
