package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/typedfold/fold/runtime/store"
)

type diffFlags struct {
	commonFlags
	examples int
}

// difference is what two stores hold that is not the same. A row is a key with its newest value and revision.
type difference struct {
	A side `json:"a"`
	B side `json:"b"`
	// Same: the rows are the same, whatever the cursors are.
	Same     bool         `json:"same"`
	Equal    uint64       `json:"equal"`
	OnlyA    uint64       `json:"only_a"`
	OnlyB    uint64       `json:"only_b"`
	Differ   uint64       `json:"differ"`
	Examples []rowExample `json:"examples"`
}

type side struct {
	Path   string      `json:"path"`
	Bucket string      `json:"bucket"`
	Scope  string      `json:"scope"`
	Cursor cursorFacts `json:"cursor"`
	Log    *logFacts   `json:"log,omitempty"`
}

// rowExample is one key; the revision of a side that lacks it is 0.
type rowExample struct {
	Key string `json:"key"`
	A   uint64 `json:"a_revision,string"`
	B   uint64 `json:"b_revision,string"`
}

func (p *program) diffVerb() *cobra.Command {
	f := &diffFlags{}
	c := p.verb("diff A B", "Compare two stopped folds, or a fold and an artifact",
		`Opens two stores, or artifacts, to read them only, and compares their rows: each key with its newest value and revision, which is what
the digest hashes. It exits with 1 when they differ.`, 2, &f.json, func(ctx context.Context, args []string) error {
			return p.work(ctx, &f.commonFlags, func(ctx context.Context, told *progress) error { return p.diff(ctx, f, args[0], args[1], told) })
		})
	c.Flags().IntVar(&f.examples, "examples", 10, "the most keys to name of each sort")
	f.commonFlags.add(c, 30*time.Minute)
	return c
}

func (p *program) diff(ctx context.Context, f *diffFlags, a, b string, told *progress) (err error) {
	if f.examples < 0 {
		return usageError("0 names none", "--examples %d is no number of keys", f.examples)
	}
	if err := checkFolders(a, b); err != nil {
		return err
	}
	told.now("opening the stores")
	as, err := openStore(a, storeAuto)
	if err != nil {
		return lockedError(err)
	}
	defer func() { err = errors.Join(err, as.Close()) }()
	bs, err := openStore(b, storeAuto)
	if err != nil {
		return lockedError(err)
	}
	defer func() { err = errors.Join(err, bs.Close()) }()
	d := &difference{Examples: []rowExample{}}
	if d.A, err = sideOf(a, as); err != nil {
		return err
	}
	if d.B, err = sideOf(b, bs); err != nil {
		return err
	}
	told.now("comparing")
	if err := d.compare(ctx, as, bs, uint64(f.examples), told); err != nil {
		return err
	}
	if f.json {
		p.printJSON(d)
	} else {
		d.print(p.out)
	}
	if !d.Same {
		return errSaid
	}
	return nil
}

func sideOf(path string, s store.Store) (side, error) {
	f := storeFacts{}
	err := f.readMeta(s)
	return side{Path: path, Bucket: f.Bucket, Scope: f.Scope, Cursor: cursorOf(s.Cursor()), Log: f.Log}, err
}

// rows walks the rows of a store.
type rows struct {
	it  store.Iterator
	key []byte // nil at the end
	rec store.Record
}

func rowsOf(g store.Getter) (*rows, error) {
	lower := []byte{byte(store.SpaceData)}
	it, err := g.Iter(store.IterOptions{Lower: lower, Upper: store.PrefixEnd(lower)})
	return &rows{it: it}, err
}

func (r *rows) next() error {
	r.key = nil
	if !r.it.Next() {
		return r.it.Err()
	}
	value, err := r.it.Value()
	if err != nil {
		return err
	}
	if r.rec, err = store.ParseRecord(value); err != nil {
		return fmt.Errorf("key %q: %w", store.NATSKey(r.it.Key()), err)
	}
	r.key = r.it.Key()
	return nil
}

func (r *rows) revision() uint64 { return r.rec.Version.Rank() }

func (d *difference) compare(ctx context.Context, as, bs store.Getter, most uint64, told *progress) (err error) {
	a, err := rowsOf(as)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.it.Close()) }()
	b, err := rowsOf(bs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.it.Close()) }()
	err = errors.Join(a.next(), b.next())
	for err == nil && (a.key != nil || b.key != nil) {
		told.rows.Add(1)
		if err = ctx.Err(); err == nil {
			err = d.step(a, b, most)
		}
	}
	d.Same = d.OnlyA+d.OnlyB+d.Differ == 0
	return err
}

// step takes the first key of both, or of the one that alone has it.
func (d *difference) step(a, b *rows, most uint64) error {
	order := bytes.Compare(a.key, b.key)
	switch {
	case b.key == nil || a.key != nil && order < 0:
		d.add(&d.OnlyA, rowExample{store.NATSKey(a.key), a.revision(), 0}, most)
		return a.next()
	case a.key == nil || order > 0:
		d.add(&d.OnlyB, rowExample{store.NATSKey(b.key), 0, b.revision()}, most)
		return b.next()
	case a.rec.Version == b.rec.Version && bytes.Equal(a.rec.Value, b.rec.Value):
		d.Equal++
	default:
		d.add(&d.Differ, rowExample{store.NATSKey(a.key), a.revision(), b.revision()}, most)
	}
	return errors.Join(a.next(), b.next())
}

func (d *difference) add(n *uint64, e rowExample, most uint64) {
	if *n++; *n <= most {
		d.Examples = append(d.Examples, e)
	}
}

func (d *difference) print(w io.Writer) {
	verdict := "hold the same rows"
	if !d.Same {
		verdict = "differ"
	}
	fmt.Fprintf(w, "A in %s and B in %s %s.\n\n", d.A.Path, d.B.Path, verdict)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\tA\tB\n")
	pair := func(name, a, b string) { fmt.Fprintf(t, "%s:\t%s\t%s\n", name, a, b) }
	pair("bucket", orNone(d.A.Bucket), orNone(d.B.Bucket))
	pair("scope", orNone(d.A.Scope), orNone(d.B.Scope))
	pair("cursor", d.A.Cursor.String(), d.B.Cursor.String())
	pair("log", d.A.Log.String(), d.B.Log.String())
	pair("rows only there", fmt.Sprint(d.OnlyA), fmt.Sprint(d.OnlyB))
	_ = t.Flush() // what the output does not take can't be said there either
	fmt.Fprintf(w, "\n%d rows are the same, and %d differ.\n", d.Equal, d.Differ)
	if len(d.Examples) == 0 {
		return
	}
	fmt.Fprintln(w)
	fmt.Fprintf(t, "KEY\tREVISION IN A\tREVISION IN B\n")
	for _, e := range d.Examples {
		fmt.Fprintf(t, "%s\t%s\t%s\n", e.Key, revision(cursorFacts{Revision: e.A}), revision(cursorFacts{Revision: e.B}))
	}
	_ = t.Flush()
}
