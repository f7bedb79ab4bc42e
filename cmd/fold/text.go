package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	fold "github.com/typedfold/fold/runtime"
)

// printExplanation says in a few lines what a fold would do, and why.
func printExplanation(w io.Writer, dir string, x *fold.Explanation) {
	cursor := fmt.Sprint(x.Cursor)
	if x.Cursor == 0 {
		cursor = "none"
	}
	scope := ""
	if x.Scope != fold.AllKeys().String() {
		scope = fmt.Sprintf(", scope %s", x.Scope)
	}
	fmt.Fprintf(w, "The fold in %s of bucket %q%s %s.\n\n", dir, x.Bucket, scope, verdictText(x))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "cursor:\t%s\n", cursor+memo(x))
	fmt.Fprintf(t, "log:\trevisions %d to %d\n", x.First, x.Last)
	line(t, "cause", x.Cause)
	line(t, "reason", x.Reason)
	if r := x.Repair; r != nil {
		line(t, "plan", r.Plan)
		line(t, "artifact", r.Artifact)
	}
	if x.Verdict == fold.WouldRepair {
		line(t, "changes", changes(x.Repair))
		line(t, "such as", strings.Join(x.Repair.Examples, ", "))
		line(t, "then", thenText(x.Repair))
	}
	if x.Refusal != nil {
		line(t, "refusal", x.Refusal.Error)
		line(t, "hint", x.Refusal.Hint)
	}
	line(t, "owed", owedText(x.Owed))
	line(t, "owed then", owedText(x.ThenOwed))
	if x.MayOwe {
		line(t, "owed too", "an audit, if revisions after the cursor are missing from the bucket, which only reading them tells")
	}
	printAudit(t, x.Audit)
	_ = t.Flush() // what the output does not take can't be said there either
	if x.Repair != nil {
		printDecisions(w, x.Repair)
	}
	if x.Audit != nil && x.Audit.Report != nil {
		printDecisions(w, x.Audit.Report)
	}
}

func line(w io.Writer, name, text string) {
	if text != "" {
		fmt.Fprintf(w, "%s:\t%s\n", name, text)
	}
}

func memo(x *fold.Explanation) string {
	if x.SeenEvicting {
		return ", and retention was seen to take current values"
	}
	return ""
}

func verdictText(x *fold.Explanation) string {
	switch x.Verdict {
	case fold.WouldResume:
		return "would resume"
	case fold.WouldBegin:
		return "would begin, with every current value"
	case fold.WouldRepair:
		return "would repair itself"
	}
	return "would refuse, and serve what it holds"
}

func changes(r *fold.RepairReport) string {
	return fmt.Sprintf("%d deletes and %d puts, of %d rows; %d keys listed", r.Deleted, r.Put, r.Rows, r.Listed)
}

func thenText(r *fold.RepairReport) string {
	if r.Plan == "restore" {
		return "resume from revision " + r.NewCursor
	}
	return "read every current value anew"
}

func owedText(o *fold.OwedAudit) string {
	if o == nil {
		return ""
	}
	return fmt.Sprintf("an audit (%s) up to revision %d", o.Why, o.UpTo)
}

func printAudit(w io.Writer, a *fold.ExplainedAudit) {
	if a == nil {
		return
	}
	text := map[fold.AuditVerdict]string{
		fold.AuditNone: "nothing is owed", fold.AuditUnproven: "the listing is not the truth, so only a restore from an artifact settles it",
		fold.AuditBehind: a.Reason, fold.AuditContradicts: "the fold and the bucket contradict each other: " + a.Reason,
	}[a.Verdict]
	if a.Verdict == fold.AuditSettles {
		text = "would settle it: " + changes(a.Report)
	}
	line(w, "audit", text)
	if a.Report != nil {
		line(w, "such as", strings.Join(a.Report.Examples, ", "))
	}
}

// printDecisions is a table of what was asked and answered.
func printDecisions(w io.Writer, r *fold.RepairReport) {
	if len(r.Decisions) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "DECISION\tANSWER\tBECAUSE\n")
	for _, d := range r.Decisions {
		var in []string
		for _, name := range slices.Sorted(maps.Keys(d.Inputs)) {
			in = append(in, fmt.Sprintf("%s=%v", name, d.Inputs[name]))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", d.Kernel, d.Answer, strings.Join(in, " "))
	}
	_ = t.Flush()
}
