package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

func (p *program) fenceVerb() *cobra.Command {
	var f clientFlags
	c := &cobra.Command{
		Use:   "fence ADDR [TOKEN]",
		Short: "Install or rotate the fencing token; without a token, clear it",
		Args:  between(1, 2, addrIs+", and a token or none"),
		RunE: func(c *cobra.Command, args []string) error {
			token := ""
			if len(args) > 1 {
				if token = args[1]; token == "" { // what a variable that is not set gives
					return usageError("leave it out to clear the one that is installed", "the token is empty")
				}
			}
			cl, err := f.client(p)
			if err != nil {
				return err
			}
			tail, err := cl.Fence(c.Context(), args[0], token)
			if err != nil {
				return unknownHint(err, "fence again with the same token: if it is installed, nothing changes")
			}
			p.print(struct {
				Addr         string   `json:"addr"`
				FencingToken string   `json:"fencing_token"`
				Tail         position `json:"tail"`
			}{args[0], token, positionOf(tail)}, func(w io.Writer) {
				if token == "" {
					fmt.Fprintf(w, "%s has no fencing token from %d on.\n", args[0], tail.SeqNum)
					return
				}
				fmt.Fprintf(w, "%s has the fencing token %q from %d on.\n", args[0], token, tail.SeqNum)
			})
			return nil
		},
	}
	f.add(c)
	return c
}

func (p *program) tokenVerb() *cobra.Command {
	var f clientFlags
	c := &cobra.Command{
		Use:   "token ADDR",
		Short: "Print the installed fencing token; an empty line is none",
		Args:  exactly(1, addrIs),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := f.client(p)
			if err != nil {
				return err
			}
			token, err := cl.FencingToken(c.Context(), args[0])
			if err != nil {
				return err
			}
			p.print(struct {
				Addr         string `json:"addr"`
				FencingToken string `json:"fencing_token"`
			}{args[0], token}, func(w io.Writer) { fmt.Fprintln(w, tokenLine(token)) })
			return nil
		},
	}
	f.add(c)
	return c
}

// tokenLine is a token as a line: anybody may have installed it, and a terminal may read it. What begins with a quote is quoted.
func tokenLine(token string) string {
	if quoted := strconv.Quote(token); quoted != `"`+token+`"` || strings.TrimSpace(token) != token {
		return quoted
	}
	return token
}
