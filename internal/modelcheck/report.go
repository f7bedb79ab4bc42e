package modelcheck

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"
)

// Options bound a search.
type Options struct {
	// Workers is how many goroutines search; 0: as many as there are processors. The report does not depend on it.
	Workers int
	// MaxStates: a search that meets more is truncated, which is an error; 0: 5,000,000.
	MaxStates int
	// Exact keeps each state's encoding. Else a hash of 64 bits stands for it: at ten million states, the odds that
	// two of them share one and a state is missed are three in a million.
	Exact bool
	// Ignore names properties that are not judged.
	Ignore []string
}

const defaultMaxStates = 5_000_000

// Validate says what is wrong with the options.
func (o Options) Validate() error {
	if o.Workers < 0 || o.MaxStates < 0 || o.MaxStates > maxID {
		return fmt.Errorf("modelcheck options: %d workers, at most %d states; 0 to %d states can be searched", o.Workers, o.MaxStates, maxID)
	}
	return nil
}

func (o Options) workers() int {
	if o.Workers == 0 {
		return runtime.GOMAXPROCS(0)
	}
	return o.Workers
}

func (o Options) maxStates() int {
	if o.MaxStates == 0 {
		return defaultMaxStates
	}
	return o.MaxStates
}

// Violation is a property that does not hold, and a shortest way there.
type Violation struct {
	Property string
	Trace    Trace
}

// Witness is a Sometimes property that was met, first after Steps actions.
type Witness struct {
	Property string
	Steps    int
}

// Report is what a search came to.
type Report struct {
	Name string
	// States are the different ones, Transitions all that lead from one to another, Depth the most actions that the
	// shortest way to a state has.
	States, Transitions, Depth int
	Elapsed                    time.Duration
	// Violations are one a property, in a fixed order. A search ends at the first depth with any, and they all have
	// that length. When it has none, every state is known, and Reachable and FairEventually are judged.
	Violations []Violation
	// Unwitnessed are the Sometimes properties that a whole search met nowhere.
	Unwitnessed []string
	Witnesses   []Witness
	// Unjudged are the Terminal properties of a whole search that met no end.
	Unjudged []string
	// Truncated: there are more than MaxStates states. States counts the levels that were searched whole.
	Truncated bool
	// Invalid: the model or the options are no good, so nothing is shown.
	Invalid error
}

// String is one line.
func (r Report) String() string {
	return fmt.Sprintf("model %s states %d transitions %d depth %d", r.Name, r.States, r.Transitions, r.Depth)
}

// Err is nil for a whole search in which all properties hold, each Sometimes was met, and each Terminal judged an end.
func (r Report) Err() error {
	var errs []error
	if r.Invalid != nil {
		errs = append(errs, fmt.Errorf("model %s: %w", r.Name, r.Invalid))
	}
	for _, v := range r.Violations {
		errs = append(errs, fmt.Errorf("model %s: %q is violated in %d steps:\n%s", r.Name, v.Property, v.Trace.Len(), v.Trace))
	}
	for _, name := range r.Unwitnessed {
		errs = append(errs, fmt.Errorf("model %s: %q never happens in %d states", r.Name, name, r.States))
	}
	for _, name := range r.Unjudged {
		errs = append(errs, fmt.Errorf("model %s: %q judges nothing: none of %d states is an end", r.Name, name, r.States))
	}
	if r.Truncated {
		errs = append(errs, fmt.Errorf("model %s: truncated after %d states, depth %d; raise MaxStates or make the model smaller", r.Name, r.States, r.Depth))
	}
	return errors.Join(errs...)
}

// Caught is how many steps show that the property is violated. A Sometimes is caught when a whole search met it
// nowhere; steps is that search's depth. Anything else that is wrong with the report is an error: another property
// violated first, a truncated search, or nothing violated at all.
func (r Report) Caught(property string) (steps int, err error) {
	for _, v := range r.Violations {
		if v.Property == property {
			return v.Trace.Len(), nil
		}
	}
	if r.Invalid == nil && !r.Truncated && len(r.Violations) == 0 {
		if slices.Contains(r.Unwitnessed, property) {
			return r.Depth, nil
		}
		if len(r.Unwitnessed) == 0 {
			return 0, fmt.Errorf("model %s: %q survives %d states", r.Name, property, r.States)
		}
	}
	return 0, fmt.Errorf("model %s: %q is not what is caught: %w", r.Name, property, r.Err())
}
