// Package tutorial has the test of docs/tutorial.md: it writes every file of the page and runs every command, in the
// page's order and in one shell, and compares what they print.
//
// Three commands are not the real ones, since a test takes no fixed port, asks no registry, and installs nothing:
//
//   - go get and go mod tidy resolve nothing. The module gets the versions of this repository, and this repository itself
//     in place of a published github.com/typedfold/fold. What they name is checked to be there, in the version that is named.
//     So go tool buf is the buf of tools/go.mod. Every other go command is the real one.
//   - nats-server is a process with the server that the other tests embed. It is reached by a proxy in the test, which has
//     one address as long as the test runs.
//   - curl asks the router where it listens, which is on a free port.
package tutorial
