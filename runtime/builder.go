package fold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/schema"
	"github.com/typedfold/fold/runtime/store"
)

// Builder gathers the tables of one bucket's fold. It is used by one goroutine, and once.
type Builder struct {
	bucket  kv.Bucket
	store   store.Store
	o       Options
	logical string
	tables  []anyTable
	started bool
	errs    []error
	// refoldRows is how many rows a refold looks at in one batch.
	refoldRows int
}

// NewBuilder begins a fold of the bucket in the store. What is wrong with the options is reported by Start.
func NewBuilder(bucket Bucket, s Store, o Options) *Builder {
	b := &Builder{bucket: bucket, store: s, o: o, refoldRows: refoldRows}
	if err := o.Validate(); err != nil {
		b.errs = append(b.errs, err)
	}
	if bucket != nil {
		b.logical = cmp.Or(o.Bucket, bucket.Name())
	} else {
		b.errs = append(b.errs, errors.New("no bucket"))
	}
	if s == nil {
		b.errs = append(b.errs, errors.New("no store"))
	}
	b.o.ShutdownTimeout = cmp.Or(o.ShutdownTimeout, DefaultShutdownTimeout)
	if b.o.Logger == nil {
		b.o.Logger = slog.Default()
	}
	return b
}

// Register adds a table; generated code wraps it. A table of another logical bucket, one that was registered already,
// and one whose pattern overlaps another's are refused.
func Register[K Key, V proto.Message](b *Builder, d *Desc[K, V], opts ...TableOption) (*Table[K, V], error) {
	c, err := d.compile()
	if err != nil {
		return nil, err
	}
	if b.started {
		return nil, fmt.Errorf("register table %s: the fold has been started", c.name)
	}
	if err := b.admits(c.table); err != nil {
		return nil, fmt.Errorf("register table %s: %w", c.name, err)
	}
	var o tableOptions
	o.apply(opts)
	hooks, err := hooksOf[K, V](o, c.name)
	if err != nil {
		return nil, err
	}
	if isNil(o.validator) {
		o.validator = b.o.Validator
	}
	if c, err = c.validating(o.validator, hintTableValidator); err != nil {
		return nil, fmt.Errorf("register: %w", err)
	}
	if err := c.prepare(func() proto.Message { return d.newValue() }); err != nil {
		return nil, fmt.Errorf("register table %s: its validator: %w", c.name, err)
	}
	t := &tableState[K, V]{tableBase: tableBase{c: c, index: len(b.tables)}, desc: d, hooks: hooks}
	if err := t.compileIndexes(); err != nil {
		return nil, fmt.Errorf("register table %s: %w", c.name, err)
	}
	if o.resident {
		t.residents = xsync.NewMap[K, V]()
	}
	b.tables = append(b.tables, t)
	return &Table[K, V]{t: t}, nil
}

// admits says why a table can't join, if it can't.
func (b *Builder) admits(t *schema.Table) error {
	if t.Bucket != b.logical {
		return &BucketError{What: "table " + t.GoName, Has: t.Bucket, Want: b.logical, hint: hintTableOfFold}
	}
	if !scopeMeets(b.o.Scope, t) {
		return fmt.Errorf("its keys %q all lie outside of the fold's scope %v", t.Key(), b.o.Scope)
	}
	for _, other := range b.tables {
		have := other.base().c.table
		if have.Message == t.Message {
			return fmt.Errorf("it is registered already")
		}
		if witness, ok := schema.Overlap(have, t); ok {
			return &OverlapError{A: have.GoName, B: t.GoName, PatternA: have.Key(), PatternB: t.Key(), Witness: witness}
		}
	}
	return nil
}

func scopeMeets(s kv.Scope, t *schema.Table) bool {
	if s.IsAll() {
		return true
	}
	for _, p := range s.List() {
		if strings.HasPrefix(t.Prefix(), p) || !t.Singleton() && strings.HasPrefix(p, t.Prefix()) {
			return true
		}
	}
	return false
}

// Start checks the store against the bucket and the schemas, brings in line with them what was stored under others, loads
// resident tables, runs Load hooks, and then folds in the background: it returns before the fold has reached the server,
// so that a node serves what it has on disk while the server is away. ctx bounds only Start itself. The fold owns the
// store from then on: Close closes it. When Start fails, the store is the caller's to close.
func (b *Builder) Start(ctx context.Context) (*Fold, error) {
	if b.started {
		return nil, errors.New("start fold: started already")
	}
	if err := errors.Join(b.errs...); err != nil {
		return nil, fmt.Errorf("start fold: %w", err)
	}
	b.started = true
	f := &Fold{store: b.store, bucket: b.bucket.Name(), o: b.o}
	f.sink = newTableSink(b.tables, b.store, b.o.Events)
	if err := b.prepare(ctx, f); err != nil {
		return nil, fmt.Errorf("start fold of bucket %q: %w", b.bucket.Name(), err)
	}
	f.begin(b.bucket)
	return f, nil
}

func (b *Builder) prepare(ctx context.Context, f *Fold) error {
	if err := b.checkStore(ctx); err != nil {
		return err
	}
	build := indexBuild{store: b.store, tables: b.tables, log: b.o.Logger, told: b.o.Events.Rebuild}
	if err := build.run(ctx); err != nil {
		return err
	}
	if err := f.sink.rejected.load(b.store); err != nil {
		return err
	}
	for _, t := range b.tables {
		c := &t.base().count
		c.commits, c.allowed, c.table = &f.sink.commits, f.sink.hydrated.Load, string(t.base().c.table.Message)
		if err := c.load(b.store); err != nil {
			return err
		}
		if w := t.base().entries; w != nil {
			if err := w.begin(b.store); err != nil {
				return err
			}
		}
		if err := t.load(ctx, b.store); err != nil {
			return err
		}
	}
	return nil
}
