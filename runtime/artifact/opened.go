package artifact

import (
	"errors"
	"fmt"

	"github.com/typedfold/fold/runtime/repair"
	"github.com/typedfold/fold/runtime/store"
)

// Opened is an artifact that was brought into a scratch folder and opened there: what a repair.Source fetches.
type Opened struct {
	store.Store
	scratch  *Scratch
	manifest repair.Manifest
}

var _ repair.Artifact = (*Opened)(nil)

// NewOpened takes over the store and the scratch folder that it lies in.
func NewOpened(s store.Store, scratch *Scratch, m repair.Manifest) *Opened {
	return &Opened{Store: s, scratch: scratch, manifest: m}
}

// Manifest is what the artifact says of itself.
func (a *Opened) Manifest() repair.Manifest { return a.manifest }

// Close closes the store and removes the folder. While the store is in use, it is store.ErrBusy and stays.
func (a *Opened) Close() error {
	err := a.Store.Close()
	if errors.Is(err, store.ErrBusy) {
		return fmt.Errorf("artifact %q: %w", a.manifest.ID, err)
	}
	if err := errors.Join(err, a.scratch.Remove()); err != nil {
		return fmt.Errorf("artifact %q: %w", a.manifest.ID, err)
	}
	return nil
}
