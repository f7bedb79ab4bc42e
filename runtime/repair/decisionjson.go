package repair

import (
	"encoding/json"
	"strconv"
)

// MarshalJSON gives whole numbers among the inputs as decimal strings: they may be revisions or times past 2^53.
func (d Decision) MarshalJSON() ([]byte, error) {
	in := make(map[string]any, len(d.Inputs))
	for name, value := range d.Inputs {
		switch v := value.(type) {
		case uint64:
			value = strconv.FormatUint(v, 10)
		case int64:
			value = strconv.FormatInt(v, 10)
		case int:
			value = strconv.Itoa(v)
		}
		in[name] = value
	}
	return json.Marshal(struct {
		Kernel string         `json:"kernel"`
		Inputs map[string]any `json:"inputs"`
		Answer string         `json:"answer"`
	}{d.Kernel, in, d.Answer})
}
