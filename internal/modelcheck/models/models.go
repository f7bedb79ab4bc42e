// Package models holds the models of the log side and of the fleet. They call the functions that ship: the kernels of
// runtime/protocol and the machine's Step. Each file gives its cases and its mutations to the two lists here.
package models

import (
	"slices"

	"github.com/typedfold/fold/internal/modelcheck"
)

// All are the models, in the order they are run and printed.
func All() []modelcheck.Case {
	return slices.Concat(
		appliedModels(),
		repairModels(),
		publishModels(),
		leaseModels(),
		relistOrderModels(),
		fleetModels(),
		liveModels(),
		incarnationModels(),
		markerModels(),
		appendModels(),
		fenceModels(),
		logStartModels(),
	)
}

// Mutations are models that are wrong on purpose: a kernel's input is forged, or a step of the machine undone.
func Mutations() []modelcheck.Mutation {
	return slices.Concat(
		appliedMutations(),
		repairMutations(),
		publishMutations(),
		leaseMutations(),
		relistOrderMutations(),
		fleetMutations(),
		liveMutations(),
		incarnationMutations(),
		markerMutations(),
		appendMutations(),
		fenceMutations(),
		logStartMutations(),
	)
}
