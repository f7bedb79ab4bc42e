package foldvalidate

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// Bounds of an Error: a list of many wrong elements breaks as many rules.
const (
	maxViolations = 16
	maxText       = 512 // bytes, of one text or path
)

// Error is the rules that a message breaks.
type Error struct {
	// Violations are the first 16, in the order of the schema.
	Violations []Violation
	// More is how many were left out.
	More int
}

// Violation is one broken rule.
type Violation struct {
	// Field is the path of the field, such as spec.ports[2]; "" for a rule of the whole message.
	Field string
	// Rule is the rule's identifier, such as string.min_len.
	Rule string
	// Text is the rule's message; for a field that is marked debug_redact, the rule's identifier only.
	Text string
}

func (e *Error) Error() string {
	if len(e.Violations) == 1 && e.More == 0 {
		return e.Violations[0].Text // the rejection names the field
	}
	var b strings.Builder
	for i, v := range e.Violations {
		if i > 0 {
			b.WriteString("; ")
		}
		if v.Field != "" {
			b.WriteString(v.Field + ": ")
		}
		b.WriteString(v.Text)
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "; and %d more", e.More)
	}
	return b.String()
}

func (e *Error) add(md protoreflect.MessageDescriptor, all []*protovalidate.Violation) {
	for _, v := range all[:min(len(all), maxViolations)] {
		path, secret := pathOf(md, v.Proto.GetField())
		out := Violation{Field: clip(path, maxText), Rule: v.Proto.GetRuleId()}
		if text := v.Proto.GetMessage(); text != "" && !secret {
			out.Text = clip(text, maxText)
		} else {
			out.Text = "breaks rule " + out.Rule
		}
		e.Violations = append(e.Violations, out)
	}
	e.More = len(all) - len(e.Violations)
}

// pathOf is the text of a field's path in a message, and whether a rule's text may quote what is to be redacted: a field on
// the way is, or one inside of what the path leads to. The key of a redacted map is left out of the path.
func pathOf(md protoreflect.MessageDescriptor, path *validate.FieldPath) (text string, secret bool) {
	var b strings.Builder
	at := md
	for i, element := range path.GetElements() {
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(element.GetFieldName())
		var fd protoreflect.FieldDescriptor
		if at != nil {
			fd = at.Fields().ByNumber(protoreflect.FieldNumber(element.GetFieldNumber()))
		}
		// What the descriptors here don't know, such as an extension, is treated as one that is redacted.
		secret = secret || fd == nil || isRedacted(fd)
		if !secret || element.WhichSubscript() == validate.FieldPathElement_Index_case {
			b.WriteString(subscript(element))
		}
		at = nil
		if fd != nil {
			at = messageOf(fd)
		}
	}
	return b.String(), secret || at != nil && redacted(at, nil)
}

func messageOf(fd protoreflect.FieldDescriptor) protoreflect.MessageDescriptor {
	if fd.IsMap() {
		return fd.MapValue().Message()
	}
	return fd.Message()
}

func subscript(e *validate.FieldPathElement) string {
	switch e.WhichSubscript() {
	case validate.FieldPathElement_Index_case:
		return fmt.Sprintf("[%d]", e.GetIndex())
	case validate.FieldPathElement_BoolKey_case:
		return fmt.Sprintf("[%t]", e.GetBoolKey())
	case validate.FieldPathElement_IntKey_case:
		return fmt.Sprintf("[%d]", e.GetIntKey())
	case validate.FieldPathElement_UintKey_case:
		return fmt.Sprintf("[%d]", e.GetUintKey())
	case validate.FieldPathElement_StringKey_case:
		return fmt.Sprintf("[%q]", e.GetStringKey())
	}
	return ""
}

func isRedacted(fd protoreflect.FieldDescriptor) bool {
	o, ok := fd.Options().(*descriptorpb.FieldOptions)
	return ok && o.GetDebugRedact()
}

// redacted reports whether some field of the message, or of a message in it, is marked debug_redact.
func redacted(md protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) bool {
	if seen == nil {
		seen = map[protoreflect.FullName]bool{}
	}
	if seen[md.FullName()] {
		return false
	}
	seen[md.FullName()] = true
	fields := md.Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if isRedacted(fd) || fd.Message() != nil && redacted(fd.Message(), seen) {
			return true
		}
	}
	return false
}

// clip is s cut to at most n bytes, not within a character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
