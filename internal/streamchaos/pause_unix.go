//go:build unix

package streamchaos

import (
	"os"
	"syscall"
)

const canPause = true

func pause(p *os.Process) error  { return p.Signal(syscall.SIGSTOP) }
func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// dump has a process write where its goroutines are, and end.
func dump(p *os.Process) error { return p.Signal(syscall.SIGQUIT) }
