package fold

import (
	"google.golang.org/protobuf/proto"

	"github.com/typedfold/fold/runtime/kv"
)

// JudgeBoth judges a put of the table's key shape on the wire alone, and decoded.
func JudgeBoth[K Key, V proto.Message](d *Desc[K, V], key string, value []byte) (onWire, accepted bool) {
	c, err := d.compile()
	if err != nil || !c.table.Matches(key) {
		return false, false
	}
	u := &kv.Update{Key: key, Value: value, Op: kv.OpPut, Version: kv.Revision(1)}
	onWire = c.checker != nil && c.checkWire(u, &checkScratch{}) && d.keyIsCanonical(c, key)
	_, _, rej := d.parse(c, u)
	return onWire, rej == nil
}
