package pebblestore

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/storetest"
)

// recordsOf writes records of the given sizes as Pebble does. ends has where each ends.
func recordsOf(t *testing.T, sizes ...int) (file []byte, ends []int64) {
	t.Helper()
	var out bytes.Buffer
	w := record.NewWriter(&out)
	noise := rand.NewChaCha8([32]byte{1})
	for _, size := range sizes {
		b := make([]byte, size)
		if _, err := noise.Read(b); err != nil {
			t.Fatal(err)
		}
		end, err := w.WriteRecord(b)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), ends
}

func mustScan(t *testing.T, file []byte) (bad, good int64) {
	t.Helper()
	bad, good, err := scanManifest(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	return bad, good
}

// TestScanManifest damages each place of files of records, some of several blocks, and of sizes that leave no room for a
// header at a block's end.
func TestScanManifest(t *testing.T) {
	for _, sizes := range [][]int{
		{1}, {1, 0, 3}, {40, 70_000, 20, 500}, {10, 100_000}, {blockBytes - chunkHeader, 5, 6}, {blockBytes - 2*chunkHeader, 0, 5, 5},
		{blockBytes - chunkHeader - 3, 5, 6}, {blockBytes - chunkHeader - 7, 60, 6}, {0, 0, 0},
	} {
		file, ends := recordsOf(t, sizes...)
		if bad, good := mustScan(t, file); bad != -1 || good != -1 {
			t.Errorf("%v, whole: bad at %d, good at %d", sizes, bad, good)
		}
		last := int64(0) // where the last record begins, at the latest
		if len(ends) > 1 {
			last = ends[len(ends)-2]
		}
		for at := 0; at < len(file); at += 1 + len(file)/397 {
			cut := file[:at]
			if _, good := mustScan(t, cut); good != -1 {
				t.Errorf("%v, cut at %d: good at %d", sizes, at, good)
			}
			flip := bytes.Clone(file)
			flip[at] ^= 1 << (at % 8)
			bad, good := mustScan(t, flip)
			padding := bad == -1 && int64(at)%blockBytes > blockBytes-chunkHeader
			if int64(at) < last && !padding && (bad < 0 || bad > int64(at) || good <= int64(at)) {
				t.Errorf("%v, flip at %d: bad at %d, good at %d", sizes, at, bad, good)
			}
			if int64(at) >= last && good != -1 {
				t.Errorf("%v, flip at %d in the last record: good at %d", sizes, at, good)
			}
			// A power cut may lose any blocks of the last record.
			torn := bytes.Clone(file)
			from := max(last, int64(at)/4096*4096)
			clear(torn[min(from, int64(len(torn))):min(from+4096, int64(len(torn)))])
			if _, good := mustScan(t, torn); int64(at) >= last && good != -1 {
				t.Errorf("%v, torn from %d: good at %d", sizes, from, good)
			}
		}
	}
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("broken") }

func TestScanManifestFails(t *testing.T) {
	file, _ := recordsOf(t, 1, 2)
	if _, _, err := scanManifest(io.MultiReader(bytes.NewReader(file), failingReader{})); err == nil {
		t.Error("a read failed, and nothing is said")
	}
}

// TestDamagedManifest: a bad record with a good one behind it is named, before anything of the store is changed.
func TestDamagedManifest(t *testing.T) {
	fs, script := vfs.NewMem(), storetest.Script{Seed: 22}
	o := Options{FS: fs, BallastBytes: -1, Durability: Sync}
	s := mustOpen(t, "db", o)
	for n := uint64(1); n <= 40; n++ {
		mustApply(t, s, script, n)
		if n%10 == 0 {
			if err := s.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	mustClose(t, s)
	names, err := fs.List("db")
	if err != nil {
		t.Fatal(err)
	}
	before := map[string]string{}
	manifest := ""
	for _, name := range names {
		if strings.HasPrefix(name, "MANIFEST-") {
			manifest = max(manifest, "db/"+name)
		}
		before[name] = readAll(t, fs, "db/"+name)
	}
	whole := []byte(readAll(t, fs, manifest))
	begins := []int64{}
	for at := int64(0); at < int64(len(whole)); {
		_, size, ok := chunkAt(whole[at:])
		if !ok {
			t.Fatalf("no chunk at %d", at)
		}
		begins = append(begins, at)
		at += int64(size)
	}
	if len(begins) < 5 {
		t.Fatalf("only %d records", len(begins))
	}
	for i, at := range begins[:len(begins)-1] {
		bad := bytes.Clone(whole)
		bad[at+chunkHeader+1] ^= 4
		overwrite(t, fs, manifest, bad)
		for _, readOnly := range []bool{false, true} {
			o.ReadOnly = readOnly
			s, err := Open("db", o)
			var damage *DamageError
			if err == nil {
				t.Errorf("record %d is damaged, and the store opens at %v", i, s.Cursor())
				mustClose(t, s)
			} else if !errors.As(err, &damage) || !errors.Is(err, store.ErrCorrupt) || damage.Path != manifest || damage.Offset != at || damage.Hint() == "" {
				t.Errorf("record %d is damaged: %v", i, err)
			}
		}
	}
	overwrite(t, fs, manifest, whole)
	after, err := fs.List("db")
	if err != nil || len(after) != len(names) {
		t.Errorf("after refusals: %q, %v; before: %q", after, err, names)
	}
	for _, name := range after {
		if readAll(t, fs, "db/"+name) != before[name] {
			t.Errorf("%s was changed", name)
		}
	}
	o.ReadOnly = false
	s = mustOpen(t, "db", o)
	defer mustClose(t, s)
	if err := script.CheckRecovered(s); err != nil || s.Cursor().Revision() != 40 {
		t.Errorf("whole again: cursor %v, %v", s.Cursor(), err)
	}
}

func readAll(t *testing.T, fs vfs.FS, name string) string {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatalf("%s: %v", filepath.Base(name), err)
	}
	return string(b)
}
