//go:build !linux

package s3test

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
