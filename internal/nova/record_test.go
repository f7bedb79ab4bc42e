package nova

import (
	"errors"
	"testing"
)

// TestCheckBatch: a batch has records, not too many and not too large ones, and the names of their headers are UTF-8.
func TestCheckBatch(t *testing.T) {
	named := func(names ...string) []Record {
		r := Record{}
		for _, n := range names {
			r.Headers = append(r.Headers, Header{Name: n, Value: []byte("\xff")})
		}
		return []Record{{Body: []byte("\xff")}, r}
	}
	for name, c := range map[string]struct {
		records []Record
		ok      bool
	}{
		"none":               {nil, false},
		"too many":           {make([]Record, MaxBatchRecords+1), false},
		"too large":          {[]Record{{Body: make([]byte, 100)}}, false},
		"any body and value": {named("", "n", "é"), true},
		"a name":             {named("n", "\xff"), false},
	} {
		if err := CheckBatch(c.records, 100); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
