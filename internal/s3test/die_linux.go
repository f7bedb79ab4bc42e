package s3test

import "syscall"

// dieWithParent has the server end with this process, even one that is killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
