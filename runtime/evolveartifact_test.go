package fold_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/kv/kvtest"
	"github.com/typedfold/fold/runtime/store"
)

// TestEvolveRestore restores a node from an artifact that a node with another version of the table has exported.
func TestEvolveRestore(t *testing.T) {
	v := versions(t)
	for _, c := range []struct{ exporter, node, rows string }{
		{"plain", "plain", "a good@1, b bad@3"},
		{"plain", "both", "a good@1, b bad@3, j json@2"},
		{"both", "valid", "a good@1"},
		{"index", "other", "a good@1, b bad@3"},
		{"valid", "validindex", "a good@1"},
		{"pattern", "plain", ""},
		{"encoding", "plain", ""},
	} {
		eachBackend(t, func(t *testing.T, b backend) {
			log := kvtest.NewLog(kvtest.Options{Bucket: "test", Limits: kvtest.Limits{Evicts: true}})
			exporterDir, nodeDir, artifacts := t.TempDir(), t.TempDir(), t.TempDir()
			exporter := begin(t, b, exporterDir, log, v[c.exporter], lifeOptions{})
			log.Set("item.a", itemProto("a", 1, "good", 0))
			node := begin(t, b, nodeDir, log, v[c.node], lifeOptions{})
			node.caughtUp()
			node.end()
			if _, err := log.Put(bounded(t), "item.j", []byte(itemJSON("j", 2, "json")), kv.PutOptions{ContentType: typeJSON}); err != nil {
				t.Fatal(err)
			}
			log.Set("item.b", itemProto("b", 1, "bad", 0))
			log.Set("item.c", "\xff")
			exporter.caughtUp()
			if _, err := exporter.f.Export(bounded(t), filepath.Join(artifacts, "x")); err != nil {
				t.Fatal(err)
			}
			exporter.end()
			head := log.Set("anchor", "")
			log.EvictTo(head)
			node = begin(t, b, nodeDir, log, v[c.node], lifeOptions{repair: fold.RepairOptions{Scratch: t.TempDir(), Source: &artifact.LocalSource{
				Dir: artifacts, Scratch: t.TempDir(), Artifact: artifact.Options{Kinds: storeKinds()},
			}}})
			defer node.end()
			if c.rows == "" {
				<-node.f.Done()
				err := node.f.Err()
				if !errors.Is(err, fold.ErrRepairRefused) || !strings.Contains(err.Error(), "other schemas") || !strings.Contains(err.Error(), "BREAKING") {
					t.Errorf("%s to %s: %v", c.exporter, c.node, err)
				}
				if rows := node.rows(); len(rows) != 1 {
					t.Errorf("rows %v", rows)
				}
				return
			}
			node.caughtUp()
			if got := sortedRows(node.rows()); got != c.rows {
				t.Errorf("%s to %s: rows %s, want %s", c.exporter, c.node, got, c.rows)
			}
			if r := node.f.Status().Repair; r == nil || r.Artifact != "x" {
				t.Errorf("%s to %s: repair %+v", c.exporter, c.node, r)
			}
			if report, err := node.f.VerifyIndexes(bounded(t)); err != nil || report.Err() != nil {
				t.Errorf("indexes: %v, %v", err, report.Err())
			}
		})
	}
}

// TestEvolveImport starts a fold of one version on an imported artifact of another.
func TestEvolveImport(t *testing.T) {
	v := versions(t)
	eachBackend(t, func(t *testing.T, b backend) {
		log, dir := newLog(), t.TempDir()
		log.Set("item.a", itemProto("a", 1, "good", 0))
		log.Set("item.b", itemProto("b", 1, "bad", 0))
		l := begin(t, b, t.TempDir(), log, v["plain"], lifeOptions{})
		l.caughtUp()
		if _, err := l.f.Export(bounded(t), filepath.Join(dir, "artifact")); err != nil {
			t.Fatal(err)
		}
		l.end()
		for name, want := range map[string]string{"valid": "a good@1", "index": "a good@1, b bad@2", "pattern": ""} {
			into := filepath.Join(dir, name)
			if _, err := artifact.Import(bounded(t), filepath.Join(dir, "artifact"), into, artifact.Options{Kinds: storeKinds()}); err != nil {
				t.Fatal(err)
			}
			imported := backend{b.name, func(dir string) (store.Store, error) { return openExport(b, dir) }}
			if want == "" {
				refusedAt(t, imported, into, log, v[name], "- key: item.{id}", "+ key: item.{text}")
				continue
			}
			l := begin(t, imported, into, log, v[name], lifeOptions{})
			if got := sortedRows(l.rows()); got != want {
				t.Errorf("%s: rows %s, want %s", name, got, want)
			}
			l.caughtUp()
			l.sameAsFresh(b)
			l.end()
		}
	})
}

// TestEvolveArtifactAgedOut: what an artifact may hold that the table would have dropped is owed.
func TestEvolveArtifactAgedOut(t *testing.T) {
	v := versions(t)
	for _, c := range []struct {
		exporter, node string
		evicted        bool
		owes           kv.Owes
	}{
		{"plain", "mirror", true, kv.OwesListing}, {"plain", "mirror", false, 0}, {"mirror", "mirror", true, 0}, {"mirror", "plain", true, 0},
		{"", "mirror", true, kv.OwesListing}, {"", "plain", true, 0},
	} {
		s := openStore(t, backends[0], t.TempDir())
		batch := store.Batch{}
		if c.exporter != "" {
			batch.Ops = []store.Op{{Key: store.MetaKey(store.MetaSchema + "item.v1.Item"), Value: []byte(v[c.exporter].table.Record())}}
		}
		at := kv.CursorAt(5)
		at.SeenEvicting = c.evicted
		if err := s.Apply(bounded(t), &batch, at); err != nil {
			t.Fatal(err)
		}
		snap, err := s.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		b := fold.NewBuilder(newLog(), s, fold.Options{})
		if _, err := v[c.node].register(b); err != nil {
			t.Fatal(err)
		}
		if fit, err := b.Fits(snap); err != nil || fit.Refused != nil || fit.Owes != c.owes {
			t.Errorf("%q to %q, evicted %v: %+v, %v", c.exporter, c.node, c.evicted, fit, err)
		}
		if err := errors.Join(snap.Close(), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
