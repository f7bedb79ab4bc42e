// Package logstore is a store in one append-only file: a log of checksummed batches, and the ordered map that they add
// up to in RAM. It suits folds that fit in memory; pebblestore is for the others.
//
// # Files
//
// Open(path) owns path, path+".lock" (held while the store is open) and path+".tmp" (a rewrite that is not finished;
// removed at open). The file is replaced only by rename, after its successor was synced.
//
// # Format 3
//
// A file is a 16-byte header and frames. Integers are little-endian, checksums CRC-32C.
//
//	header  "PGSS" | version u16 = 3 | four zero bytes | 0xF3 | zero byte | crc u32 of the 12 bytes before
//	frame   crc u32 of the other 16 header bytes and of the frame's offset as u64
//	        | payload length u32 | payload crc u32 | record count u32 | kind u8 | flags u8 | two zero bytes | payload
//	put     1 | key length uvarint | value length uvarint | key | value
//	delete  2 | key length uvarint | key
//	cursor  3 | length u8 | cursor bytes (kv.Cursor)
//
// Keys are store keys, with their space byte. Frames form groups: flag 1 means that the group goes on in the next
// frame, and the last frame of a group ends in its one cursor record. The first group has kind 'B', the compacted
// state at the time when the file was written; each later group has kind 'A' and is one Apply. A group counts when
// its last frame is whole, so a batch and its cursor stand or fall together. Flag 2, on the first frame of a group 'A',
// means that all before that frame was durable when it was written.
//
// # What a damaged file does
//
// A loss of power keeps any of the bytes that were not synced, and may lose those before them. So a frame that the end
// of the file cuts short, or that does not match its checksum, begins a torn tail: its group and all after it are
// dropped, and the file is cut back to the group before. But when a later frame tells that all before it was durable,
// it is damage; that and everything else is refused with ErrCorrupt, the offset, and the file left as it was. The base
// group is never torn, for it was synced before the file had its name.
//
// So a file with one damaged byte either does not open, or opens at an earlier batch that no sync is known to have come
// after: under Sync, that is the last but one, where the byte is in the last.
//
// # Format 2
//
// Format 2 is the one of the Rust library slipstream. ReadV2, ImportV2 and ExportV2 speak it byte for byte, and Open
// reads it. A format 2 file is left untouched until the first write, which replaces it by a format 3 file.
package logstore
