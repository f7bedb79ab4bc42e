//go:build !unix

package s3test

import "context"

// lock can't keep another build out here; the last one to finish stands.
func lock(context.Context, string) (unlock func(), err error) { return func() {}, nil }
