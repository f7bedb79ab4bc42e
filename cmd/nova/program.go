package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// program is one run of the command.
type program struct {
	env           func(string) string
	in            io.Reader
	out, err      io.Writer
	progressAfter time.Duration

	live io.Writer // the output itself, for what can't wait for the end
	json bool      // the verb that runs was asked for JSON
}

// run prints the result at the end; verbs that go on print to live meanwhile.
func (p *program) run(ctx context.Context, args []string) int {
	var result bytes.Buffer
	p.live, p.out = p.out, &result
	code := p.execute(ctx, args, &result)
	if _, err := p.live.Write(result.Bytes()); err != nil {
		fmt.Fprintf(p.err, "nova: print: %v\n", err)
		if code == exitOK {
			code = exitFailed
		}
	}
	return code
}

func (p *program) execute(ctx context.Context, args []string, result *bytes.Buffer) int {
	root := p.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	code := codeOf(err)
	if p.json = p.json || asksForJSON(args); p.json {
		result.Reset() // there is one object
	}
	p.fail(err, code)
	return code
}

// asksForJSON looks for the flag where the flags could not be read.
func asksForJSON(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.Contains(args, "--json") || slices.Contains(args, "--json=true")
}

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:               "nova",
		Short:             "Serve streams, append to them under match and fence, and read them",
		Version:           version(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		// A word that is no verb would only print the help else.
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetOut(p.out)
	root.SetErr(p.err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError("see "+c.CommandPath()+" --help", "%s", flagText(err))
	})
	root.AddCommand(p.serveVerb(), p.createVerb(), p.lsVerb(), p.describeVerb(), p.rmVerb(), p.trimVerb(),
		p.appendVerb(), p.fenceVerb(), p.tokenVerb(), p.readVerb(), p.tailVerb(), p.benchVerb())
	return root
}

// flagText is what is wrong with a flag, without the function that found it.
func flagText(err error) string {
	bad := new(strconv.NumError)
	if !errors.As(err, &bad) {
		return err.Error()
	}
	why := "a whole number from 0 on is needed"
	switch {
	case bad.Func == "ParseBool":
		why = "it is true or false"
	case bad.Func == "ParseInt":
		why = "a whole number is needed"
	case errors.Is(bad, strconv.ErrRange):
		why = "the number is too large"
	}
	return strings.Replace(err.Error(), bad.Error(), why, 1)
}

// exactly is the number of arguments of a verb.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error { return between(n, n, what)(c, args) }
}

func between(low, high int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < low || len(args) > high {
			return usageError("see "+c.CommandPath()+" --help", "it takes %s, and got %d arguments", what, len(args))
		}
		return nil
	}
}

// fail says what went wrong: as JSON on the output when that was asked for, else in words.
func (p *program) fail(err error, code int) {
	f := failureOf(err, code)
	if p.json {
		p.printJSON(f)
		return
	}
	fmt.Fprintf(p.err, "nova: %s\n", f.Error)
	switch {
	case f.Appended != nil:
		fmt.Fprintf(p.err, "before that: %v\n", f.Appended)
	case errors.As(err, new(*partialError)) && f.Outcome == outcomeNothing && !strings.Contains(f.Error, "nothing was "):
		fmt.Fprintf(p.err, "nothing was appended\n")
	}
	if f.Hint != "" {
		fmt.Fprintf(p.err, "hint: %s\n", f.Hint)
	}
}

func (p *program) printJSON(v any) {
	e := json.NewEncoder(p.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		fmt.Fprintf(p.err, "nova: print: %v\n", err)
	}
}

// print is the result of a verb that has ended: as JSON, or in words.
func (p *program) print(v any, text func(w io.Writer)) {
	if p.json {
		p.printJSON(v)
		return
	}
	text(p.out)
}

// printError is an output that takes no more.
type printError struct{ err error }

func (e *printError) Error() string { return fmt.Sprintf("print: %v", e.err) }
func (e *printError) Unwrap() error { return e.err }

// within bounds what a verb asks of a server.
func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, &timeoutError{d})
}

// timeoutError is a --timeout that ran out.
type timeoutError struct{ after time.Duration }

func (e *timeoutError) Error() string {
	return fmt.Sprintf("nothing came within %v", e.after)
}
func (e *timeoutError) Unwrap() error { return context.DeadlineExceeded }

// errInterrupted is a verb that was ended by a signal before it was done.
var errInterrupted = errors.New("interrupted")

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
