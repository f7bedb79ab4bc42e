package main

import (
	"fmt"
	"regexp"
	"strings"
)

// runtimeExit is the exit code of a Go process that panics, or whose runtime gives it up.
const runtimeExit = 2

// pebblePath begins the names of Pebble's functions, and of those that it brings along.
const pebblePath = "github.com/cockroachdb/"

var running = regexp.MustCompile(`(?m)^goroutine \d+ .*\[running.*\]:$`)

// endedByPebble tells whether Pebble ended a process, as it does by design when its log or manifest can't be written: by a
// panic of its own, or by the runtime when that unwinds through a lock which Pebble does not hold then. Anything else that
// ends a process is this repository's fault, and the error says what it was.
func endedByPebble(code int, stderr string) error {
	if code != runtimeExit {
		return fmt.Errorf("the process ended with exit code %d: %.8000s", code, stderr)
	}
	at := running.FindStringIndex(stderr)
	if at == nil {
		return fmt.Errorf("the process ended, and no goroutine was running: %.8000s", stderr)
	}
	if first := culprit(stderr[at[1]:]); !strings.HasPrefix(first, pebblePath) {
		return fmt.Errorf("the process ended in %q: %.8000s", first, stderr)
	}
	return nil
}

// culprit is the innermost function of a goroutine's trace that is neither of the standard library nor the logger by which
// Pebble ends a goroutine.
func culprit(trace string) string {
	for line := range strings.Lines(strings.TrimPrefix(trace, "\n")) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "" || strings.HasPrefix(line, "created by "):
			return ""
		case strings.HasPrefix(line, "\t") || strings.Contains(line, "/pebblestore.(*logger).Fatalf("):
		case !isStandard(line):
			return line
		}
	}
	return ""
}

// isStandard reports whether a function is of a package whose path begins with no domain, as the standard library's do.
func isStandard(function string) bool {
	domain, _, isPath := strings.Cut(function, "/")
	if open := strings.IndexByte(domain, '('); !isPath || open >= 0 {
		return !strings.HasPrefix(function, "main.") // a path's first slash comes before any argument
	}
	return !strings.Contains(domain, ".")
}
