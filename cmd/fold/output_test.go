package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/typedfold/fold/internal/natstest"
	"github.com/typedfold/fold/runtime/natskv"
	"github.com/typedfold/fold/runtime/store/storetest"
)

// TestEveryErrorIsOneObject: with --json also what is wrong with the command itself.
func TestEveryErrorIsOneObject(t *testing.T) {
	for _, args := range [][]string{
		{"verify", "--json"}, {"verify", "--json=true", "a", "b"}, {"inspect", "x", "--bogus", "--json"}, {"inspect", "x", "--timeout", "abc", "--json"},
		{"mend", "--json"}, {"--json"}, {"repair", "--json"}, {"export", "x", "--json"}, {"diff", "x", "y", "--examples", "-1", "--json"},
		{"fence", "--json"}, {"fence", "x", "--json"}, {"fence", "x", "", "--json"}, {"token", "--json"}, {"token", "x", "y", "--json"},
	} {
		r := run(t, nil, args...)
		var said struct {
			Error, Hint string
			Code        int
		}
		if err := json.Unmarshal([]byte(r.out), &said); err != nil || said.Error == "" || said.Code != exitUsage || r.code != exitUsage || r.err != "" {
			t.Errorf("%q: code %d, %v, %q and %q", args, r.code, err, r.out, r.err)
		}
	}
	if r := run(t, nil, "inspect", "--", "x", "--json"); r.code != exitUsage || r.out != "" {
		t.Errorf("two arguments, one of them --json: code %d, %q", r.code, r.out)
	}
}

// sink is an output that does as a test says.
type sink func(b []byte) (int, error)

func (s sink) Write(b []byte) (int, error) { return s(b) }

// TestResultIsPrintedAtTheEnd: when it is printed, or can't be, nothing of the work is left.
func TestResultIsPrintedAtTheEnd(t *testing.T) {
	w := newWorld(t, natskv.BucketConfig{}, natstest.Options{})
	w.put(t, "a")
	path, artifact := w.fold(t, storePebble)
	s, scratch := newShelf(t), t.TempDir()
	key := []string{"--key", "a", "--scratch", scratch}
	for _, args := range [][]string{
		append([]string{"export", path, "--publish", s.url, "--server", w.srv.URL()}, key...), append([]string{"verify", s.url}, key...), {"inspect", artifact},
	} {
		for _, json := range []bool{false, true} {
			if json {
				args = append(args, "--json")
			}
			for _, fails := range []error{nil, errors.New("the reader is gone")} {
				var errs bytes.Buffer
				writes := 0
				p := &program{env: os.Getenv, err: &errs, progressAfter: time.Minute, out: sink(func(b []byte) (int, error) {
					writes++
					empty(t, scratch)
					return len(b), fails
				})}
				code := p.run(bounded(t), args)
				if want := map[bool]int{true: exitOK, false: exitFailed}[fails == nil]; code != want || writes != 1 {
					t.Errorf("%q: code %d after %d writes: %s", args, code, writes, &errs)
				}
				if fails != nil {
					holdsAll(t, errs.String(), fails.Error())
				}
			}
		}
	}
}

// TestStoreOfAnotherKind: --store does not make a store of another kind in the folder of the one that is there.
func TestStoreOfAnotherKind(t *testing.T) {
	w := newWorld(t, natskv.BucketConfig{}, natstest.Options{})
	w.put(t, "a")
	for kind, other := range map[string]string{storePebble: storeLog, storeLog: storePebble} {
		_, artifact := w.fold(t, kind)
		dir := filepath.Join(t.TempDir(), "store")
		if r := run(t, nil, "import", artifact, "--to", dir); r.code != exitOK {
			t.Fatal(r.err)
		}
		before, err := storetest.Files(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"export", dir, "--to", dir + "2"}, {"inspect", dir}, {"repair", "--explain", "--dir", dir}} {
			if r := run(t, nil, append(args, "--store", other)...); r.code != exitUsage {
				t.Errorf("%s as %s, %s: code %d, %s%s", kind, other, args[0], r.code, r.out, r.err)
			}
		}
		if after, err := storetest.Files(dir); err != nil || len(after) != len(before) {
			t.Errorf("%s: %d files, and %d before, %v", kind, len(after), len(before), err)
		}
	}
}

// TestScratchIsBesideTheStore: also for a store in the working folder.
func TestScratchIsBesideTheStore(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, path := range []string{".", dir, "./", "../" + filepath.Base(dir)} {
		if got, err := folderOf(path); err != nil || got != filepath.Dir(dir) {
			t.Errorf("%s is in %s, %v", path, got, err)
		}
	}
}

// TestURLIsNoFolder: the URL of an object store in a folder's place is refused, and its secrets are not shown.
func TestURLIsNoFolder(t *testing.T) {
	dir := t.TempDir()
	url := "s3://user:geheim@bucket/folder?token=geheim"
	for _, args := range [][]string{
		{"inspect", url}, {"diff", url, dir}, {"diff", dir, url}, {"export", url, "--to", "x"}, {"export", dir, "--to", url},
		{"export", dir, "--publish", "file://" + dir, "--key", "a", "--scratch", url}, {"import", dir, "--to", url}, {"verify", dir, "--scratch", url},
		{"repair", "--explain", "--dir", url}, {"repair", "--explain", "--dir", dir, "--artifact", url}, {"repair", "--explain", "--dir", dir, "--scratch", url},
	} {
		r := run(t, nil, args...)
		if r.code != exitUsage || strings.Contains(r.err, "geheim") {
			t.Errorf("%q: code %d, %s", args, r.code, r.err)
		}
		holdsAll(t, r.err, "s3://***@bucket/folder?token=***")
	}
	empty(t, dir)
}
