package fold

// SetRefoldRows has a refold look at so many rows in one batch.
func (b *Builder) SetRefoldRows(n int) { b.refoldRows = n }
