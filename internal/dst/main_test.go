package dst

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// TestMain prints what TestSchedules counted; its last line is the sum.
func TestMain(m *testing.M) {
	debug.SetGCPercent(2000) // what lives is small, and what comes and goes is much
	code := m.Run()
	if counted.began {
		counted.print()
	}
	os.Exit(code)
}

func (c *counter) print() {
	for _, st := range stories() {
		n := c.n[st.id()]
		if n == nil {
			continue
		}
		var plans []string
		for plan, times := range n.plans {
			plans = append(plans, fmt.Sprintf("%d %s", times, plan))
		}
		slices.Sort(plans)
		fmt.Printf("%-70s %6d schedules, %6d hit, %7d lives, %6d fail-stops, %6d exports; repairs: %s; lied to: %d owed, %d stopped\n",
			st.name, n.schedules, n.hit, n.lives, n.failStops, n.exports, strings.Join(plans, ", "), n.owed, n.stopped)
	}
	lies := c.lies()
	for _, kind := range slices.Sorted(maps.Keys(lies)) {
		fmt.Printf("lie %-10s %6d schedules, %5d owed, %5d stopped\n", kind, lies[kind].told, lies[kind].owed, lies[kind].stopped)
	}
	schedules, wrong := c.total()
	fmt.Printf("schedules %d wrong %d\n", schedules, wrong)
}

// scratch is a folder for exports, in memory where the machine has a folder for that.
func scratch(t *testing.T) string {
	t.Helper()
	const shared = "/dev/shm"
	if dir, err := os.MkdirTemp(shared, "dst-"); err == nil {
		t.Cleanup(func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		})
		return filepath.Clean(dir)
	}
	return t.TempDir()
}
