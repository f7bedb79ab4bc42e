package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/artifact/transport"
	"github.com/typedfold/fold/runtime/protocol"
)

type verifyFlags struct {
	commonFlags
	key, generation, scratch, schema string
}

// verified is the result of a check that passed.
type verified struct {
	Artifact artifactFacts `json:"artifact"`
	Store    storeFacts    `json:"store"`
	Indexes  indexFacts    `json:"indexes"`
}

// artifactFacts are what a manifest says.
type artifactFacts struct {
	Name    string      `json:"name"`
	Schema  int         `json:"schema"`
	Backend string      `json:"backend"`
	Format  string      `json:"format"`
	Bucket  string      `json:"bucket"`
	Scope   string      `json:"scope"`
	Cursor  cursorFacts `json:"cursor"`
	Log     *logFacts   `json:"log,omitempty"`
	Owed    *owedFacts  `json:"owed,omitempty"`
	Created time.Time   `json:"created"`
	Files   int         `json:"files"`
	Bytes   int64       `json:"bytes"`
}

func artifactOf(m *artifact.Manifest) artifactFacts {
	f := artifactFacts{
		Name: transport.Name(*m), Schema: m.Schema, Backend: m.Backend, Format: m.Format, Bucket: m.Bucket, Cursor: cursorOf(m.Cursor),
		Log: logOf(m.Log), Owed: owedOf(m.Owed), Created: m.Created.UTC(), Files: len(m.Files), Bytes: m.Size(),
	}
	if m.HasScope {
		f.Scope = m.Scope.String()
	}
	return f
}

func (p *program) verifyVerb() *cobra.Command {
	f := &verifyFlags{}
	c := p.verb("verify DIR|URL", "Check an artifact, in a folder or in an object store",
		`Checks every file of an artifact against its manifest, opens it to be read only, and reads all of it. Of an object store it takes
the newest generation, or the one that --generation names, and downloads it into a folder that is removed again.

Each entry of a secondary index must be of a key that has a row. With --schema, a file of the descriptors of the tables, the
indexes are compared with the rows' values too, both ways.

It exits with 1 when the artifact is no good.`, 1, &f.json, func(ctx context.Context, args []string) error {
			return p.work(ctx, &f.commonFlags, func(ctx context.Context, told *progress) error { return p.verify(ctx, f, args[0], told) })
		})
	addKey(c, &f.key)
	c.Flags().StringVar(&f.generation, "generation", "", "the `name` of a generation, as fold artifacts lists it (default the newest)")
	c.Flags().StringVar(&f.scratch, "scratch", "", "`folder` for the download (default the system's)")
	c.Flags().StringVar(&f.schema, "schema", "", "`file` of the tables' descriptors, as buf build -o writes it")
	f.commonFlags.add(c, time.Hour)
	return c
}

func (p *program) verify(ctx context.Context, f *verifyFlags, at string, told *progress) (err error) {
	if err := checkFolders(f.scratch); err != nil {
		return err
	}
	tables, err := tablesOf(f.schema)
	if err != nil {
		return err
	}
	where := at
	if isURL(at) {
		scratch, scratchErr := artifact.NewScratch(cmp.Or(f.scratch, os.TempDir()))
		if scratchErr != nil {
			return scratchErr
		}
		defer func() { err = errors.Join(err, scratch.Remove()) }()
		if where, err = f.download(ctx, at, filepath.Join(scratch.Dir(), "artifact"), told); err != nil {
			return err
		}
	} else if f.key != "" || f.generation != "" {
		return usageError("leave out --key and --generation", "%s is a folder, which is one artifact", at)
	}
	told.now("verifying")
	m, err := artifact.Verify(ctx, where, taken())
	if err != nil {
		return err
	}
	facts, err := inspected(ctx, filepath.Join(where, artifact.DataName), storeAuto, told)
	if err != nil {
		return err
	}
	indexes, err := checkIndexes(ctx, filepath.Join(where, artifact.DataName), tables, told)
	if err != nil {
		return err
	}
	if isURL(at) {
		at = objects.RedactURL(at)
	}
	facts.Path = at
	p.printVerified(f.json, at, verified{artifactOf(&m), facts, indexes})
	return nil
}

func (p *program) printVerified(json bool, at string, v verified) {
	if json {
		p.printJSON(v)
		return
	}
	fmt.Fprintf(p.out, "The artifact %s in %s is good: %d files, %d bytes, exported at %s.\n\n",
		v.Artifact.Name, at, v.Artifact.Files, v.Artifact.Bytes, stamp(v.Artifact.Created))
	v.Store.print(p.out)
	v.Indexes.print(p.out)
}

// download brings one generation to a folder.
func (f *verifyFlags) download(ctx context.Context, url, to string, told *progress) (_ string, err error) {
	t, s, err := remote(ctx, url, f.key, told)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	told.now("listing the artifacts")
	g, err := chosen(ctx, t, f.key, f.generation)
	if err != nil {
		return "", err
	}
	told.now("downloading " + g.Name)
	return to, t.Download(ctx, g.Manifest, to, taken())
}

// chosen is the generation of that name, or the one that the pointer names.
func chosen(ctx context.Context, t *transport.Transport, key, name string) (g transport.Generation, err error) {
	ok := false
	if name == "" {
		if g, ok, err = t.Pointer(ctx); err != nil {
			return g, err
		}
	} else {
		all, err := t.Manifests(ctx, protocol.Position{})
		if err != nil {
			return g, err
		}
		for _, one := range all {
			if one.Name == name {
				g, ok = one, true
			}
		}
	}
	if !ok {
		return g, &codeError{code: exitFailed, err: fmt.Errorf("no %s under %q", cmp.Or(name, "artifact"), key), hint: "fold artifacts lists what is there"}
	}
	return g, g.Err
}
