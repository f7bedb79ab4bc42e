package lint

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// block is a fenced block of a document.
type block struct {
	file, lang, text string
	line             int
}

func (b block) at() string { return fmt.Sprintf("%s:%d", b.file, b.line) }

var fence = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

func blocksOf(file, text string) (all []block) {
	for _, m := range fence.FindAllStringSubmatchIndex(text, -1) {
		all = append(all, block{
			file: file, lang: text[m[2]:m[3]], text: text[m[4]:m[5]], line: strings.Count(text[:m[4]], "\n") + 1,
		})
	}
	return all
}

// tutorial has a module of its own, with its own schema. The test in internal/tutorial does all that the page says.
const tutorial = "docs/tutorial.md"

// documents are the repository's documents, and blocks their fenced blocks in some languages.
func documents(t *testing.T) (files []string) {
	t.Helper()
	for _, file := range repoFiles(t) {
		if path.Ext(file) == ".md" {
			files = append(files, file)
		}
	}
	if !slices.Contains(files, "README.md") {
		t.Fatalf("no README.md among %v", files)
	}
	return files
}

func blocks(t *testing.T, langs ...string) (all []block) {
	t.Helper()
	for _, file := range documents(t) {
		if file == tutorial {
			continue
		}
		for _, b := range blocksOf(file, read(t, file)) {
			if slices.Contains(langs, b.lang) {
				all = append(all, b)
			}
		}
	}
	if len(all) == 0 {
		t.Fatalf("no document has a block of %v", langs)
	}
	return all
}

// TestGoBlocksCompile builds each Go block as a package of its own. A block is a whole file, so that a reader can paste
// it.
func TestGoBlocksCompile(t *testing.T) {
	all := blocks(t, "go")
	for _, b := range all {
		if !strings.HasPrefix(b.text, "package ") {
			t.Errorf("%s: the block is no whole Go file", b.at())
		}
		if strings.Contains(b.text, "/internal/") {
			t.Errorf("%s: the block imports an internal package, which a reader can't", b.at())
		}
		if formatted, err := format.Source([]byte(b.text)); err != nil || string(formatted) != b.text {
			t.Errorf("%s: the block is not formatted by gofmt: %v", b.at(), err)
		}
	}
	if err := buildBlocks(t, all); err != nil {
		t.Errorf("a Go block does not compile: %v", err)
	}
	broken := block{file: "README.md", line: 1, text: "package x\n\nvar n int = \"text\"\n"}
	if err := buildBlocks(t, []block{broken}); err == nil || !strings.Contains(err.Error(), "cannot use") {
		t.Errorf("a broken block compiles: %v", err)
	}
}

// buildBlocks compiles files that the go command takes to be in the module, and that are nowhere on disk there.
func buildBlocks(t *testing.T, all []block) error {
	t.Helper()
	dir, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	tmp := t.TempDir()
	var overlay struct{ Replace map[string]string }
	overlay.Replace = map[string]string{}
	args := []string{"build", "-overlay=" + filepath.Join(tmp, "overlay.json")}
	for i, b := range all {
		name := fmt.Sprintf("block%d", i)
		file := filepath.Join(tmp, name+".go")
		text := fmt.Sprintf("//line %s:%d\n%s", b.file, b.line, b.text)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
		overlay.Replace[filepath.Join(dir, "internal", "lint", "docs", name, "block.go")] = file
		args = append(args, "./internal/lint/docs/"+name)
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tmp, "overlay.json"), list, 0o600); err != nil {
		return err
	}
	_, err = goTool(args...)
	return err
}

// TestShellBlocksRun checks what the documents tell a reader to run: make targets, packages and tools that exist.
func TestShellBlocksRun(t *testing.T) {
	targets := makeTargets(read(t, "Makefile"))
	for _, b := range blocks(t, "sh", "bash", "console") {
		for i, line := range strings.Split(b.text, "\n") {
			if err := checkCommand(line, targets, packages(t)); err != nil {
				t.Errorf("%s:%d: %v", b.file, b.line+i, err)
			}
		}
	}
	for _, file := range documents(t) {
		for _, m := range regexp.MustCompile("`make ([a-z-]+)[^`]*`").FindAllStringSubmatch(read(t, file), -1) {
			if !slices.Contains(targets, m[1]) {
				t.Errorf("%s: there is no make target %s", file, m[1])
			}
		}
	}
}

var target = regexp.MustCompile(`(?m)^([a-z-]+):.*?(## .*)?$`)

func makeTargets(makefile string) (names []string) {
	for _, m := range target.FindAllStringSubmatch(makefile, -1) {
		names = append(names, m[1])
	}
	return names
}

func TestMakeTargetsAreDescribed(t *testing.T) {
	all := target.FindAllStringSubmatch(read(t, "Makefile"), -1)
	if len(all) < 10 {
		t.Errorf("only %d targets were found", len(all))
	}
	for _, m := range all {
		if m[2] == "" {
			t.Errorf("make target %s has no ## text for make help", m[1])
		}
	}
}

// checkCommand looks at one line of a shell block. Commands that are no part of this repository pass.
func checkCommand(line string, targets []string, own map[string]*pkg) error {
	words := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "$ "))
	for len(words) > 0 && strings.Contains(words[0], "=") {
		words = words[1:] // a variable for the command
	}
	switch {
	case len(words) >= 2 && words[0] == "make":
		if !slices.Contains(targets, words[1]) {
			return fmt.Errorf("there is no make target %s", words[1])
		}
	case len(words) >= 3 && words[0] == "go" && slices.Contains([]string{"run", "test", "build", "vet"}, words[1]):
		for _, w := range words[2:] {
			if w = strings.TrimSuffix(w, "/..."); strings.HasPrefix(w, "./") && !exists(w) {
				return fmt.Errorf("there is no folder %s", w)
			} else if p := own[strings.TrimPrefix(w, "./")]; words[1] == "run" && strings.HasPrefix(w, "./") {
				if p == nil || p.Name != "main" {
					return fmt.Errorf("%s is no program", w)
				}
				return nil // what follows are its arguments
			}
		}
	case len(words) >= 1 && strings.HasPrefix(words[0], "./"):
		if !exists(words[0]) {
			return fmt.Errorf("there is no file %s", words[0])
		}
	}
	return nil
}

func exists(file string) bool {
	_, err := os.Stat(filepath.Join(root, filepath.FromSlash(file)))
	return err == nil
}

func TestCommandsAreJudged(t *testing.T) {
	own := packages(t)
	for line, good := range map[string]bool{
		"make test":                    true,
		"FUZZTIME=5s make test":        true,
		"make nothing":                 false,
		"go run ./examples/routes put": true,
		"go run ./runtime":             false,
		"go test ./runtime/...":        true,
		"go test ./nothing/...":        false,
		"$ ./.ci/run":                  true,
		"./nothing":                    false,
		"nats kv ls":                   true,
	} {
		if err := checkCommand(line, []string{"test"}, own); (err == nil) != good {
			t.Errorf("%q: %v", line, err)
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)

func TestLinksLeadSomewhere(t *testing.T) {
	for _, file := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, file), -1) {
			if to := m[1]; !strings.Contains(to, "://") && !exists(path.Join(path.Dir(file), to)) {
				t.Errorf("%s: there is no %s", file, to)
			}
		}
	}
}

// TestProtoBlocksGenerate compiles each proto block, has the plugin generate from it, and compares its messages with
// those of the same name that the examples use.
func TestProtoBlocksGenerate(t *testing.T) {
	plugin := filepath.Join(t.TempDir(), "protoc-gen-fold")
	if _, err := goTool("build", "-o", plugin, "./cmd/protoc-gen-fold"); err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks(t, "proto") {
		req, messages, err := compileProto(b.text)
		if err != nil {
			t.Errorf("%s: %v", b.at(), err)
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		cmd := exec.CommandContext(ctx, plugin)
		cmd.Stdin = bytes.NewReader(req)
		res, err := cmd.Output()
		cancel()
		if err != nil {
			t.Errorf("%s: plugin: %v", b.at(), err)
			continue
		}
		if err := generated(res); err != nil {
			t.Errorf("%s: %v", b.at(), err)
		}
		for _, m := range messages {
			report(t, unlike(b.at(), m))
		}
	}
}
