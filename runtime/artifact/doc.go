// Package artifact moves a fold from one place to another, exactly as it was at its cursor. An artifact is a folder: the
// store's files under data/, and MANIFEST.json, which names each of them with its size and hash, and says what cursor they
// are consistent with, of what bucket, scope and log.
//
// A folder that is there under its name is whole: everything is written under a hidden name beside it, synced, and
// renamed. Nothing that was not checked becomes an artifact or a fold: files are taken by the manifest's names only, are
// read once, hashed on the way, and opened as a store before they get a name. What a dead process left under a hidden name
// is removed by the next one that works in the same folder.
package artifact
