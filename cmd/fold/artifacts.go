package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/typedfold/fold/runtime/artifact/transport"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
)

type artifactsFlags struct {
	commonFlags
	logFlags
	key string
}

// listing is what is under a key, the newest generation first and those that can't be read last.
type listing struct {
	Key string `json:"key"`
	// Log is there where it was asked.
	Log         *logBounds   `json:"log,omitempty"`
	Generations []generation `json:"generations"`
}

type logBounds struct {
	Bucket  string    `json:"bucket"`
	Created time.Time `json:"created"`
	First   uint64    `json:"first,string"`
	Last    uint64    `json:"last,string"`
}

type generation struct {
	Name    string         `json:"name"`
	Current bool           `json:"current"`
	Stored  *time.Time     `json:"stored,omitempty"`
	Age     float64        `json:"age_seconds"` // since it was exported
	Fresh   *bool          `json:"fresh,omitempty"`
	About   *artifactFacts `json:"artifact,omitempty"`
	Error   string         `json:"error,omitempty"`
}

func (p *program) artifactsVerb() *cobra.Command {
	f := &artifactsFlags{}
	c := p.verb("artifacts URL --key KEY", "List the generations of a fold's artifacts in an object store",
		`Lists the artifacts of one fold, the newest first. With --server or --bucket it asks the log, too, whether a fold can go on from each
of them without a gap, and exits with 1 when it can from none.`, 1, &f.json, func(ctx context.Context, args []string) error {
			return p.work(ctx, &f.commonFlags, func(ctx context.Context, told *progress) error { return p.artifacts(ctx, f, args[0], told) })
		})
	addKey(c, &f.key)
	f.logFlags.add(c, "the bucket's `name` (default that of the newest artifact, with --server)")
	f.commonFlags.add(c, 5*time.Minute)
	return c
}

func (p *program) artifacts(ctx context.Context, f *artifactsFlags, url string, told *progress) (err error) {
	t, s, err := remote(ctx, url, f.key, told)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	told.now("listing the artifacts")
	all, err := t.Manifests(ctx, protocol.Position{})
	if err != nil {
		return err
	}
	log, err := f.read(ctx, p.env, all, told)
	if err != nil {
		return err
	}
	if log != nil { // by which artifacts of logs that are gone come last
		if all, err = t.Manifests(ctx, transport.End(*log)); err != nil {
			return err
		}
	}
	l := list(f.key, all, log, time.Now())
	p.printListing(f.json, l)
	if f.asked() && !l.anyFresh() {
		return errSaid
	}
	return nil
}

// read is the log as it is now; nil when it is not asked for, and where nothing says which one it is since there are no
// artifacts.
func (f *artifactsFlags) read(ctx context.Context, env func(string) string, all []transport.Generation, told *progress) (*kv.LogInfo, error) {
	if len(all) == 0 && f.bucket == "" {
		return nil, nil
	}
	live, err := f.live(ctx, env, bucketOf(all), told)
	if live == nil || err != nil {
		return nil, err
	}
	defer live.close()
	info, err := live.Live(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the log: %w", err)
	}
	return &info, nil
}

func list(key string, all []transport.Generation, log *kv.LogInfo, now time.Time) *listing {
	l := &listing{Key: key, Generations: []generation{}}
	if log != nil {
		l.Log = &logBounds{Bucket: log.Bucket, Created: log.Created.UTC(), First: log.First, Last: log.Last}
	}
	for _, g := range all {
		one := generation{Name: g.Name, Current: g.Current, Stored: someTime(g.Stored)}
		if g.Err != nil {
			one.Error = g.Err.Error()
			l.Generations = append(l.Generations, one)
			continue
		}
		about := artifactOf(&g.Manifest)
		one.About, one.Age = &about, now.Sub(about.Created).Seconds()
		if log != nil {
			is := fresh(&g.Manifest, *log)
			one.Fresh = &is
		}
		l.Generations = append(l.Generations, one)
	}
	return l
}

func (l *listing) anyFresh() bool {
	for _, g := range l.Generations {
		if g.Fresh != nil && *g.Fresh {
			return true
		}
	}
	return false
}

func (p *program) printListing(json bool, l *listing) {
	if json {
		p.printJSON(l)
		return
	}
	if len(l.Generations) == 0 {
		fmt.Fprintf(p.out, "There are no artifacts under %q.\n", l.Key)
		return
	}
	if l.Log != nil {
		fmt.Fprintf(p.out, "The log of bucket %q holds revisions %d to %d.\n\n", l.Log.Bucket, l.Log.First, l.Log.Last)
	}
	t := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "GENERATION\tCURSOR\tAGE\tBYTES\tBACKEND\tBUCKET\tLOG\tSTATE\n")
	for _, g := range l.Generations {
		if g.About == nil {
			fmt.Fprintf(t, "%s\t\t\t\t\t\t\t%s\n", orNone(g.Name), "can't be used: "+g.Error)
			continue
		}
		a := g.About
		fmt.Fprintf(t, "%s\t%s\t%v\t%d\t%s\t%s\t%s\t%s\n", g.Name, revision(a.Cursor), age(g.Age), a.Bytes, a.Backend, orNone(a.Bucket), logText(a.Log), g.state())
	}
	_ = t.Flush() // what the output does not take can't be said there either
}

func revision(c cursorFacts) string {
	if c.Revision == 0 {
		return "none"
	}
	return strconv.FormatUint(c.Revision, 10)
}

func age(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second)
}

func logText(l *logFacts) string {
	if l == nil {
		return "not recorded"
	}
	return stamp(l.Created)
}

func (g *generation) state() string {
	text := ""
	if g.Fresh != nil {
		text = "stale"
		if *g.Fresh {
			text = "fresh"
		}
	}
	if g.Current {
		if text != "" {
			text += ", "
		}
		text += "newest"
	}
	return text
}
