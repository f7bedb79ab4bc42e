package schema

import (
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Problem is one thing that is wrong with a table's schema. It is an error.
type Problem struct {
	File protoreflect.FileDescriptor
	// Path leads to the option or field in the file's descriptor, for source positions.
	Path protoreflect.SourcePath
	// Elements is how many elements the repeated field of the table option has that Path leads into; 0 when it leads into
	// none. Compilers differ in what they number when a list is written as one, [...].
	Elements int
	// Literal is the text of the option at Path, and Offset a byte offset in it. Literal is "" when the problem
	// is not inside a string.
	Literal string
	Offset  int
	Message string
	// Hint says what to write instead; it may be empty.
	Hint string
}

func (p Problem) Error() string {
	s := p.Message
	if p.File != nil {
		s = p.File.Path() + ": " + s
	}
	if p.Hint != "" {
		s += " (" + p.Hint + ")"
	}
	return s
}

// Numbers of the fields that hold options in descriptor.proto, of the extension, and of fold.v1.Table's fields.
const (
	fileOptions    = 8
	messageOptions = 7
	fieldOptions   = 8
	extension      = 50737

	fileBucket   = 1
	fileOnReject = 2

	tableKey           = 1
	tablePart          = 2
	tableBucket        = 3
	tableValue         = 4
	tableBind          = 5
	tableIndex         = 6
	tableOnReject      = 8
	tableGoName        = 9
	tableRetiredIndex  = 11
	tableAlsoRead      = 12
	tableOnAgeOut      = 13
	partName           = 1
	partType           = 2
	partEnc            = 3
	partGoName         = 4
	indexName          = 1
	indexFields        = 2
	descFileMessage    = 4
	descFileExtension  = 7
	descMessageNested  = 3
	descMessageField   = 2
	descMessageExt     = 6
	fieldEnc           = 1
	maxPatternTokens   = 64
	maxPatternLength   = 1024
	maxIndexFields     = 8
	reservedKVPrefix   = "_kv"
	reservedFoldPrefix = "_fold"
)

// PathOf is the source path of a message or field in its file.
func PathOf(d protoreflect.Descriptor) protoreflect.SourcePath {
	var path protoreflect.SourcePath
	for {
		parent := d.Parent()
		if parent == nil {
			slices.Reverse(path)
			return path
		}
		_, inFile := parent.(protoreflect.FileDescriptor)
		number := int32(descMessageField)
		switch d := d.(type) {
		case protoreflect.MessageDescriptor:
			number = descMessageNested
			if inFile {
				number = descFileMessage
			}
		case protoreflect.FieldDescriptor:
			if d.IsExtension() {
				number = descMessageExt
				if inFile {
					number = descFileExtension
				}
			}
		}
		path = append(path, int32(d.Index()), number)
		d = parent
	}
}

// OptionPath is the source path of d's fold option, and of what sub leads to in it. d is a file, message or field.
func OptionPath(d protoreflect.Descriptor, sub ...int32) protoreflect.SourcePath {
	number := int32(messageOptions)
	switch d.(type) {
	case protoreflect.FileDescriptor:
		number = fileOptions
	case protoreflect.FieldDescriptor:
		number = fieldOptions
	}
	return append(append(PathOf(d), number, extension), sub...)
}
