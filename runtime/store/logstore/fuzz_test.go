package logstore

import (
	"bytes"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/store"
)

// FuzzReadV2: any bytes are refused or read, and what was read survives being written and read again.
func FuzzReadV2(f *testing.F) {
	seed := func(parts ...string) []byte {
		b, err := hex.DecodeString(strings.ReplaceAll(strings.Join(parts, ""), " ", ""))
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	f.Add(seed(v2Header), false)
	f.Add(seed(v2Header, v2PutZ, v2PutAB, v2DeleteQ, v2Cursor9), true)
	f.Add(append(seed(v2Header, v2PutAB, v2Cursor9), make([]byte, 20)...), false)
	f.Fuzz(func(t *testing.T, b []byte, mend bool) {
		if mend {
			b = mendedV2(b)
		}
		before := slices.Clone(b)
		file, err := parseV2("f", b)
		if !bytes.Equal(b, before) {
			t.Fatal("reading changed the bytes")
		}
		if err != nil {
			return
		}
		out := &appendFile{File: &memFile{m: newMemFS(), n: &memNode{}}}
		if err := file.appendTo(out); err != nil {
			t.Fatal(err)
		}
		again, err := parseV2("f", out.File.(*memFile).n.data)
		if err != nil || !again.Compact || again.print() != file.print() {
			t.Fatalf("read %+v, then %+v, %v", file, again, err)
		}
	})
}

// FuzzOpen: any file is refused and left as it was, or opens, takes a batch, and opens again as the same fold.
func FuzzOpen(f *testing.F) {
	m := newMemFS()
	s, err := Open(testPath, Options{FS: m})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(slices.Clone(m.names[testPath].data), false)
	for i, b := range smallBatches() {
		if err := s.Apply(f.Context(), b, kv.CursorAt(uint64(i+1))); err != nil {
			f.Fatal(err)
		}
		f.Add(slices.Clone(m.names[testPath].data), true)
	}
	if err := s.Close(); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte, mend bool) {
		if mend {
			data = mended(data)
		}
		m := fsWith(data)
		s, err := Open(testPath, Options{FS: m})
		if err != nil {
			refused(t, m, data)
			return
		}
		b := &store.Batch{Ops: []store.Op{{Key: []byte("zz fuzz"), Value: []byte("x")}}}
		want := contents(t, s)
		want["zz fuzz"] = "x"
		c := kv.CursorAt(s.Cursor().Revision()/2 + 1)
		if err := s.Apply(t.Context(), b, c); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = mustOpen(t, m, Options{})
		if got := contents(t, s); s.Cursor() != c || !maps.Equal(got, want) || s.Recovery().TornBytes != 0 {
			t.Fatalf("re-opened at %v with %q, want %v and %q; %+v", s.Cursor(), got, c, want, s.Recovery())
		}
	})
}

// contents is all that a store shows but its cursor.
func contents(t *testing.T, s *Store) map[string]string {
	t.Helper()
	it, err := s.Iter(store.IterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for it.Next() {
		v, err := it.Value()
		if err != nil {
			t.Fatal(err)
		}
		all[string(it.Key())] = string(v)
	}
	if err := errors.Join(it.Err(), it.Close()); err != nil {
		t.Fatal(err)
	}
	delete(all, string(store.CursorKey()))
	return all
}

// mended has right checksums in all frames that it can find, so that fuzzing gets past them.
func mended(b []byte) []byte {
	b = slices.Clone(b)
	if len(b) < headerV3Len || b[4] != versionV3 {
		return b
	}
	copy(b, appendHeaderV3(nil))
	for off := headerV3Len; off+frameHeadLen <= len(b); {
		h := frameHead{length: uint32(b[off+4]) | uint32(b[off+5])<<8, count: uint32(b[off+12]), kind: b[off+16], flags: b[off+17]}
		end := min(off+frameHeadLen+int(h.length), len(b))
		h.crc = crc32.Checksum(b[off+frameHeadLen:end], castagnoli)
		h.put(b[off:off+frameHeadLen], int64(off))
		off = end
	}
	return b
}

// mendedV2 is the same for format 2.
func mendedV2(b []byte) []byte {
	b = slices.Clone(b)
	for off := headerV2Len; len(b)-off >= recordV2Min; {
		in := fieldsV2{b: b[off+5:]}
		if kind := b[off+4]; kind != recCursor {
			in.take(in.number(2))
			if kind == recPut {
				in.take(in.number(4))
			}
		}
		in.take(in.number(1))
		if in.short {
			break
		}
		end := len(b) - len(in.b)
		sumV2(b[:end], off)
		off = end
	}
	return b
}
