package foldvalidate

import (
	"errors"
	"fmt"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	fold "github.com/typedfold/fold/runtime"
)

// Validator is a fold.Validator over protovalidate. It is safe for concurrent use; one serves all tables and writers of a
// program, which keeps the memory of compiled rules down.
//
// What it says of a value is never the value of a field that is marked debug_redact, nor of one inside of such a field.
type Validator struct {
	v protovalidate.Validator
}

// New makes a validator and compiles the rules of the messages, and of all messages in them, which takes tens of
// milliseconds and would else be done at the first value. An error is a rule that does not compile.
func New(messages ...proto.Message) (*Validator, error) {
	v, err := protovalidate.New(protovalidate.WithMessages(messages...))
	if err != nil {
		return nil, fmt.Errorf("make validator: %w", err)
	}
	return Wrap(v, messages...)
}

// Wrap is New over a validator with options of its own. One whose rules depend on the time, or that resolves extensions
// differently from node to node, has nodes serve different rows.
func Wrap(v protovalidate.Validator, messages ...proto.Message) (*Validator, error) {
	if v == nil {
		return nil, errors.New("make validator: nil")
	}
	own := &Validator{v: v}
	for _, m := range messages {
		if err := own.Prepare(m); err != nil {
			return nil, fmt.Errorf("make validator: %w", err)
		}
	}
	return own, nil
}

// Prepare compiles the rules of the message, and of all messages in it. A fold does so with each table's message when
// the table is registered, so that a rule that does not compile refuses the table, and not each of its values.
func (v *Validator) Prepare(m proto.Message) error {
	return v.prepare(m.ProtoReflect().Descriptor(), map[protoreflect.FullName]bool{})
}

func (v *Validator) prepare(md protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) error {
	if seen[md.FullName()] {
		return nil
	}
	seen[md.FullName()] = true
	// An empty message is judged by every rule that stands at its type and its fields, so that each is compiled.
	if err := v.v.Validate(dynamicpb.NewMessage(md)); errors.As(err, new(*protovalidate.CompilationError)) {
		return fmt.Errorf("rules of %s: %w", md.FullName(), err)
	}
	fields := md.Fields()
	for i := range fields.Len() {
		if inner := fields.Get(i).Message(); inner != nil {
			if err := v.prepare(inner, seen); err != nil {
				return err
			}
		}
	}
	return nil
}

// Validate judges a message. Its error is a *fold.Rejection with code VALIDATION, the path of the first field that broke
// a rule, and an *Error.
func (v *Validator) Validate(m proto.Message) error {
	err := v.v.Validate(m)
	if err == nil {
		return nil
	}
	md := m.ProtoReflect().Descriptor()
	out := &Error{}
	var broken *protovalidate.ValidationError
	switch {
	case errors.As(err, &broken):
		out.add(md, broken.Violations)
	case redacted(md, nil): // a rule's own failure may quote what it failed on
		out.Violations = []Violation{{Text: "a rule could not be evaluated"}}
	default:
		out.Violations = []Violation{{Text: clip(err.Error(), maxText)}}
	}
	rej := &fold.Rejection{Code: fold.Validation, Err: out}
	if len(out.Violations) > 0 {
		rej.Field = out.Violations[0].Field
	}
	return rej
}
