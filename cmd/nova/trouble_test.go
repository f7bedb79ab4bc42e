package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const asProgram = "NOVA_TEST_AS_PROGRAM"

// TestMain makes this binary the program, for the tests that kill it.
func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestSilentServer: a server that takes connections and answers nothing is code 3 within --timeout, and of what was sent the
// outcome is unknown.
func TestSilentServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	}()
	w := &world{env: map[string]string{"NOVA_SERVER": "http://" + l.Addr().String()}}
	for outcome, all := range map[string][][]string{
		outcomeUnknown: {{"append", addr, "--match-seq-num", "0"}, {"fence", addr, "a"}, {"create", addr}, {"rm", addr}, {"trim", addr, "1"}},
		outcomeNothing: {{"append", addr}},
		"":             {{"ls"}, {"token", addr}, {"read", addr}, {"tail", addr, "-f"}},
	} {
		for _, args := range all {
			if f := w.fails(t, exitUnreachable, "x\n", append(args, "--timeout", "200ms")...); f.Outcome != outcome || !strings.Contains(f.Hint, "--timeout") {
				t.Errorf("%q: %+v", args, f)
			}
		}
	}
}

// TestKill: what was acknowledged is there after kill -9 and a new start, and an append that meets the kill says that it can't
// tell, or that nothing was written.
func TestKill(t *testing.T) {
	w := &world{dir: t.TempDir(), env: map[string]string{}}
	cmd := exec.CommandContext(bounded(t), os.Args[0], "serve", "--listen", "127.0.0.1:0", "--data", w.dir)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	w.env["NOVA_SERVER"] = strings.TrimSpace(strings.TrimPrefix(line, "nova serves on "))
	w.ok(t, "", "create", addr)
	w.ok(t, "", "fence", addr, "gen-1")
	var in strings.Builder
	for i := range 500 {
		fmt.Fprintln(&in, i)
	}
	w.ok(t, in.String(), "append", addr, "--fencing-token", "gen-1")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if f := w.fails(t, exitUnreachable, "x\n", "append", addr, "--match-seq-num", "500"); f.Outcome != outcomeNothing {
		t.Errorf("%+v", f)
	}
	w.begin(t)
	if got := w.ok(t, "", "read", addr); got != in.String() {
		t.Errorf("after the kill there are %d bytes, not %d", len(got), in.Len())
	}
	w.fails(t, exitLost, "x\n", "append", addr, "--match-seq-num", "500")
	holds(t, w.ok(t, "x\n", "append", addr, "--match-seq-num", "500", "--fencing-token", "gen-1"), "1 record appended, 500")
}

// TestAFollowerSaysThatTheServerIsAway, after a while, and goes on when it is back.
func TestAFollowerSaysThatTheServerIsAway(t *testing.T) {
	w := serve(t)
	w.ok(t, "", "create", addr)
	at := strings.TrimPrefix(w.env["NOVA_SERVER"], "http://")
	var out, errs output
	ctx, stop := context.WithCancel(bounded(t))
	defer stop()
	p := &program{env: func(name string) string { return w.env[name] }, out: &out, err: &errs, progressAfter: time.Millisecond}
	ended := make(chan int, 1)
	go func() { ended <- p.run(ctx, []string{"read", addr, "-f"}) }()
	w.ok(t, "a\n", "append", addr)
	eventually(t, "read", func() bool { return out.String() == "a\n" })
	if code := w.served.end(t); code != exitOK {
		t.Fatalf("code %d: %s", code, &w.served.err)
	}
	eventually(t, "told", func() bool {
		return strings.Contains(errs.String(), "nova: the read goes on when the server is back: ")
	})
	w.begin(t, "--listen", at)
	w.ok(t, "b\n", "append", addr)
	eventually(t, "read", func() bool { return out.String() == "a\nb\n" })
	stop()
	if code := <-ended; code != exitOK {
		t.Errorf("code %d: %s", code, &errs)
	}
}
