// Package transport publishes artifacts to an object store, and brings them back. An artifact is in the store as three
// objects: its payload, its manifest beside those of the other generations, and, for the newest one, the pointer, which
// holds the same manifest. They are written in this order, so whatever is named is there whole; the pointer moves by the
// store's conditional write and never goes back; and what is deleted can never be published again.
//
// The layout under a key is
//
//	<key>.manifest.json                        the pointer
//	<key>.manifests/<cursor>-<hash>.json       the manifest of each generation
//	<key>.payloads/<cursor>-<hash>.tar         its packed files
//
// with the cursor's revision in 16 hexadecimal digits, and the first 16 of the manifest's hash.
package transport
