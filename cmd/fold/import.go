package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/artifact/transport"
	"github.com/typedfold/fold/runtime/protocol"
)

type importFlags struct {
	commonFlags
	logFlags
	key, generation, to string
}

// imported is an import that succeeded.
type imported struct {
	From     string        `json:"from"`
	To       string        `json:"to"`
	Artifact artifactFacts `json:"artifact"`
	// Refused are generations that are newer and no good.
	Refused []string `json:"refused,omitempty"`
}

func (p *program) importVerb() *cobra.Command {
	f := &importFlags{}
	c := p.verb("import DIR|URL --to DIR", "Make an artifact the store of a fold",
		`Checks an artifact and makes a copy of its store, for a fold that starts there. Of an object store it takes the newest generation that is
good; with --server or --bucket the newest that the log can be followed from without a gap. Nothing is at the destination after a
failure.`, 1, &f.json, func(ctx context.Context, args []string) error {
			return p.work(ctx, &f.commonFlags, func(ctx context.Context, told *progress) error { return p.importFrom(ctx, f, args[0], told) })
		})
	c.Flags().StringVar(&f.to, "to", "", "the `folder` of the new store, which must be absent or empty")
	addKey(c, &f.key)
	c.Flags().StringVar(&f.generation, "generation", "", "the `name` of the generation to take, whatever is newer")
	f.logFlags.add(c, "the bucket's `name`, whose log the artifact must be good for (default that of the newest artifact, with --server)")
	f.commonFlags.add(c, time.Hour)
	return c
}

func (p *program) importFrom(ctx context.Context, f *importFlags, from string, told *progress) error {
	if f.to == "" {
		return usageError("name the folder of the new store", "--to is missing")
	}
	if err := checkFolders(f.to); err != nil {
		return err
	}
	if f.generation != "" && f.asked() {
		return usageError("leave out --bucket and --server", "--generation takes that one, whatever the log says")
	}
	done, err := f.take(ctx, p.env, from, told)
	if err != nil {
		return err
	}
	if f.json {
		p.printJSON(done)
		return nil
	}
	fmt.Fprintf(p.out, "The artifact %s of bucket %q, at cursor %s, is now the store in %s.\n", done.Artifact.Name, done.Artifact.Bucket, done.Artifact.Cursor, f.to)
	for _, r := range done.Refused {
		fmt.Fprintf(p.out, "not taken: %s\n", r)
	}
	return nil
}

func (f *importFlags) take(ctx context.Context, env func(string) string, from string, told *progress) (done imported, err error) {
	if isURL(from) {
		return f.takeRemote(ctx, env, from, told)
	}
	if f.key != "" || f.generation != "" || f.bucket != "" || f.server != "" {
		return done, usageError("leave out --key, --generation, --bucket and --server", "%s is a folder, which is taken as it is", from)
	}
	told.now("importing")
	m, err := artifact.Import(ctx, from, f.to, taken())
	return imported{From: from, To: f.to, Artifact: artifactOf(&m)}, err
}

func (f *importFlags) takeRemote(ctx context.Context, env func(string) string, url string, told *progress) (done imported, err error) {
	t, s, err := remote(ctx, url, f.key, told)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	done = imported{From: objects.RedactURL(url), To: f.to}
	told.now("listing the artifacts")
	all, err := t.Manifests(ctx, protocol.Position{})
	if err != nil {
		return done, err
	}
	var m artifact.Manifest
	switch {
	case f.generation != "":
		m, err = f.takeNamed(ctx, t, told)
	case f.asked() && (f.bucket != "" || len(all) > 0):
		m, err = f.takeFollowed(ctx, env, t, all, told)
	default:
		m, done.Refused, err = takeNewest(ctx, t, all, f, told)
	}
	done.Artifact = artifactOf(&m)
	return done, err
}

func (f *importFlags) takeNamed(ctx context.Context, t *transport.Transport, told *progress) (artifact.Manifest, error) {
	g, err := chosen(ctx, t, f.key, f.generation)
	if err != nil {
		return g.Manifest, err
	}
	told.now("importing " + g.Name)
	return g.Manifest, t.Import(ctx, g.Manifest, f.to, taken())
}

func (f *importFlags) takeFollowed(ctx context.Context, env func(string) string, t *transport.Transport, all []transport.Generation, told *progress) (artifact.Manifest, error) {
	live, err := f.live(ctx, env, bucketOf(all), told)
	if err != nil {
		return artifact.Manifest{}, err
	}
	defer live.close()
	told.now("importing")
	return t.Bootstrap(ctx, f.to, live.Live, taken())
}

// bucketOf is the bucket of the newest artifact that says it.
func bucketOf(all []transport.Generation) string {
	for _, g := range all {
		if g.Err == nil && g.Manifest.Bucket != "" {
			return g.Manifest.Bucket
		}
	}
	return ""
}

// takeNewest imports the newest generation that is good.
func takeNewest(ctx context.Context, t *transport.Transport, all []transport.Generation, f *importFlags, told *progress) (m artifact.Manifest, refused []string, err error) {
	for _, g := range all {
		if err = g.Err; err == nil {
			told.now("importing " + g.Name)
			err = t.Import(ctx, g.Manifest, f.to, taken())
		}
		if err == nil {
			return g.Manifest, refused, nil
		}
		if !errors.Is(err, artifact.ErrInvalid) && !errors.Is(err, transport.ErrGone) {
			return m, refused, err
		}
		refused = append(refused, err.Error())
	}
	text := fmt.Sprintf("there is no artifact under %q", f.key)
	if len(refused) > 0 {
		text = fmt.Sprintf("no artifact under %q is good: %s", f.key, strings.Join(refused, "; "))
	}
	return m, refused, &codeError{code: exitFailed, err: errors.New(text), hint: "fold artifacts lists what is there; a fold that runs can export again"}
}
