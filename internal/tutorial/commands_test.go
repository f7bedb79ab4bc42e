//go:build unix

package tutorial

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/typedfold/fold/internal/natstest"
)

// What the stand-ins for commands are told by the environment.
const (
	envGo         = "TUTORIAL_GO"          // the path of the real go
	envRepository = "TUTORIAL_REPOSITORY"  // the path of this repository
	envNATS       = "TUTORIAL_NATS_ADDR"   // a file with the server's address, which is there while the server runs
	envRouter     = "TUTORIAL_ROUTER_ADDR" // a file with the router's address
)

const module = "github.com/typedfold/fold"

// TestMain is the test, or one of the commands when the test binary is called by its name.
func TestMain(m *testing.M) {
	commands := map[string]func(args []string) error{"go": goCommand, "nats-server": natsServer, "curl": curl}
	command := commands[filepath.Base(os.Args[0])]
	if command == nil || os.Getenv(envRepository) == "" {
		os.Exit(m.Run())
	}
	err := command(os.Args[1:])
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, filepath.Base(os.Args[0])+":", err)
		os.Exit(1)
	}
}

// goCommand is go, without what asks a module proxy for versions.
func goCommand(args []string) error {
	repository := os.Getenv(envRepository)
	switch {
	case len(args) == 3 && args[0] == "get" && args[1] == "-tool":
		return getTool(repository, args[2])
	case slices.Equal(args, []string{"mod", "tidy"}):
		return nil
	case len(args) > 1 && args[0] == "tool" && args[1] == "buf":
		return realGo(append([]string{"tool", "-modfile=" + filepath.Join(repository, "tools", "go.mod")}, args[1:]...)...)
	}
	return realGo(args...)
}

func realGo(args ...string) error {
	cmd := exec.Command(os.Getenv(envGo), args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// getTool makes a package a tool of the module in the working folder, in the version that this repository has.
func getTool(repository, tool string) error {
	path, version, _ := strings.Cut(tool, "@")
	if inside, ok := strings.CutPrefix(path, module+"/"); ok {
		if _, err := os.Stat(filepath.Join(repository, inside, "main.go")); err != nil || version != "" {
			return fmt.Errorf("%s is no program of this repository, or has a version: %w", tool, err)
		}
	} else {
		required, err := requires(filepath.Join(repository, "tools", "go.mod"))
		if err != nil {
			return err
		}
		i := slices.IndexFunc(required, func(r []string) bool { return strings.HasPrefix(path, r[0]+"/") })
		if i < 0 || version != "" && required[i][1] != version {
			return fmt.Errorf("tools/go.mod does not have %s", tool)
		}
		if strings.HasSuffix(path, "/buf") {
			return nil // as it is compiled for the repository; goCommand finds it there
		}
	}
	if err := adopt(repository); err != nil {
		return err
	}
	return realGo("mod", "edit", "-tool="+path)
}

// adopt has the module in the working folder require what this repository does, and this repository.
func adopt(repository string) error {
	const mod = "go.mod"
	text, err := os.ReadFile(mod)
	if err != nil || bytes.Contains(text, []byte("replace")) {
		return err
	}
	required, err := requires(filepath.Join(repository, mod))
	if err != nil {
		return err
	}
	text = fmt.Appendf(text, "require %s v0.0.0\nreplace %s => %q\n", module, module, repository)
	for _, r := range required {
		text = fmt.Appendf(text, "require %s %s\n", r[0], r[1])
	}
	sums, err := os.ReadFile(filepath.Join(repository, "go.sum"))
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(mod, text, 0o600), os.WriteFile("go.sum", sums, 0o600))
}

// requires are the modules of a go.mod file with their versions.
func requires(file string) (all [][]string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "require "), " //")
		if words := strings.Fields(line); len(words) == 2 && strings.Contains(words[0], ".") && strings.HasPrefix(words[1], "v") {
			all = append(all, words)
		}
	}
	return all, nil
}

// natsServer runs until it is told to end.
func natsServer(args []string) error {
	fs := flag.NewFlagSet("nats-server", flag.ContinueOnError)
	jetStream, dir := fs.Bool("js", false, ""), fs.String("sd", "", "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	s, err := natstest.Start(natstest.Options{StoreDir: *dir, StartTimeout: time.Minute, Tune: func(o *server.Options) { o.JetStream = *jetStream }})
	if err != nil {
		return err
	}
	file := os.Getenv(envNATS)
	if err := writeWhole(file, s.Addr()); err != nil {
		return err
	}
	<-ended
	return errors.Join(os.Remove(file), s.Shutdown())
}

// writeWhole writes a file that others read meanwhile.
func writeWhole(file, text string) error {
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// curl prints what the router answers. It knows -s, and nothing else.
func curl(args []string) error {
	if len(args) != 2 || args[0] != "-s" {
		return fmt.Errorf("the arguments are %q, not -s and an address", args)
	}
	path, ok := strings.CutPrefix(args[1], shownAddr)
	if !ok {
		return fmt.Errorf("%s is not at %s", args[1], shownAddr)
	}
	addr, err := os.ReadFile(os.Getenv(envRouter))
	if err != nil {
		return err
	}
	c := http.Client{Timeout: time.Minute}
	res, err := c.Get("http://" + string(addr) + path)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(os.Stdout, res.Body)
	return err
}
