package lint

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// testKits are packages for tests: of this repository, and of those who write an adapter or a store.
var testKits = []string{
	"runtime/kv/kvtest", "runtime/store/storetest", "runtime/artifact/objects/objectstest",
	"internal/natstest", "internal/s3test", "internal/cloudtest", "internal/foldtest", "internal/wire/internal/wiretest", "internal/lint",
	validateTest,
}

// validateTest has the tables of foldvalidate's tests.
const validateTest = "runtime/foldvalidate/internal/validatetest"

// lower are the packages of the module that each package may depend on, directly or not. Imports go one way:
// protocol, kv, store, then artifact and repair, then the runtime, then generated code. A path that ends in "/*" is for
// every package in that folder that has no line of its own.
var lower = map[string][]string{
	"gen/go/fold/v1":          {},
	"gen/go/nova/v1":          {},
	"gen/go/nova/v1/*":        {"gen/go/nova/v1"},
	"internal/nova":           {},
	"internal/nova/frame":     {"internal/nova"},
	"internal/nova/jslog":     {"internal/nova", "internal/nova/frame", "runtime/protocol"},
	"internal/nova/reader":    {"internal/nova", "internal/nova/frame", "internal/nova/jslog", "runtime/protocol"},
	"internal/nova/sequencer": {"internal/nova", "internal/nova/frame", "internal/nova/jslog", "runtime/protocol"},
	"internal/nova/node": {
		"internal/nova/sequencer", "internal/nova/reader", "internal/nova/jslog", "internal/nova/frame", "internal/nova", "runtime/protocol",
	},
	"client": {"gen/go/nova/v1", "gen/go/nova/v1/novav1connect", "internal/nova"},
	"server": {
		"gen/go/nova/v1", "gen/go/nova/v1/novav1connect",
		"internal/nova/node", "internal/nova/sequencer", "internal/nova/reader", "internal/nova/jslog", "internal/nova/frame", "internal/nova", "runtime/protocol",
	},
	"internal/machine":           {"runtime/kv", "runtime/protocol"},
	"internal/wire":              {},
	"runtime/protocol":           {},
	"runtime/keyenc":             {},
	"runtime/kv":                 {"runtime/protocol"},
	"runtime/kv/kvtest":          {"runtime/kv", "runtime/protocol"},
	"runtime/schema":             {"runtime/keyenc", "gen/go/fold/v1"},
	"runtime/natskv":             {"runtime/kv", "runtime/protocol"},
	"runtime/lease":              {"runtime/kv", "runtime/protocol"},
	"runtime/store":              {"runtime/kv", "runtime/protocol"},
	"runtime/store/storetest":    {"runtime/store", "runtime/kv", "runtime/protocol"},
	"runtime/store/*":            {"runtime/store", "runtime/kv", "runtime/protocol"},
	"runtime/artifact":           {"runtime/artifact/objects", "runtime/repair", "runtime/store", "runtime/kv", "runtime/protocol"},
	"runtime/artifact/transport": {"runtime/artifact", "runtime/artifact/objects", "runtime/repair", "runtime/store", "runtime/kv", "runtime/protocol"},
	"runtime/artifact/rounds": {
		"runtime/artifact/transport", "runtime/lease",
		"runtime/artifact", "runtime/artifact/objects", "runtime/repair", "runtime/store", "runtime/kv", "runtime/protocol",
	},
	"runtime/artifact/objects":              {},
	"runtime/artifact/objects/*":            {"runtime/artifact/objects", "runtime/artifact/objects/blobstore"},
	"runtime/repair":                        {"runtime/store", "runtime/kv", "runtime/protocol"},
	"runtime":                               belowRuntime,
	validateTest:                            {},
	validateTest + "/image":                 {"gen/go/fold/v1"},
	validateTest + "/gen/validatetest/v1":   {"gen/go/fold/v1"},
	validateTest + "/gen/validatetest/v1/*": append([]string{"runtime", validateTest + "/gen/validatetest/v1"}, belowRuntime...),
	"runtime/*":                             append([]string{"runtime"}, belowRuntime...), // foldvalidate, foldprom, foldotel, foldhttp: hooks on the runtime
}

var belowRuntime = []string{
	"gen/go/fold/v1", "internal/machine", "internal/wire", "runtime/keyenc", "runtime/protocol", "runtime/kv",
	"runtime/schema", "runtime/store", "runtime/artifact", "runtime/artifact/objects", "runtime/repair",
}

// cloudStores are the packages of object stores. Only they may pull in Go CDK and cloud SDKs; a main imports those that
// it opens.
var cloudStores = []string{
	"runtime/artifact/objects/blobstore", "runtime/artifact/objects/s3", "runtime/artifact/objects/gcs", "runtime/artifact/objects/azure",
}

// validators are the packages that judge values by rules in CEL. Only they may pull it in.
var validators = []string{"runtime/foldvalidate"}

func lowerOf(p string) (allowed []string, ok bool) {
	if allowed, ok = lower[p]; !ok {
		allowed, ok = lower[path.Dir(p)+"/*"]
	}
	return allowed, ok
}

func TestImportsGoOneWay(t *testing.T) {
	for at, p := range packages(t) {
		allowed, ok := lowerOf(at)
		if !ok && under(at, "runtime", "gen") {
			t.Errorf("%s has no line in this test that says what it may import", at)
		}
		if ok {
			report(t, upward(p, allowed))
		}
	}
}

// upward tells which of the module's packages p depends on and may not.
func upward(p *pkg, allowed []string) (problems []string) {
	for _, dep := range p.Deps {
		if d, own := inModule(dep); own && !slices.Contains(allowed, d) {
			problems = append(problems, fmt.Sprintf("%s depends on %s; it may depend on %v", p.ImportPath, d, allowed))
		}
	}
	return problems
}

func TestKernelsArePure(t *testing.T) {
	own := packages(t)
	report(t, impure(own["runtime/protocol"], append([]string{"time"}, system...)))
	// The machine has durations, so it imports time; it never asks what time it is.
	machine := own["internal/machine"]
	report(t, impure(machine, system))
	for _, name := range machine.GoFiles {
		file := "internal/machine/" + name
		report(t, clockCalls(file, read(t, file)))
	}
}

// system are the packages that reach out of a pure function.
var system = []string{"context", "io", "log", "math/rand", "net", "os", "runtime", "sync", "syscall", "unsafe"}

// impure tells which of a pure package's own imports are among the banned ones.
func impure(p *pkg, banned []string) (problems []string) {
	for _, i := range p.Imports {
		if under(i, banned...) {
			problems = append(problems, fmt.Sprintf("%s imports %s; it takes values and returns values", p.ImportPath, i))
		}
	}
	return problems
}

var clock = regexp.MustCompile(`\btime\.(Now|Since|Until|Sleep|After|AfterFunc|Tick|NewTimer|NewTicker)\b`)

func clockCalls(file, text string) (problems []string) {
	for _, call := range clock.FindAllString(text, -1) {
		problems = append(problems, fmt.Sprintf("%s uses %s; time is an input of the machine", file, call))
	}
	return problems
}

func TestGeneratedCodeImportsTheRuntimeOnly(t *testing.T) {
	own := packages(t)
	messages := func(p *pkg) bool {
		return p != nil && slices.ContainsFunc(p.GoFiles, func(f string) bool { return strings.HasSuffix(f, ".pb.go") })
	}
	checked := 0
	for _, p := range own {
		if !hasGenerated(p) {
			continue
		}
		checked++
		for _, i := range p.Imports {
			if d, inside := inModule(i); inside && d != "runtime" && !messages(own[d]) {
				t.Errorf("%s imports %s; generated code imports the runtime and messages", p.ImportPath, d)
			}
		}
	}
	if checked == 0 {
		t.Error("no package with generated code was found")
	}
}

func hasGenerated(p *pkg) bool {
	return slices.ContainsFunc(p.GoFiles, func(f string) bool { return strings.HasSuffix(f, ".fold.go") })
}

// foreign are import paths, whole or the beginning of one, that a user's binary must not get from a package of ours.
var foreign = map[string][]string{
	"a server":         {"github.com/nats-io/nats-server"},
	"a terminal":       {"golang.org/x/term", "charm.land", "github.com/charmbracelet", "github.com/jedib0t/go-pretty", "github.com/mattn/go-isatty", "github.com/fatih/color", "github.com/schollz/progressbar", "github.com/vbauerster/mpb"},
	"a command line":   {"github.com/spf13", "github.com/urfave/cli", "github.com/alecthomas/kong", "github.com/choria-io/fisk", "github.com/nats-io/natscli", "github.com/knadh/koanf"},
	"a cloud SDK":      {"cloud.google.com/go", "github.com/aws", "github.com/Azure", "github.com/googleapis", "google.golang.org/api", "github.com/minio/minio-go", "gocloud.dev"},
	"tests":            {"testing", "pgregory.net/rapid", "github.com/stretchr/testify", "github.com/google/go-cmp", "github.com/cockroachdb/datadriven"},
	"CEL":              {"buf.build/go", "buf.build/gen", "cel.dev/cel-go", "github.com/google/cel-go", "github.com/antlr4-go"},
	"a code generator": {"github.com/dave/jennifer", "github.com/bufbuild/protocompile", "golang.org/x/tools", "google.golang.org/protobuf/compiler"},
}

func TestUsersGetNoForeignWeight(t *testing.T) {
	banned := maps.Clone(foreign)
	for _, kit := range testKits {
		banned["tests"] = append(banned["tests"], module+"/"+kit)
	}
	checked := 0
	for at, p := range packages(t) {
		if forUsers(at, p) {
			checked++
			report(t, heavy(p, bannedFor(at, banned)))
		}
	}
	if checked < 10 {
		t.Errorf("only %d packages were checked", checked)
	}
}

// TestMetricsAreHooks: a server tells what it does, and package novametrics makes metrics of it.
func TestMetricsAreHooks(t *testing.T) {
	for _, dep := range packages(t)["server"].Deps {
		if under(dep, "github.com/prometheus") {
			t.Errorf("server pulls in %s", dep)
		}
	}
}

func bannedFor(at string, banned map[string][]string) map[string][]string {
	banned = maps.Clone(banned)
	if slices.Contains(cloudStores, at) {
		delete(banned, "a cloud SDK")
	}
	if slices.Contains(validators, at) {
		delete(banned, "CEL")
	}
	return banned
}

// forUsers reports whether a user's binary imports the package. Generated code of the examples stands for a user's own.
func forUsers(at string, p *pkg) bool {
	if under(at, testKits...) || p.Name == "main" {
		return false
	}
	return under(at, "runtime", "gen", "client", "proto") || hasGenerated(p)
}

func heavy(p *pkg, banned map[string][]string) (problems []string) {
	for _, dep := range p.Deps {
		for what, paths := range banned {
			if under(dep, paths...) {
				problems = append(problems, fmt.Sprintf("%s pulls in %s, which is for %s", p.ImportPath, dep, what))
			}
		}
	}
	return problems
}

// TestImportRulesBite has each rule judge a package that breaks it.
func TestImportRulesBite(t *testing.T) {
	p := &pkg{
		ImportPath: module + "/runtime/kv",
		Imports:    []string{"net/netip", "strings"},
		Deps:       []string{"strings", "testing", module + "/runtime", "github.com/nats-io/nats-server/v2/server", "cel.dev/cel-go/cel"},
	}
	for name, got := range map[string][]string{
		"upward": upward(p, lower["runtime/kv"]),
		"impure": impure(p, system),
		"clock":  clockCalls("x.go", "t := time.Now().Add(time.Second)"),
	} {
		if len(got) != 1 {
			t.Errorf("%s finds %q, not one problem", name, got)
		}
	}
	if got := heavy(p, foreign); len(got) != 3 {
		t.Errorf("heavy finds %q, not three problems", got)
	}
	if got := heavy(p, bannedFor("runtime/foldvalidate", foreign)); len(got) != 2 {
		t.Errorf("heavy finds %q of a validator, not two problems", got)
	}
}

func report(t *testing.T, problems []string) {
	t.Helper()
	for _, p := range problems {
		t.Error(p)
	}
}
