// Package virtual runs whole stories in virtual time: an embedded nats-server, the real NATS client and real folds in one
// synctest bubble, over pipes that break. Hours of retention pass in milliseconds. Its tests are all there is of it; what
// one run does is not repeatable to the byte, since the server's goroutines and the scheduler have their say.
package virtual
