// Package server serves streams over gRPC, Connect and HTTP with JSON. A Server is one node of a cluster: several may share
// the same NATS servers, and any of them takes any request.
package server
