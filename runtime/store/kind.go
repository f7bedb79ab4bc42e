package store

// Kind is an implementation of Store to those who have only its files: what an export left, in an artifact.
type Kind struct {
	// Backend is the implementation's name, as Info and an artifact's manifest have it.
	Backend string
	// Reads reports whether this build reads files of a format, by the name that Info gives it.
	Reads func(format string) bool
	// Open opens what Export left in dir, to be read only: nothing in there is created, changed or removed.
	Open func(dir string) (Store, error)
}
