// buf-plugin-fold is a check plugin for buf: buf breaking does not look at custom options by itself, so a change of a
// table's keys would pass. Its rules ask the same classifier as a fold that opens its store. With this in buf.yaml, buf
// lint and buf breaking run it:
//
//	lint:
//	  use:
//	    - STANDARD
//	    - FOLD_SCHEMA
//	breaking:
//	  use:
//	    - FILE
//	    - FOLD
//	plugins:
//	  - plugin: buf-plugin-fold
//
// Breaking rules, all but the last in category FOLD and on by default:
//
//	FOLD_TABLE_NO_DELETE     a table stays a table
//	FOLD_BUCKET_SAME         a table stays in its logical bucket
//	FOLD_KEY_PATTERN_SAME    its key pattern stays, and which variables are in the key only
//	FOLD_PART_ENCODING_SAME  its variables keep type and encoding, and enum values whose names stand in keys stay
//	FOLD_RETIRED_INDEX       an index that goes leaves its name in retired_index, and such a name is not used again
//	FOLD_NO_REFOLD           nothing changes for which a store judges its rows again; off unless it is named
//
// The lint rule FOLD_SCHEMA reports what protoc-gen-fold would refuse.
package main

import (
	"context"

	"buf.build/go/bufplugin/check"
)

const categoryID = "FOLD"

func main() { check.Main(spec()) }

func spec() *check.Spec {
	s := &check.Spec{
		Categories: []*check.CategorySpec{{
			ID: categoryID, Purpose: "Checks that stores of folds stay usable, and keys readable, under a changed schema.",
		}},
		Rules: []*check.RuleSpec{{
			ID: "FOLD_SCHEMA", Default: true, Type: check.RuleTypeLint,
			Purpose: "Checks that the options of each table are valid.",
			Handler: check.RuleHandlerFunc(lint),
		}},
	}
	for _, r := range rules {
		rule := &check.RuleSpec{ID: r.id, Purpose: r.purpose, Default: !r.optIn, Type: check.RuleTypeBreaking}
		if !r.optIn {
			rule.CategoryIDs = []string{categoryID}
		}
		rule.Handler = check.RuleHandlerFunc(func(_ context.Context, w check.ResponseWriter, q check.Request) error {
			r.run(w, q)
			return nil
		})
		s.Rules = append(s.Rules, rule)
	}
	return s
}
