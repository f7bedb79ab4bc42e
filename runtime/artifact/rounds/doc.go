// Package rounds has the nodes of a fleet take turns at publishing their fold: a round is one export by whoever holds the
// lease, and a scheduler begins rounds often enough that a node which was away can always be restored, or tells when it
// could not.
package rounds
