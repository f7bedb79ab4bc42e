package repair

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// emptyDir checks that nothing is left in a scratch folder.
func emptyDir(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Errorf("%d files are left in the scratch folder, %s is the first", len(left), left[0].Name())
	}
}

func ordered(key string) string {
	b := []byte(key)
	store.Ordered(b)
	return string(b)
}

// drain reads all keys as text.
func drain(t *testing.T, s *sorter) []string {
	t.Helper()
	keys, err := s.sorted(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for keys.next() {
		got = append(got, fmt.Sprintf("%q %d %v", keys.key, keys.rank, keys.op))
	}
	if keys.err != nil {
		t.Fatal(keys.err)
	}
	if keys.n != uint64(len(got)) {
		t.Errorf("n is %d after %d keys", keys.n, len(got))
	}
	return got
}

// sortedModel is what a sorter of these keys reads.
func sortedModel(in []kv.KeyVersion) []string {
	last := map[string]kv.KeyVersion{}
	for _, k := range in {
		o := ordered(k.Key)
		if had, ok := last[o]; !ok || k.Version.Rank() >= had.Version.Rank() {
			last[o] = k
		}
	}
	var want []string
	for _, o := range slices.Sorted(maps.Keys(last)) {
		want = append(want, fmt.Sprintf("%q %d %v", o, last[o].Version.Rank(), last[o].Op))
	}
	return want
}

func someKey(r *rand.Rand) string {
	key := string(rune('a' + r.IntN(3)))
	for range r.IntN(4) {
		key += [...]string{".", "-", "/", "0"}[r.IntN(4)] + string(rune('a'+r.IntN(3)))
	}
	if r.IntN(20) == 0 {
		key += strings.Repeat("long", r.IntN(200))
	}
	return key
}

func TestSorterSortsAndKeepsTheLastVersion(t *testing.T) {
	ops := []kv.Op{kv.OpPut, kv.OpDelete, kv.OpPurge, kv.OpAgedOut}
	for _, runBytes := range []int{1, 512, 4096, 1 << 20} {
		for seed := range uint64(30) {
			r := rand.New(rand.NewPCG(seed, uint64(runBytes)))
			dir := t.TempDir()
			s := newSorter(dir, runBytes)
			s.fanIn = 2 + r.IntN(5)
			var in []kv.KeyVersion
			for range r.IntN(400) {
				k := kv.KeyVersion{Key: someKey(r), Version: kv.Revision(uint64(r.IntN(6))), Op: ops[r.IntN(len(ops))]}
				in = append(in, k)
				if err := s.add(k); err != nil {
					t.Fatal(err)
				}
			}
			if got, want := drain(t, s), sortedModel(in); !slices.Equal(got, want) {
				t.Fatalf("run bytes %d, seed %d: got %d keys, want %d:\n%v\n%v", runBytes, seed, len(got), len(want), got, want)
			}
			if s.added() != uint64(len(in)) {
				t.Errorf("added %d, want %d", s.added(), len(in))
			}
			if err := errors.Join(s.close(), s.close()); err != nil {
				t.Fatal(err)
			}
			emptyDir(t, dir)
		}
	}
}

func TestSorterHoldsNoMoreThanRunBytes(t *testing.T) {
	for _, runBytes := range []int{1 << 10, 64 << 10, 1 << 20} {
		s := newSorter(t.TempDir(), runBytes)
		for i := range 20 * runBytes / 50 {
			k := kv.KeyVersion{Key: fmt.Sprintf("tenant.%d.device.%d", i%97, i), Version: kv.Revision(uint64(i + 1)), Op: kv.OpPut}
			if err := s.add(k); err != nil {
				t.Fatal(err)
			}
		}
		if s.peak > runBytes {
			t.Errorf("run bytes %d: %d were held", runBytes, s.peak)
		}
		// A run is a fair part of what may be held, or there would be too many.
		if runs, most := len(s.ends), 80; runs < 2 || runs > most {
			t.Errorf("run bytes %d: %d runs, want 2 to %d", runBytes, runs, most)
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSorterOneKeyPastTheBound(t *testing.T) {
	dir := t.TempDir()
	s := newSorter(dir, 100)
	var in []kv.KeyVersion
	for i, n := range []int{1, 1000, 3, 500, 2000, 2} {
		k := kv.KeyVersion{Key: strings.Repeat("k", n), Version: kv.Revision(uint64(i + 1)), Op: kv.OpPut}
		in = append(in, k)
		if err := s.add(k); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := drain(t, s), sortedModel(in); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	_ = s.close()
	emptyDir(t, dir)
}

func TestSorterErrors(t *testing.T) {
	fill := func(s *sorter) (err error) {
		for i := range 200 {
			err = errors.Join(err, s.add(kv.KeyVersion{Key: fmt.Sprint("k", i), Version: kv.Revision(1), Op: kv.OpPut}))
		}
		return err
	}
	t.Run("NoScratchFolder", func(t *testing.T) {
		s := newSorter(os.DevNull, 512)
		if err := fill(s); !errors.Is(err, syscall.ENOTDIR) {
			t.Errorf("got %v", err)
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("ContextEnds", func(t *testing.T) {
		dir := t.TempDir()
		s := newSorter(dir, 512)
		s.fanIn = 2
		if err := fill(s); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.sorted(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
		emptyDir(t, dir)
	})
	t.Run("DamagedFile", func(t *testing.T) {
		s := newSorter(t.TempDir(), 512)
		if err := fill(s); err != nil {
			t.Fatal(err)
		}
		if _, err := s.file.f.WriteAt([]byte{0xFF, 0xFF}, s.file.size/2); err != nil {
			t.Fatal(err)
		}
		keys, err := s.sorted(t.Context())
		for err == nil && keys.next() {
		}
		if err == nil {
			err = keys.err
		}
		if !errors.Is(err, errScratch) {
			t.Errorf("got %v", err)
		}
		if keys.next() {
			t.Error("a key after the error")
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
}
