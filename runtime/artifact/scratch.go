package artifact

import (
	"fmt"
	"os"
	"path/filepath"
)

// Scratch is a hidden folder for what must not outlive its process: where that is killed, the next one that works in the
// same folder removes it, as CleanStages does.
type Scratch struct{ stage *stage }

// NewScratch makes a folder in parent, which is made when it is not there, and removes what dead processes left in it.
func NewScratch(parent string) (*Scratch, error) {
	parent, err := filepath.Abs(parent)
	if err != nil {
		return nil, fmt.Errorf("scratch folder: %w", err)
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, fmt.Errorf("scratch folder: %w", err)
	}
	s, err := newStage(filepath.Join(parent, stagePrefix+"none"), nil)
	if err != nil {
		return nil, fmt.Errorf("scratch folder: %w", told(err))
	}
	return &Scratch{stage: s}, nil
}

// Dir is the folder. What is put in it must not be named as what is there already.
func (s *Scratch) Dir() string { return s.stage.dir }

// Remove removes the folder with all that is in it. It may be called again.
func (s *Scratch) Remove() error {
	if err := s.stage.remove(); err != nil {
		return fmt.Errorf("scratch folder: %w", err)
	}
	return nil
}
