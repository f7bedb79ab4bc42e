package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

// pasted is a command that a shell takes as it stands.
var pasted = regexp.MustCompile(`^go run \./internal/crash( [-\w./:=]+)+$`)

// playAgain plays the line of one disk of each kind again: it is that disk's, and no other one's.
func playAgain(t *testing.T, lines map[string]string) {
	cache := pebble.NewCache(cacheBytes)
	defer cache.Unref()
	for _, name := range []string{
		"power/log/none", "fault/log/sync", "fault/pebble/none", "kill/log/none", "damage/log, cut", "damage/log, flip", "damage/log, holes",
		"damage/pebble, MANIFEST, cut", "damage/artifact/log, manifest, flip", "damage/artifact/log, file, cut",
	} {
		line := lines[name]
		c, err := parse(strings.Fields(strings.TrimPrefix(line, "go run ./internal/crash")))
		if err != nil || line == "" || !c.quick {
			t.Errorf("%s: %q: %v", name, line, err)
			continue
		}
		var out strings.Builder
		all, parts := newTally(&out), 0
		var other string
		all.told = func(_, replay string) {
			if replay != line {
				other = replay
			}
		}
		for _, p := range c.parts(all, cache) {
			if strings.HasPrefix(p.name, c.only) {
				parts++
				p.run(t.Context())
			}
		}
		if parts != 1 || all.clones == 0 || all.wrong != 0 || other != "" {
			t.Errorf("%s: %d parts, %d disks, %d wrong, of another line: %q: %s", line, parts, all.clones, all.wrong, other, &out)
		}
		if !strings.HasPrefix(name, "power/") && all.clones != 1 {
			t.Errorf("%s: %d disks", line, all.clones)
		}
	}
}

// TestACaseThatIsNotThereIsAnError, and not one that was looked at.
func TestACaseThatIsNotThereIsAnError(t *testing.T) {
	for line, there := range map[string]bool{"damage/log -place flip:12:4": true, "damage/log -place flip:12:5": false, "fault/log/none -op 9": true, "power/log/none -op 99999": false} {
		var out strings.Builder
		wrong, err := run(t.Context(), strings.Fields("-quick -only "+line), &out)
		if wrong || (err == nil) != there {
			t.Errorf("%s: %v: %s", line, err, &out)
		}
	}
}

// TestWhatIsNoFlagIsRefused, so that half a line does not play something else.
func TestWhatIsNoFlagIsRefused(t *testing.T) {
	for _, args := range []string{"-seed 1 cut 12", "-sticky=perhaps", "-op x"} {
		if _, err := parse(strings.Fields(args)); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
