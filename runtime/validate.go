package fold

import (
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"

	"google.golang.org/protobuf/proto"

	"github.com/typedfold/fold/runtime/kv"
)

// Validator judges the values of tables that say validate: true; foldvalidate makes one of protovalidate.
//
// Validate returns nil for a value that is good. Any error refuses it, with code VALIDATION. One that is a *Rejection
// says with its Field which field decided, and with its Err why. A panic refuses the value too, as a *PanicError.
//
// The value is decoded, and filled from its key where the table says so. Validate must not change or keep it, and is
// called from several goroutines at once. It should be a function of the value alone: every node judges for itself, and
// nodes whose validators disagree serve different rows.
type Validator interface {
	Validate(proto.Message) error
}

// Preparer is a Validator that can get ready for the messages of a table, and says what is wrong with their rules. Register
// calls it with an empty message; an error refuses the table.
type Preparer interface {
	Prepare(proto.Message) error
}

// ValidatorOption gives a validator to a table or to a writer.
type ValidatorOption struct{ v Validator }

// WithValidator has a table, or a writer, judge values with v. A table that does not say validate: true makes no use of
// it. A table's own validator comes before Options.Validator.
func WithValidator(v Validator) ValidatorOption { return ValidatorOption{v: v} }

func (o ValidatorOption) applyTable(t *tableOptions)   { t.validator = o.v }
func (o ValidatorOption) applyWriter(w *writerOptions) { w.validator = o.v }

// ErrNoValidator: a table says validate: true, and nobody gave a validator.
var ErrNoValidator = errors.New("no validator")

// NoValidatorError is a table, or a writer of one, that validates and has no validator. It matches ErrNoValidator.
type NoValidatorError struct {
	Table string
	hint  string
}

func (e *NoValidatorError) Error() string {
	return fmt.Sprintf("table %s says validate: true, and no validator was given", e.Table)
}

func (e *NoValidatorError) Is(target error) bool { return target == ErrNoValidator }

// Hint says what a person can do.
func (e *NoValidatorError) Hint() string { return e.hint }

// What a person can do about a table, and about a writer, without a validator.
const (
	hintTableValidator  = "set Options.Validator, or register the table with WithValidator; package foldvalidate has one for protovalidate"
	hintWriterValidator = "make the writer with WithValidator; package foldvalidate has one for protovalidate"
)

// PanicError is a validator's panic.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("validator panicked: %v", e.Value) }

// isNil reports whether v is nil, or an interface that holds a nil pointer.
func isNil(v Validator) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}

// validating is c for values that v has to judge; c itself when the table does not validate.
func (c *compiled) validating(v Validator, hint string) (*compiled, error) {
	if !c.table.Validate {
		return c, nil
	}
	if isNil(v) {
		return nil, &NoValidatorError{Table: c.name, hint: hint}
	}
	own := *c
	own.validator = v
	return &own, nil
}

// prepare has the validator get ready, if it can.
func (c *compiled) prepare(message func() proto.Message) error {
	p, ok := c.validator.(Preparer)
	if !ok {
		return nil
	}
	return guarded(func() error { return p.Prepare(message()) })
}

// validate is the validator's word on a decoded value, nil for a good one and where there is no validator.
func (c *compiled) validate(u *kv.Update, m proto.Message) *Rejection {
	if c.validator == nil {
		return nil
	}
	err := guarded(func() error { return c.validator.Validate(m) })
	if rej, ok := err.(*Rejection); err == nil || ok && rej == nil { // a nil pointer in the interface is no refusal
		return nil
	}
	rej := c.reject(u, Validation, err)
	rej.Code = Validation
	return rej
}

// guarded turns a panic of a validator into an error.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	return f()
}
