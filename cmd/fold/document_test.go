package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/runtime/natskv"
)

// TestDocumentOfArtifacts: the document shows what the verbs for artifacts print.
func TestDocumentOfArtifacts(t *testing.T) {
	text, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	w, s := newWorld(t, natskv.BucketConfig{}, natstest.Options{}), newShelf(t)
	w.put(t, "a", "b", "c")
	path, _ := w.fold(t, storePebble)
	out := t.TempDir()
	to, at := filepath.Join(out, "export"), filepath.Join(out, "new")
	names := []string{path, "/var/lib/node/fold", to, "/backup/fold", at, "/var/lib/new/fold", s.url, "s3://backup/folds"}
	key := []string{"--key", "routes"}
	server := []string{"--server", w.srv.URL()}
	for _, args := range [][]string{
		{"inspect", path}, {"inspect", path, "--json"},
		{"export", path, "--to", to},
		append(append([]string{"export", path, "--publish", s.url, "--json"}, key...), server...),
		append([]string{"verify", s.url}, key...),
		append(append([]string{"artifacts", s.url}, key...), server...),
		append(append([]string{"artifacts", s.url, "--json"}, key...), server...),
		append(append([]string{"import", s.url, "--to", at}, key...), server...),
	} {
		r := run(t, nil, args...)
		if r.code != exitOK {
			t.Errorf("%q: code %d, %s", args, r.code, r.err)
		}
		shows(t, string(text), r.out, names...)
	}
	r := run(t, nil, "import", to, "--to", at+"2", "--json")
	shows(t, string(text), r.out, append([]string{at + "2", "/var/lib/new/fold"}, names...)...)
	w.put(t, "b", "d")
	newer, _ := w.fold(t, storeLog)
	for _, args := range [][]string{{"diff", newer, to}, {"diff", newer, to, "--json"}} {
		r := run(t, nil, args...)
		if r.code != exitFailed {
			t.Errorf("%q: code %d, %s", args, r.code, r.err)
		}
		shows(t, string(text), r.out, append([]string{newer, "/var/lib/node/fold"}, names...)...)
	}
}
