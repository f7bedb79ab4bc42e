// Package wiretest holds the messages that the wire checker is tested with.
package wiretest
