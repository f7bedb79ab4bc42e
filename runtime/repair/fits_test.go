package repair

import (
	"errors"
	"strings"
	"testing"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/store"
)

// TestRestoreAsksForTheSchemas: an artifact whose schemas the fold refuses is not taken, and what taking one leaves owed
// is owed.
func TestRestoreAsksForTheSchemas(t *testing.T) {
	other := errors.New("the keys are others")
	for _, c := range []struct {
		name string
		fit  Fit
		err  error
		want string
	}{
		{"fits", Fit{}, nil, ""},
		{"fits and owes", Fit{Owes: kv.OwesListing}, nil, ""},
		{"refused", Fit{Refused: other}, nil, "was folded under other schemas: the keys are others"},
		{"damaged", Fit{}, store.ErrCorrupt, "is damaged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFleet(t, "pebble", kvtest.Limits{Evicts: true})
			f.aged(t)
			before := contents(t, f.store)
			asked := 0
			f.fits = func(s store.Snapshot) (Fit, error) {
				if asked++; s.Cursor().Revision() != 8 {
					t.Errorf("asked about an artifact at %v", s.Cursor())
				}
				return c.fit, c.err
			}
			out, err := f.restore(t)
			if asked != 1 {
				t.Errorf("asked %d times", asked)
			}
			if c.want == "" {
				if err != nil || out.Owed.Why != c.fit.Owes || c.fit.Owes != 0 && out.Owed.At != 8 {
					t.Errorf("owes %v: %v", out.Owed, err)
				}
				if said := decision(&f.report, "schemas_fit") == "true"; f.report.Put != 3 || said != (c.fit.Owes != 0) {
					t.Errorf("report %+v", &f.report)
				}
				return
			}
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			f.wantUntouched(t, before)
		})
	}
}
