package protocol

// CursorStep is what one batch says about how far it reaches.
type CursorStep struct {
	// Current is the cursor's revision before the batch.
	Current uint64
	// High is the highest known revision in the batch, rejected updates included; 0 when it has none. Updates of
	// unknown revision do not count.
	High uint64
	// Frontier is how far everything in scope is known to have been delivered; 0 when the watch did not say.
	Frontier uint64
}

// NextCursor is the revision that a batch's commit moves the cursor to: past everything in it, rejected updates
// too, since there is nothing in those to apply again; never on the word of an update of unknown revision; never back.
func NextCursor(s CursorStep) uint64 { return max(s.Current, s.High, s.Frontier) }

// Hydrated reports whether a fold at cursor has all that the log held when its watch began, at head.
func Hydrated(cursor, head uint64) bool { return cursor >= head }
