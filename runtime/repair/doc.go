// Package repair brings a fold whose cursor is no resume position any more back to the truth, which is every write minus
// every real delete, or refuses with a reason. A re-list deletes what the bucket no longer lists, where that means
// "deleted"; a restore takes over an artifact, where it does not; an audit finds out, beside a fold that runs, what
// vanished delete markers left behind. Memory is bounded whatever the size of fold and bucket: both are walked in key
// order, and what has to be sorted goes through files.
//
// Nothing here writes to a store. Changes go through the Folder that the caller gives, and so through the fold's parse,
// hooks and store like everything else, and the cursor moves only with the outcome.
package repair
