// Command optiondoc writes docs/options.md: the comments of options.proto as a page.
package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: optiondoc DIR-OF-PROTO-FILES PAGE")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "optiondoc:", err)
		os.Exit(1)
	}
}

func run(dir, out string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	text, err := page(ctx, dir)
	if err != nil {
		return err
	}
	return os.WriteFile(out, []byte(text), 0o600)
}
