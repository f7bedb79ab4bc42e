package repair

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
)

func spillVersions(t *testing.T) []kv.Version {
	stamp, err := kv.ParseVersion([]byte("0123456789"))
	if err != nil {
		t.Fatal(err)
	}
	return []kv.Version{{}, kv.Revision(7), stamp, kv.Revision(1 << 60)}
}

func TestSpillReadsBackInOrder(t *testing.T) {
	versions := spillVersions(t)
	for _, n := range []int{0, 1, 3, 20_000} {
		dir := t.TempDir()
		s := newSpill(dir)
		key := func(i int) string { return fmt.Sprintf("key\x00%d", i*7919%n) }
		for i := range n {
			if err := s.add([]byte(key(i)), versions[i%len(versions)], byte(i)); err != nil {
				t.Fatal(err)
			}
		}
		if s.len() != uint64(n) || (s.file != nil) != (n == 20_000) {
			t.Errorf("%d keys: len %d, in a file %t", n, s.len(), s.file != nil)
		}
		for range 2 {
			a := readSpill(t, s)
			for i := range n {
				if !a.next() || string(a.key) != key(i) || a.version != versions[i%len(versions)] || a.flags != byte(i) {
					t.Fatalf("%d keys: number %d is %q %v %d, err %v", n, i, a.key, a.version, a.flags, a.err)
				}
			}
			if a.next() || a.err != nil {
				t.Errorf("%d keys: one more, err %v", n, a.err)
			}
		}
		if s.add([]byte("late"), kv.Version{}, 0) == nil {
			t.Error("a key was added after the first read")
		}
		if err := errors.Join(s.close(), s.close()); err != nil {
			t.Fatal(err)
		}
		emptyDir(t, dir)
	}
}

func readSpill(t *testing.T, s *spill) *scratchReader {
	t.Helper()
	r, err := s.read()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSpillReadersAreIndependent(t *testing.T) {
	s := newSpill(t.TempDir())
	defer func() { _ = s.close() }()
	for i := range 10_000 {
		if err := s.add(fmt.Append(nil, i), kv.Version{}, 0); err != nil {
			t.Fatal(err)
		}
	}
	a, b := readSpill(t, s), readSpill(t, s)
	for i := range 10_000 {
		if !a.next() || string(a.key) != fmt.Sprint(i) {
			t.Fatalf("a: %q at %d", a.key, i)
		}
		if i%2 == 0 && (!b.next() || string(b.key) != fmt.Sprint(i/2)) {
			t.Fatalf("b: %q at %d", b.key, i/2)
		}
	}
}

// TestSpillFindsDamage changes each byte of a short spill, and cuts it off at each.
func TestSpillFindsDamage(t *testing.T) {
	s := newSpill(t.TempDir())
	for i, v := range spillVersions(t) {
		if err := s.add(fmt.Append(nil, "key", i), v, byte(i)); err != nil {
			t.Fatal(err)
		}
	}
	whole := readAll(t, s)
	good := s.held
	for i := range good {
		s.held = append([]byte(nil), good...)
		s.held[i] ^= 0x41
		r := readSpill(t, s)
		n := 0
		for r.next() {
			n++
		}
		if !errors.Is(r.err, errScratch) {
			t.Errorf("byte %d changed: %d keys, err %v", i, n, r.err)
		}
		s.held = good[:i]
		r = readSpill(t, s)
		for n = 0; r.next(); n++ {
		}
		if r.err == nil && n >= whole || r.err != nil && !errors.Is(r.err, errScratch) {
			t.Errorf("cut at %d: %d keys, err %v", i, n, r.err)
		}
	}
}

func readAll(t *testing.T, s *spill) (n int) {
	t.Helper()
	r := readSpill(t, s)
	for r.next() {
		n++
	}
	if r.err != nil {
		t.Fatal(r.err)
	}
	return n
}

// TestScratchFolderIsMade: a folder that is not there is no reason to fail at every try.
func TestScratchFolderIsMade(t *testing.T) {
	f, err := newScratchFile(filepath.Join(t.TempDir(), "not", "there"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.close(); err != nil {
		t.Error(err)
	}
}
