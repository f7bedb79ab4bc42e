package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/typedfold/fold/internal/natstest"
)

// nodes are several nova serve on one log.
func nodes(t *testing.T, urls string, n int) []*world {
	t.Helper()
	var all []*world
	for range n {
		r := start(t, map[string]string{"NOVA_NATS": urls}, nil, "serve", "--listen", "127.0.0.1:0", "--log-level", "warn")
		all = append(all, &world{served: r, env: map[string]string{"NOVA_SERVER": r.printed(t, `nova serves on (\S+)\n`)[1]}})
	}
	return all
}

// logs are the logs that the command is tried on, each with two nodes.
func logs(t *testing.T, f func(t *testing.T, ws []*world, create ...string)) {
	t.Run("memory", func(t *testing.T) { f(t, nodes(t, natstest.New(t).URL(), 2), "--memory") })
	t.Run("file", func(t *testing.T) { f(t, nodes(t, natstest.New(t).URL(), 2)) })
	t.Run("replicas", func(t *testing.T) {
		c := natstest.NewCluster(t, 3)
		f(t, nodes(t, c.Servers[0].URL()+","+c.Servers[1].URL()+","+c.Servers[2].URL(), 2), "--replicas", "3")
	})
}

// TestVerbsThroughEveryNode: each verb does the same through the node that leads the stream and through the other one.
func TestVerbsThroughEveryNode(t *testing.T) {
	logs(t, func(t *testing.T, ws []*world, create ...string) {
		for i, a := range ws {
			b := ws[1-i] // who leads is who was asked first
			addr := fmt.Sprintf("nova://demo/s%d", i)
			a.ok(t, "", append([]string{"create", addr}, create...)...)
			for _, w := range ws {
				if f := w.fails(t, exitFailed, "", "create", addr); !strings.Contains(f.Hint, "--if-absent") {
					t.Errorf("%+v", f)
				}
			}
			a.ok(t, "0\n", "append", addr) // from here on this node leads: of two that are asked at once, the loser may tell a false conflict
			follow := []*running{start(t, a.env, nil, "tail", addr, "-f"), start(t, b.env, nil, "tail", addr, "-f")}
			b.ok(t, "1\n", "append", addr)
			a.ok(t, "2\n", "append", addr, "--match-seq-num", "2")
			b.ok(t, "3\n", "append", addr, "--match-seq-num", "3")
			for _, w := range ws {
				f := w.fails(t, exitLost, "x\n", "append", addr, "--match-seq-num", "3")
				if f.Tail == nil || f.Tail.SeqNum != 4 || f.Outcome != outcomeNothing {
					t.Errorf("a miss: %+v", f)
				}
			}
			holds(t, b.ok(t, "", "fence", addr, "g1"), "from 4 on")
			for n, w := range ws {
				if got := w.ok(t, "", "token", addr); got != "g1\n" {
					t.Errorf("the token is %q", got)
				}
				f := w.fails(t, exitLost, "x\n", "append", addr, "--fencing-token", "g0", "--match-seq-num", "9")
				if f.FencingToken == nil || *f.FencingToken != "g1" || f.Tail != nil || f.Outcome != outcomeNothing {
					t.Errorf("a mismatch: %+v", f)
				}
				w.ok(t, fmt.Sprintln(4+n), "append", addr, "--fencing-token", "g1", "--match-seq-num", fmt.Sprint(4+n))
			}
			for n, w := range []*world{a, b} {
				if got := w.ok(t, "", "read", addr); got != "0\n1\n2\n3\n4\n5\n" {
					t.Errorf("%q", got)
				}
				if got := w.ok(t, "", "tail", addr, "-n", "2"); got != "4\n5\n" {
					t.Errorf("%q", got)
				}
				follow[n].printed(t, `^0\n1\n2\n3\n4\n5\n$`)
				if code := follow[n].end(t); code != exitOK {
					t.Errorf("tail -f: code %d: %s", code, &follow[n].err)
				}
			}
			for n, w := range ws {
				holds(t, w.ok(t, "", "trim", addr, fmt.Sprint(2+n)), fmt.Sprintf("from %d on", 2+n))
				v := w.object(t, "", "describe", addr)
				if v["fencing_token"] != "g1" || v["tail"].(map[string]any)["seq_num"] != 6.0 || v["first"].(map[string]any)["seq_num"] != float64(2+n) {
					t.Errorf("%v", v)
				}
				holds(t, w.ok(t, "", "ls", "demo"), addr)
			}
			holds(t, a.ok(t, "", "fence", addr), "no fencing token from 6 on")
			b.ok(t, "", "rm", addr)
			a.fails(t, exitFailed, "", "describe", addr)
		}
	})
}

// TestOnlyTheInstalledTokenIsAdmitted is the command's column of R22: whoever presents the installed token is admitted, and
// nobody else, by a plain append and by a conditional one, through each node.
func TestOnlyTheInstalledTokenIsAdmitted(t *testing.T) {
	logs(t, func(t *testing.T, ws []*world, create ...string) {
		ws[0].ok(t, "", append([]string{"create", addr}, create...)...)
		ws[1].ok(t, "", "fence", addr, "old")
		ws[0].ok(t, "", "fence", addr, "t")
		tail := 0
		for _, installed := range []string{"t", ""} {
			for _, w := range ws {
				for _, token := range []string{"none", "", "old", "t", "other"} {
					for _, plain := range []bool{true, false} {
						args := []string{"append", addr}
						if !plain {
							args = append(args, "--match-seq-num", fmt.Sprint(tail))
						}
						if token != "none" {
							args = append(args, "--fencing-token", token)
						}
						if token == installed || token == "none" && installed == "" {
							w.ok(t, "x\n", args...)
							tail++
							continue
						}
						r := w.run(t, "x\n", args...)
						if r.code != exitLost || !strings.Contains(r.err, "fenced out") {
							t.Errorf("%q under %q: code %d: %s%s", args, installed, r.code, r.out, r.err)
						}
					}
				}
			}
			if got := ws[1].ok(t, "", "read", addr); got != strings.Repeat("x\n", tail) {
				t.Errorf("%d bytes, and %d records were appended", len(got), tail)
			}
			if installed != "" {
				ws[1].ok(t, "", "fence", addr)
			}
		}
	})
}
