// Package validatetest has the tables of foldvalidate's tests. Their proto file imports the rules of buf.validate, whose
// own file is not in this repository: package image takes it from the Go module that has its generated code.
package validatetest
