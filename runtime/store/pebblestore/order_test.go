package pebblestore

import (
	"path"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/typedfold/fold/runtime/store/storetest"
)

// TestManifestIsDurableBeforeItsMarker: whatever order a file system keeps names in, a marker never names a manifest that
// a loss of power took. It holds for a new store, for one that is opened again, and for an export.
func TestManifestIsDurableBeforeItsMarker(t *testing.T) {
	d := &memDisk{MemFS: vfs.NewCrashableMem()}
	const prefix = markerPrefix + "manifest."
	markers := map[string]int{}
	fs := errorfs.Wrap(d, errorfs.InjectorFunc(func(op errorfs.Op) error {
		name, ok := strings.CutPrefix(path.Base(op.Path), prefix)
		if op.Kind != errorfs.OpCreate || !ok {
			return nil
		}
		dir := path.Dir(op.Path)
		markers[dir]++
		_, manifest, _ := strings.Cut(name, ".")
		if _, err := d.CrashClone(vfs.CrashCloneCfg{}).Stat(path.Join(dir, manifest)); err != nil {
			t.Errorf("%s is about to name %s: %v", op.Path, manifest, err)
		}
		return nil
	}))
	script := storetest.Script{Seed: 9}
	for n := uint64(1); n <= 2; n++ {
		s := mustOpen(t, "stores/one", crashOptions(storetest.ModeSync, fs))
		mustApply(t, s, script, n)
		if n == 2 {
			if err := s.Export(t.Context(), "copies/one"); err != nil {
				t.Fatal(err)
			}
		}
		mustClose(t, s)
	}
	if markers["stores/one"] < 2 || markers["copies/one"] != 1 {
		t.Errorf("markers were made: %v", markers)
	}
}
