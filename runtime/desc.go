package fold

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/typedfold/fold/internal/wire"
	"github.com/typedfold/fold/runtime/keyenc"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/schema"

	foldv1 "github.com/typedfold/fold/gen/go/fold/v1"
)

// MaxKeyBytes is the longest key that a writer sends: the server's control line holds the subject, and a delivery's
// reply subject beside it.
const MaxKeyBytes = 3584

// DescConfig is what generated code knows of a table that the runtime can't read from the message's descriptor.
type DescConfig[K Key, V proto.Message] struct {
	// ParseKey reads a NATS key; its error is a *Rejection.
	ParseKey func(string) (K, error)
	// KeyOf is the key that a value belongs to; its error is a *Rejection. A table that has a variable in the key only
	// has none.
	KeyOf func(V) (K, error)
	// Bound is the given key with what the value says of it; its error is a *Rejection. It is for a table without KeyOf,
	// and nil when no variable is a field.
	Bound func(V, K) (K, error)
	// Fill sets the value's key fields; only for tables bound by FILL.
	Fill func(V, K) error
}

// Desc describes one table: generated code has one for each. It is immutable and safe for concurrent use.
type Desc[K Key, V proto.Message] struct {
	cfg     DescConfig[K, V]
	message func() protoreflect.MessageType
	compile func() (*compiled, error)
}

// compiled is what is derived from the options, once.
type compiled struct {
	table *schema.Table
	// checker is nil where values have to be decoded to know.
	checker *wire.Checker
	// slots are where the checker puts the fields of each variable; nil for one that is in the key only.
	slots  []keySlots
	name   string
	codecs codecs
	// validator judges decoded values. It is nil in what a Desc compiles: who judges with one has a copy.
	validator Validator
	// hexText: some key token holds a string's bytes as digits, so that it can be read and yet be no text.
	hexText bool
}

// NewDesc makes a table's description; for generated code. The options are read from V's linked descriptor at the
// first use, which reports what is wrong with them.
func NewDesc[K Key, V proto.Message](cfg DescConfig[K, V]) *Desc[K, V] {
	d := &Desc[K, V]{cfg: cfg}
	// A table in its message's own package is described before that package's init has made the message type.
	d.message = sync.OnceValue(func() protoreflect.MessageType { var zero V; return zero.ProtoReflect().Type() })
	d.compile = sync.OnceValues(func() (*compiled, error) { return compileTable(d.message().Descriptor()) })
	return d
}

func compileTable(md protoreflect.MessageDescriptor) (*compiled, error) {
	t, problems := schema.Compile(md)
	if len(problems) > 0 {
		errs := make([]error, len(problems))
		for i, p := range problems {
			errs[i] = p
		}
		return nil, fmt.Errorf("schema of %s: %w", md.FullName(), errors.Join(errs...))
	}
	c := &compiled{table: t, name: t.GoName, codecs: compileCodecs(t, md)}
	for i := range t.Vars {
		c.hexText = c.hexText || t.Vars[i].Kind == keyenc.KindString && t.Vars[i].Enc == keyenc.EncHex
	}
	if !c.codecs.reads(foldv1.Codec_CODEC_PROTO) {
		return c, nil
	}
	var paths keyPaths
	if t.Bind != foldv1.Bind_BIND_FILL {
		c.slots = paths.addAll(t.Vars)
	}
	checker, err := wire.Compile(md, paths)
	if err != nil && !errors.Is(err, wire.ErrUncheckable) {
		return nil, fmt.Errorf("schema of %s: %w", md.FullName(), err)
	}
	c.checker = checker
	return c, nil
}

func (d *Desc[K, V]) newValue() V { return d.message().New().Interface().(V) }

// keyOf is the key that a value belongs to; what only a key can say is taken from k.
func (d *Desc[K, V]) keyOf(v V, k K) (K, error) {
	switch {
	case d.cfg.KeyOf != nil:
		return d.cfg.KeyOf(v)
	case d.cfg.Bound != nil:
		return d.cfg.Bound(v, k)
	}
	return k, nil
}

// fills reports whether values get their key fields from the key.
func (c *compiled) fills() bool { return c.table.Bind == foldv1.Bind_BIND_FILL && c.table.Bound() }

// decodeInto decodes a value and its Content-Type, as they were delivered or stored, into dst, which is reset first, and
// fills it where the table says so.
func (d *Desc[K, V]) decodeInto(c *compiled, value []byte, contentType string, k K, dst V) error {
	if err := c.codecs.decode(value, contentType, dst); err != nil {
		return err
	}
	if c.fills() {
		return d.cfg.Fill(dst, k)
	}
	return nil
}

// parse is the whole judgement of one put: the key, the value, that they agree, and what the validator says, if c has
// one. The wire check accepts only what parse accepts.
func (d *Desc[K, V]) parse(c *compiled, u *kv.Update) (k K, v V, rej *Rejection) {
	k, err := d.cfg.ParseKey(u.Key)
	if err != nil {
		return k, v, c.reject(u, KeySegment, err)
	}
	if rej := c.tooLarge(u); rej != nil {
		return k, v, rej
	}
	v = d.newValue()
	if err := d.decodeInto(c, u.Value, u.ContentType, k, v); err != nil {
		return k, v, c.reject(u, ValueDecode, err)
	}
	if !c.fills() {
		of, err := d.keyOf(v, k)
		if err != nil {
			return k, v, c.reject(u, KeyValueMismatch, err)
		}
		if of != k {
			return k, v, c.mismatch(u, of)
		}
	}
	return k, v, c.validate(u, v)
}

// check is parse without decoding: nil says that parse would accept. Anything that it can't accept on sight goes to
// parse, whose word is final. scratch is used and handed back.
func (d *Desc[K, V]) check(c *compiled, u *kv.Update, s *checkScratch) *Rejection {
	if d.passes(c, u, s) {
		return nil
	}
	_, _, rej := d.parse(c, u)
	return rej
}

// passes reports whether the put is one that parse accepts, as far as that can be told without decoding: false says
// nothing.
func (d *Desc[K, V]) passes(c *compiled, u *kv.Update, s *checkScratch) bool {
	return c.validator == nil && c.tooLarge(u) == nil && c.decodesOnSight(u, s) && d.keyIsCanonical(c, u.Key)
}

// decodesOnSight reports whether the value can be decoded by the codec that its header chooses, and has the key's fields.
// JSON has to be decoded to know.
func (c *compiled) decodesOnSight(u *kv.Update, s *checkScratch) bool {
	switch codec, _ := c.codecs.chosen(u.ContentType); codec {
	case foldv1.Codec_CODEC_PROTO:
		return c.checker != nil && c.checkWire(u, s)
	case foldv1.Codec_CODEC_RAW: // the schema has it hold no field of the key
		return c.codecs.isRaw(u.Value)
	}
	return false
}

// keyIsCanonical reports whether the key can be read and can fill a value, as far as checkWire has not found out. Bytes
// past ASCII, which begin with 'z' in an ESC token and are digits like all others in a HEX one, may be no text that a
// field can hold: parse tells.
func (d *Desc[K, V]) keyIsCanonical(c *compiled, key string) bool {
	switch {
	case c.fills() && (c.hexText || strings.IndexByte(key, 'z') >= 0):
		return false
	case !c.fills() && !c.table.KeyOnly():
		return true // every token is what a field is written as
	}
	_, err := d.cfg.ParseKey(key)
	return err == nil
}

// checkScratch is one goroutine's working memory for wire checks.
type checkScratch struct {
	fields []wire.Field
	token  []byte
}

func (c *compiled) checkWire(u *kv.Update, s *checkScratch) bool {
	n := c.checker.Keys()
	if cap(s.fields) < n {
		s.fields = make([]wire.Field, n)
	}
	s.fields = s.fields[:n]
	if c.checker.Check(u.Value, s.fields) != nil {
		return false
	}
	if c.fills() {
		return true
	}
	rest := u.Key
	for i := range c.table.Pattern {
		tok := &c.table.Pattern[i]
		token := rest
		if dot := strings.IndexByte(rest, '.'); dot >= 0 && (tok.Var < 0 || !c.table.Vars[tok.Var].Tail) {
			token, rest = rest[:dot], rest[dot+1:]
		}
		if tok.Var < 0 {
			continue // Matches has compared the literals
		}
		v := &c.table.Vars[tok.Var]
		if v.KeyOnly() {
			continue
		}
		slots := &c.slots[tok.Var]
		f := slots.field(s.fields)
		if v.Presence && !f.Present {
			return false
		}
		var ok bool
		if s.token, ok = appendField(s.token[:0], v, f, slots, s.fields); !ok || string(s.token) != token {
			return false
		}
	}
	return true
}

func (c *compiled) tooLarge(u *kv.Update) *Rejection {
	if limit := c.table.MaxValueBytes; limit > 0 && len(u.Value) > int(limit) {
		return c.reject(u, ValueTooLarge, fmt.Errorf("%d bytes, at most %d", len(u.Value), limit))
	}
	return nil
}

// reject completes the rejection of an update: err's own where it is one, else one of the given code.
func (c *compiled) reject(u *kv.Update, code RejectCode, err error) *Rejection {
	out := Rejection{Code: code, Err: err}
	var rej *Rejection
	if errors.As(err, &rej) && rej != nil {
		out = *rej
	}
	out.Table, out.Key, out.Revision = c.name, u.Key, u.Version.Rank()
	return &out
}

// mismatch names the first variable in which the value's own key differs.
func (c *compiled) mismatch(u *kv.Update, of Keyer) *Rejection {
	own, err := of.AppendKey(nil)
	if err != nil {
		return c.reject(u, KeyValueMismatch, err)
	}
	rej := c.reject(u, KeyValueMismatch, fmt.Errorf("the value belongs to key %q", own))
	want := strings.Split(u.Key, ".")
	for i, tok := range bytes.Split(own, []byte{'.'}) {
		if i < len(want) && string(tok) == want[i] {
			continue
		}
		if p := c.table.Pattern[min(i, len(c.table.Pattern)-1)]; p.Var >= 0 {
			rej.Field = c.table.Vars[p.Var].Name
		}
		break
	}
	return rej
}

// Keyer is what can write itself as a NATS key.
type Keyer interface {
	AppendKey([]byte) ([]byte, error)
}

// ParseEvent is the judgement of one message by a table: its event, or why it is refused. It is pure, and has no
// validator: a table's validate option is none of its business.
func ParseEvent[K Key, V proto.Message](d *Desc[K, V], e RawEntry) (Event[K, V], *Rejection) {
	c, err := d.compile()
	if err != nil {
		return Event[K, V]{}, &Rejection{Code: KeyNoPattern, Key: e.Key, Revision: e.Version.Rank(), Err: err}
	}
	return d.event(c, &e)
}

func (d *Desc[K, V]) event(c *compiled, u *kv.Update) (Event[K, V], *Rejection) {
	ev := Event[K, V]{Op: u.Op, Reason: u.Reason, Time: u.Time()}
	var rej *Rejection
	if u.Op == kv.OpPut {
		ev.Key, ev.New, rej = d.parse(c, u)
	} else {
		var err error
		if ev.Key, err = d.cfg.ParseKey(u.Key); err != nil {
			rej = c.reject(u, KeySegment, err)
		}
	}
	if rej != nil {
		return Event[K, V]{}, rej
	}
	ev.Rev = Rev[K]{key: ev.Key, seq: u.Version.Rank()}
	return ev, nil
}
