package fold_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
)

// TestEvolveRenamed: a message that takes the keys of another one is refused, with both named, and nothing is written. One
// with keys of its own is not.
func TestEvolveRenamed(t *testing.T) {
	v := versions(t)
	text := strings.Replace(fmt.Sprintf(itemTable, ""), "message Item", "message Thing", 1)
	same, tail := itemOf(t, "renamed", text), itemOf(t, "tail", strings.Replace(text, "{id}", "{id...}", 1))
	apart := itemOf(t, "apart", strings.Replace(text, "item.{id}", "thing.{id}", 1))
	eachBackend(t, func(t *testing.T, b backend) {
		log, dir := newLog(), t.TempDir()
		log.Set("item.a", itemProto("a", 1, "good", 0))
		l := begin(t, b, dir, log, v["plain"], lifeOptions{})
		l.caughtUp()
		stored := l.record()
		l.end()
		names := []string{"- message: item.v1.Item", "+ message: item.v1.Thing"}
		err := refusedAt(t, b, dir, log, same, names...)
		if err.Table != "item.v1.Thing" || err.Stored != stored || err.Now != same.table.Record() {
			t.Errorf("%+v", err)
		}
		refusedAt(t, b, dir, log, tail, append(names, "- key: item.{id}", "+ key: item.{id...}")...)
		begin(t, b, dir, log, apart, lifeOptions{}).end()
		begin(t, b, dir, log, nil, lifeOptions{}).end()
		refusedAt(t, b, dir, log, same, names...) // folded without either meanwhile
		l = begin(t, b, dir, log, v["plain"], lifeOptions{})
		if rows := l.rows(); len(rows) != 1 {
			t.Errorf("rows %v", rows)
		}
		l.end()
	})
}

// TestEvolveRestoreRenamed: nor is an artifact taken that a node with another message has folded of the same keys.
func TestEvolveRestoreRenamed(t *testing.T) {
	v := versions(t)
	renamed := itemOf(t, "renamed", strings.Replace(fmt.Sprintf(itemTable, ""), "message Item", "message Thing", 1))
	eachBackend(t, func(t *testing.T, b backend) {
		log := kvtest.NewLog(kvtest.Options{Bucket: "test", Limits: kvtest.Limits{Evicts: true}})
		nodeDir, artifacts := t.TempDir(), t.TempDir()
		log.Set("item.a", itemProto("a", 1, "good", 0))
		node := begin(t, b, nodeDir, log, v["plain"], lifeOptions{})
		node.caughtUp()
		node.end()
		exporter := begin(t, b, t.TempDir(), log, renamed, lifeOptions{})
		if _, err := log.Put(bounded(t), "item.b", []byte(itemProto("b", 2, "late", 0)), kv.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		exporter.caughtUp()
		if _, err := exporter.f.Export(bounded(t), filepath.Join(artifacts, "x")); err != nil {
			t.Fatal(err)
		}
		exporter.end()
		log.EvictTo(log.Set("anchor", ""))
		node = begin(t, b, nodeDir, log, v["plain"], lifeOptions{repair: fold.RepairOptions{Scratch: t.TempDir(), Source: &artifact.LocalSource{
			Dir: artifacts, Scratch: t.TempDir(), Artifact: artifact.Options{Kinds: storeKinds()},
		}}})
		defer node.end()
		<-node.f.Done()
		if err := node.f.Err(); !errors.Is(err, fold.ErrRepairRefused) || !strings.Contains(err.Error(), "- message: item.v1.Thing") {
			t.Errorf("%v", err)
		}
	})
}
