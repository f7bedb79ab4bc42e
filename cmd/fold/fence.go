package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
)

// bucketFlags are those of each verb that works on a bucket and on no store.
type bucketFlags struct {
	commonFlags
	serverFlags
}

func (f *bucketFlags) add(c *cobra.Command) {
	f.serverFlags.add(c)
	f.commonFlags.add(c, time.Minute)
}

// onBucket has a verb work on a bucket that exists.
func (p *program) onBucket(ctx context.Context, f *bucketFlags, name string, do func(context.Context, *natskv.Bucket, *progress) error) error {
	if name == "" {
		return usageError("nats kv ls lists the buckets", "the bucket's name is empty")
	}
	return p.work(ctx, &f.commonFlags, func(ctx context.Context, told *progress) error {
		told.now("connecting")
		conn, b, err := f.bind(ctx, p.env, name)
		defer func() { _ = conn.Shutdown(context.WithoutCancel(ctx)) }()
		if errors.Is(err, kv.ErrBucketNotFound) {
			return &codeError{code: exitFailed, err: err, hint: "nats kv ls lists the buckets; the name is that of the stream without KV_"}
		}
		if err != nil {
			return err
		}
		return do(ctx, b, told)
	})
}

type fenceFlags struct {
	bucketFlags
	clear bool
}

// fenced is the result of a fence.
type fenced struct {
	Bucket string `json:"bucket"`
	// FencingToken is the installed one; "" is none.
	FencingToken string `json:"fencing_token"`
	// Tail is the log's last revision right after.
	Tail uint64 `json:"tail,string"`
}

func (p *program) fenceVerb() *cobra.Command {
	const use = "fence BUCKET TOKEN|--clear"
	f := &fenceFlags{}
	c := p.verb(use, "Install or rotate a bucket's fencing token, or clear it",
		`Installs a fencing token on a bucket, whatever is installed: from then on the fold's writers of the bucket are those that present
this token (fold.WithFencingToken), and every other one is refused. With --clear they are those that present none. Pick a fresh
token for each owner: UTF-8, at most 36 bytes. One that is installed already changes nothing.

It prints the log's last revision right after: what the fold's writers wrote up to it was let in under the token before, and
nothing above it will be. It is concurrency control and no authorization.`, 2, &f.json, func(ctx context.Context, args []string) error {
			return p.fence(ctx, f, args)
		})
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) < 1 || len(args) > 2 {
			return usageError("see "+c.CommandPath()+" --help", "it is called as fold %s, got %d arguments", use, len(args))
		}
		return nil
	}
	c.Flags().BoolVar(&f.clear, "clear", false, "take the token away: the writers are those that present none")
	f.bucketFlags.add(c)
	return c
}

// token is the one to install. An empty one is what a variable that is not set gives, so only --clear takes a token away.
func (f *fenceFlags) token(args []string) (string, error) {
	switch {
	case f.clear && len(args) == 2:
		return "", usageError("leave out one of the two", "a token and --clear are both given")
	case f.clear:
		return "", nil
	case len(args) < 2:
		return "", usageError("give the token to install, or --clear to take away the one that stands", "the token is missing")
	case args[1] == "":
		return "", usageError("--clear takes away the one that stands", "the token is empty")
	}
	if err := kv.ValidFencingToken(args[1]); err != nil {
		return "", usageError("any short text will do, such as a counter or a UUID, as long as no earlier owner had it", "%w", err)
	}
	return args[1], nil
}

func (p *program) fence(ctx context.Context, f *fenceFlags, args []string) error {
	token, err := f.token(args)
	if err != nil {
		return err
	}
	return p.onBucket(ctx, &f.bucketFlags, args[0], func(ctx context.Context, b *natskv.Bucket, told *progress) error {
		told.now("fencing")
		tail, err := fold.Fence(ctx, b, token)
		switch {
		case errors.Is(err, kv.ErrOutcomeUnknown):
			return &codeError{code: exitUnreachable, err: err, hint: "do the same again: if it is installed, nothing changes"}
		case err != nil:
			return err
		case f.json:
			p.printJSON(fenced{Bucket: b.Name(), FencingToken: token, Tail: tail.Seq()})
		case token == "":
			fmt.Fprintf(p.out, "Bucket %q has no fencing token above revision %d.\n", b.Name(), tail)
		default:
			fmt.Fprintf(p.out, "Bucket %q has the fencing token %q above revision %d.\n", b.Name(), token, tail)
		}
		return nil
	})
}

// standing is which token stands.
type standing struct {
	Bucket string `json:"bucket"`
	// Fenced: there is a fence record. Without one nobody asks for a token, and writers that present one are refused.
	Fenced bool `json:"fenced"`
	// FencingToken is the installed one; "" is none.
	FencingToken string `json:"fencing_token"`
	// Revision is that of the fence record.
	Revision uint64 `json:"revision,omitempty,string"`
}

func (p *program) tokenVerb() *cobra.Command {
	f := &bucketFlags{}
	c := p.verb("token BUCKET", "Print a bucket's fencing token; an empty line is none",
		`Reads which fencing token is installed on a bucket, and writes nothing. The token is a line of its own, and an empty line is none;
whether the bucket is fenced at all is then said on the standard error. A token with characters that don't print, with quotes or
backslashes, or with spaces at an end is printed as a quoted text of Go.

It is what the leader of the bucket's stream answers. One that is cut off from the others answers for some seconds from an
older log.`, 1, &f.json, func(ctx context.Context, args []string) error {
			return p.onBucket(ctx, f, args[0], func(ctx context.Context, b *natskv.Bucket, told *progress) error {
				told.now("reading the token")
				s, err := standingOf(ctx, b)
				if err != nil {
					return err
				}
				p.printStanding(f.json, s)
				return nil
			})
		})
	f.add(c)
	return c
}

func standingOf(ctx context.Context, b *natskv.Bucket) (standing, error) {
	rec, err := b.FenceRecord(ctx)
	switch {
	case errors.Is(err, kv.ErrKeyNotFound):
		return standing{Bucket: b.Name()}, nil
	case errors.Is(err, kv.ErrFenceRecord):
		return standing{}, &codeError{code: exitFailed, err: err, hint: "something other than a fence wrote to the keys _fold.fence.*, or a later version of it; fold fence writes them all anew"}
	case err != nil:
		return standing{}, err
	}
	return standing{Bucket: b.Name(), Fenced: true, FencingToken: rec.Token, Revision: rec.Revision}, nil
}

func (p *program) printStanding(json bool, s standing) {
	if json {
		p.printJSON(s)
		return
	}
	fmt.Fprintln(p.out, tokenText(s.FencingToken))
	switch {
	case !s.Fenced:
		fmt.Fprintf(p.err, "note: bucket %q has no fence record: writers without a token write unchecked, and one with a token is refused\n", s.Bucket)
	case s.FencingToken == "":
		fmt.Fprintf(p.err, "note: bucket %q has no fencing token, by its fence record of revision %d: its writers are those that present none\n", s.Bucket, s.Revision)
	}
}

// tokenText is a token in a line: anybody may have installed it, and a terminal may read it. What begins with a quote is
// quoted.
func tokenText(token string) string {
	if quoted := strconv.Quote(token); quoted != `"`+token+`"` || strings.TrimSpace(token) != token {
		return quoted
	}
	return token
}
