package schema

import (
	"fmt"
	"slices"
	"strings"
)

// Class is what a changed schema means to a store whose rows were judged by the old one. A larger class is worse.
type Class uint8

const (
	// Safe: every row, every rejection and every index entry is what the new schema would have made of it.
	Safe Class = iota
	// Reindex: index entries have to be built or removed; rows stay as they are.
	Reindex
	// Refold: the stored values have to be judged again.
	Refold
	// Breaking: keys or values mean something else, so nothing in the store can be made to fit.
	Breaking
)

var classNames = [...]string{Safe: "SAFE", Reindex: "REINDEX", Refold: "REFOLD", Breaking: "BREAKING"}

func (c Class) String() string {
	if int(c) >= len(classNames) {
		return fmt.Sprintf("CLASS(%d)", uint8(c))
	}
	return classNames[c]
}

// LineChange is one line that differs between two records of a table, and what that means.
type LineChange struct {
	Change
	// InOld and InNew tell which of the records have the line.
	InOld, InNew bool
	Class        Class
	Reason       string
	// Unknown: this version knows nothing of such a line, so one that does has written it.
	Unknown bool
}

// String is the old and the new line, and what the change means, each on a line of its own.
func (l LineChange) String() string {
	var b strings.Builder
	if l.InOld {
		fmt.Fprintf(&b, "- %s: %s\n", l.Name, l.Old)
	}
	if l.InNew {
		fmt.Fprintf(&b, "+ %s: %s\n", l.Name, l.New)
	}
	fmt.Fprintf(&b, "  %v: %s\n", l.Class, l.Reason)
	return b.String()
}

// Verdict is what has to be done about a store before it fits a new schema of a table.
type Verdict struct {
	// Class is the worst of the changes'; Safe without any.
	Class Class
	// Changes are in the old record's order, and then the new one's.
	Changes []LineChange
	// AgedOut: the rows may include some that retention removed from the bucket and that the new schema would not keep.
	// The store does not tell which.
	AgedOut bool
}

// String is every change line by line.
func (v Verdict) String() string {
	var b strings.Builder
	for _, c := range v.Changes {
		b.WriteString(c.String())
	}
	return b.String()
}

// Hint is what a person can do about a verdict of Breaking; "" for any other.
func (v Verdict) Hint() string {
	switch {
	case v.Class != Breaking:
		return ""
	case slices.ContainsFunc(v.Changes, func(c LineChange) bool { return c.Unknown }):
		return "open the store with the version of fold that wrote it, or a newer one"
	case !slices.ContainsFunc(v.Changes, func(c LineChange) bool { return c.Class == Breaking && !strings.HasPrefix(c.Name, lineIndex) }):
		return "give the index a name that is not in retired_index"
	}
	return "take the change back; or declare the new schema as a message of its own, with keys of its own, beside the old one; " +
		"or start an empty store directory, which folds what the bucket still holds"
}

// Classify decides what a store with rows of the old record has to do before it serves the new one. Either record may
// be "": an old one is of a table that the store has not known, a new one of a table that is gone. It is pure, and the
// only place that decides this: a fold that opens its store, a restore and the buf plugin all ask it.
func Classify(oldRecord, newRecord string) Verdict {
	before, after := parseLines(oldRecord), parseLines(newRecord)
	if before.bare() && newRecord != "" {
		return Verdict{Class: Refold, AgedOut: after.drops(), Changes: []LineChange{{
			Change: Change{Name: lineMessage, New: after.values[lineMessage]}, InNew: true, Class: Refold,
			Reason: "the store has not judged rows of this table before",
		}}}
	}
	var v Verdict
	for _, name := range append(slices.Clone(before.names), after.names...) {
		if slices.ContainsFunc(v.Changes, func(c LineChange) bool { return c.Name == name }) {
			continue
		}
		l := LineChange{Change: Change{Name: name, Old: before.values[name], New: after.values[name]}}
		l.InOld, l.InNew = before.has(name), after.has(name)
		twice := before.twice[name] || after.twice[name]
		if l.Old == l.New && l.InOld == l.InNew && !twice {
			continue
		}
		l.classify(before, twice)
		v.Changes = append(v.Changes, l)
		v.Class = max(v.Class, l.Class)
	}
	unjudged := before.has(lineAgain) && before.values[lineAgain] != AgainRefold
	v.AgedOut = after.drops() && (!before.drops() || unjudged)
	return v
}

// Names of a record's lines. Those that end in a space are followed by a name of the schema's own.
const (
	lineMessage = "message"
	lineKey     = "key"
	lineVar     = "var "
	lineName    = "name " // "name V of x": the value V of the enum whose names stand in keys as variable x
	lineIndex   = "index "
	lineRetired = "retired_index"
	lineAgeOut  = "on_age_out"
	lineAgain   = "judge again"

	uniqueSuffix = ", unique"
	ageOutKeep   = "KEEP"
	ageOutDrop   = "DROP"
)

// Why a stored record says that the table's rows are to be judged again.
const (
	// AgainUnregistered: the bucket was folded without the table, so rows were stored unjudged.
	AgainUnregistered = "folded without the table"
	// AgainRefold: rows are being judged anew, and some already may have been.
	AgainRefold = "refold under way"
)

// Again is the record with a line that says that the rows are to be judged again. One that says so already stays.
func Again(record, why string) string {
	if parseLines(record).has(lineAgain) {
		return record
	}
	return record + lineAgain + ": " + why + "\n"
}

// fixedLines are the classes of changes that need no look at what changed.
var fixedLines = map[string]struct {
	class  Class
	reason string
}{
	lineMessage:       {Breaking, "the values are of another message"},
	"bucket":          {Breaking, "the rows are of another bucket"},
	lineKey:           {Breaking, "the keys in the bucket would not be read as they were written"},
	"in the key only": {Breaking, "the keys in the bucket would be bound to the values in another way"},
	"codec":           {Refold, "the stored values are decoded in another way"},
	"also_read":       {Refold, "other stored values can be decoded"},
	"bind":            {Refold, "the key fields of the stored values are judged in another way"},
	"validate":        {Refold, "other stored values are valid"},
	"max_value_bytes": {Refold, "other stored values are too large"},
	"on_reject":       {Refold, "other values are served of rejected keys"},
	lineRetired:       {Safe, "it only says which names must not be used again"},
	lineAgain:         {Refold, "some rows in the store have not been judged by this schema"},
}

func (l *LineChange) classify(before recordLines, twice bool) {
	fixed, isFixed := fixedLines[l.Name]
	switch {
	case twice:
		l.Class, l.Reason, l.Unknown = Breaking, "the line is there twice, which this version does not write", true
	case isFixed:
		l.Class, l.Reason = fixed.class, fixed.reason
	case strings.HasPrefix(l.Name, lineVar):
		l.Class, l.Reason = Breaking, "the variable's tokens in the bucket's keys would not be read as they were written"
	case strings.HasPrefix(l.Name, lineName):
		l.classifyName()
	case strings.HasPrefix(l.Name, lineIndex):
		l.classifyIndex(before)
	case l.Name == lineAgeOut:
		l.classifyAgeOut()
	default:
		l.Class, l.Reason, l.Unknown = Breaking, "this version does not know such a line", true
	}
}

func (l *LineChange) classifyName() {
	switch {
	case !l.InNew:
		l.Class, l.Reason = Breaking, "keys in the bucket may have this name, and would not be read any more"
	case !l.InOld:
		l.Class, l.Reason = Refold, "keys that could not be read may have this name"
	default:
		l.Class, l.Reason = Breaking, "the name stands for another value in the keys that have it"
	}
}

func (l *LineChange) classifyIndex(before recordLines) {
	name := strings.TrimPrefix(l.Name, lineIndex)
	was, is := strings.TrimSuffix(l.Old, uniqueSuffix), strings.TrimSuffix(l.New, uniqueSuffix)
	switch {
	case l.InNew && slices.Contains(strings.Fields(before.values[lineRetired]), name):
		l.Class, l.Reason = Breaking, "the name is retired, and must not be used again"
	case l.InOld && l.InNew && was == is:
		l.Class, l.Reason = Safe, "a unique index has the entries of any other"
	case !l.InOld:
		l.Class, l.Reason = Reindex, "the index has to be built"
	case !l.InNew:
		l.Class, l.Reason = Reindex, "the index's entries have to be removed"
	default:
		l.Class, l.Reason = Reindex, "the index has to be built anew"
	}
}

// classifyAgeOut: what retention removes is told once, as it happens. Under KEEP nothing in the store says which rows it
// was, so a table that drops them from now on may hold some that it would have dropped. Under DROP they are gone, from
// the bucket too: a fold that begins today has none of them either, so nothing is wrong, and none comes back.
func (l *LineChange) classifyAgeOut() {
	switch {
	case l.New == ageOutDrop:
		l.Class, l.Reason = Refold, "rows that retention removed from the bucket before cannot be told from others"
	case l.New == ageOutKeep:
		l.Class, l.Reason = Safe, "rows that retention removed before stay removed; those to come are kept"
	default:
		l.Class, l.Reason, l.Unknown = Breaking, "this version does not know such a value", true
	}
}

// recordLines are a record's lines by name.
type recordLines struct {
	names  []string
	values map[string]string
	twice  map[string]bool
}

func parseLines(record string) recordLines {
	r := recordLines{values: map[string]string{}, twice: map[string]bool{}}
	for line := range strings.Lines(record) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if r.has(name) {
			r.twice[name] = true
			continue
		}
		r.names = append(r.names, name)
		r.values[name] = value
	}
	return r
}

func (r recordLines) has(name string) bool { _, ok := r.values[name]; return ok }

// bare reports whether nothing is said of a schema.
func (r recordLines) bare() bool {
	return len(r.names) == 0 || len(r.names) == 1 && r.names[0] == lineAgain
}

func (r recordLines) drops() bool { return r.values[lineAgeOut] == ageOutDrop }
