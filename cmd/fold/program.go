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
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
)

// The exit codes of every verb.
const (
	exitOK          = 0
	exitFailed      = 1 // what was checked is not well, or could not be checked
	exitUsage       = 2
	exitUnreachable = 3
	exitSuperseded  = 4 // an artifact was not published, since there is a newer one
)

// program is one run of the command.
type program struct {
	env           func(string) string
	out, err      io.Writer
	progressAfter time.Duration

	json bool // the verb that runs was asked for JSON
}

// codeError ends the program with a code of its own.
type codeError struct {
	code int
	err  error
	hint string
}

func (e *codeError) Error() string { return e.err.Error() }
func (e *codeError) Unwrap() error { return e.err }
func (e *codeError) Hint() string  { return e.hint }

func usageError(hint, format string, args ...any) error {
	return &codeError{code: exitUsage, err: fmt.Errorf(format, args...), hint: hint}
}

// errSaid ends the program with exitFailed after the verb has said why.
var errSaid = errors.New("said")

// errSuperseded ends the program with exitSuperseded after the verb has said by what.
var errSuperseded = errors.New("superseded")

// run prints the result at the end, when nothing is left to be removed or to fail.
func (p *program) run(ctx context.Context, args []string) int {
	var result bytes.Buffer
	to := p.out
	p.out = &result
	code := p.execute(ctx, args, &result)
	if _, err := to.Write(result.Bytes()); err != nil {
		fmt.Fprintf(p.err, "fold: print: %v\n", err)
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
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errSaid):
		return exitFailed
	case errors.Is(err, errSuperseded):
		return exitSuperseded
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
		Use:               "fold",
		Short:             "Look at the folds of NATS KV buckets, move them as artifacts, and fence the buckets",
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
		return usageError("see "+c.CommandPath()+" --help", "%w", err)
	})
	root.AddCommand(p.repairVerb(), p.inspectVerb(), p.verifyVerb(), p.artifactsVerb(),
		p.importVerb(), p.exportVerb(), p.diffVerb(), p.fenceVerb(), p.tokenVerb())
	return root
}

// codeOf is the exit code of an error.
func codeOf(err error) int {
	var coded *codeError
	switch {
	case errors.As(err, &coded):
		return coded.code
	case isUnreachable(err):
		return exitUnreachable
	case strings.HasPrefix(err.Error(), "unknown command "): // cobra's, which has no type
		return exitUsage
	}
	return exitFailed
}

// isUnreachable reports whether the server, JetStream on it, or an object store was not there, did not let us in, or did not
// answer in time.
func isUnreachable(err error) bool {
	for _, e := range []error{natskv.ErrNotConnected, nats.ErrNoServers, nats.ErrNoResponders, nats.ErrTimeout, nats.ErrAuthorization,
		nats.ErrConnectionClosed, nats.ErrDisconnected, context.DeadlineExceeded, objects.ErrUnavailable, objects.ErrDenied} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// fail says what went wrong: as JSON on the output when that was asked for, else in words.
func (p *program) fail(err error, code int) {
	hint := ""
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		hint = h.Hint()
	}
	if p.json {
		outcome := ""
		if errors.Is(err, kv.ErrOutcomeUnknown) {
			outcome = "unknown"
		}
		p.printJSON(struct {
			Error string `json:"error"`
			Hint  string `json:"hint,omitempty"`
			Code  int    `json:"code"`
			// Outcome says that a write may have happened.
			Outcome string `json:"outcome,omitempty"`
		}{err.Error(), hint, code, outcome})
		return
	}
	fmt.Fprintf(p.err, "fold: %v\n", err)
	if hint != "" {
		fmt.Fprintf(p.err, "hint: %s\n", hint)
	}
}

func (p *program) printJSON(v any) {
	e := json.NewEncoder(p.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		fmt.Fprintf(p.err, "fold: print: %v\n", err)
	}
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
