package fold

import (
	"github.com/typedfold/fold/runtime/repair"
	"github.com/typedfold/fold/runtime/store"
)

// SetRefoldRows has a refold look at so many rows in one batch.
func (b *Builder) SetRefoldRows(n int) { b.refoldRows = n }

// Fits is what a fold of these tables says of an artifact.
func (b *Builder) Fits(artifact store.Snapshot) (repair.Fit, error) {
	return newTableSink(b.tables, b.store, Events{}).fits(artifact)
}
