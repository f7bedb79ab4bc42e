package artifact

import (
	"cmp"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// maxBytes is the most that the files may add up to: packed, with a header for each, their size is a number still.
const maxBytes = math.MaxInt64 - 1<<40

// validate sorts the files and checks what no single member shows.
func (m *Manifest) validate() error {
	if m.Schema < 1 {
		return invalid(ManifestName, "schema %d; schemas begin at 1", m.Schema)
	}
	if m.Backend == "" {
		return invalid(ManifestName, "no backend")
	}
	slices.SortFunc(m.Files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	for _, f := range m.Files {
		if reason := badPath(f.Path); reason != "" {
			return invalid(ManifestName, "file %.200q: %s", f.Path, reason)
		}
	}
	sum, folders, seen := int64(0), m.folders(), make(map[string]bool, len(m.Files))
	for i, f := range m.Files {
		switch {
		case i > 0 && m.Files[i-1].Path == f.Path:
			return invalid(ManifestName, "file %q is there twice", f.Path)
		case seen[strings.ToLower(f.Path)]: // one file on some file systems
			return invalid(ManifestName, "file %q is there in other letters too", f.Path)
		case folders[f.Path]:
			return invalid(ManifestName, "file %q is a folder too", f.Path)
		case f.Size < 0:
			return invalid(ManifestName, "file %q has %d bytes", f.Path, f.Size)
		case f.Size > maxBytes-sum:
			return invalid(ManifestName, "the files' sizes are beyond all numbers")
		}
		sum += f.Size
		seen[strings.ToLower(f.Path)] = true
	}
	if len(m.Files) == 0 {
		return invalid(ManifestName, "no files")
	}
	return nil
}

// badPath is what is wrong with a file's path; "" for nothing.
func badPath(p string) string {
	switch {
	case len(p) > MaxPath:
		return "the path is too long"
	case !strings.HasPrefix(p, DataName+"/"), p != path.Clean(p), !filepath.IsLocal(filepath.FromSlash(p)):
		return "the path is not one below " + DataName
	case strings.ContainsFunc(p, func(r rune) bool {
		return r == '\\' || r == ':' || r == unicode.ReplacementChar || !unicode.IsPrint(r)
	}):
		return "the path has a character that is not allowed"
	}
	return ""
}

// folders are the folders that the files are in.
func (m *Manifest) folders() map[string]bool {
	all := map[string]bool{DataName: true}
	for _, f := range m.Files {
		for d := path.Dir(f.Path); d != "." && d != "/" && !all[d]; d = path.Dir(d) {
			all[d] = true
		}
	}
	return all
}
