//go:build !unix

package streamchaos

import (
	"errors"
	"os"
)

const canPause = false

func pause(*os.Process) error  { return errors.ErrUnsupported }
func resume(*os.Process) error { return errors.ErrUnsupported }
func dump(*os.Process) error   { return errors.ErrUnsupported }
