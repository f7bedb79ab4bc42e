package fold

import (
	"google.golang.org/protobuf/proto"

	"github.com/typedfold/fold/runtime/kv"
)

// JudgeTyped judges a put of the table's key shape without decoding, and decoded; codec is how the value was decoded.
func JudgeTyped[K Key, V proto.Message](d *Desc[K, V], key string, value []byte, contentType string) (passes, accepted bool) {
	c, err := d.compile()
	if err != nil || !c.table.Matches(key) {
		return false, false
	}
	u := &kv.Update{Key: key, Value: value, ContentType: contentType, Op: kv.OpPut, Version: kv.Revision(1)}
	passes = d.passes(c, u, &checkScratch{})
	_, _, rej := d.parse(c, u)
	return passes, rej == nil
}

// Fill sets a value's key fields.
func Fill[K Key, V proto.Message](d *Desc[K, V], v V, k K) error { return d.cfg.Fill(v, k) }
