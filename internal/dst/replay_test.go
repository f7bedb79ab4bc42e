package dst

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

var plantName = flag.String("plant", "", "plant this mistake into the schedule of -replay")

// planted is the mistake that -plant names.
func planted(t *testing.T) plant {
	for _, m := range mistakes {
		if m.name == *plantName {
			return m.plant()
		}
	}
	if *plantName != "" {
		t.Fatalf("no mistake %q", *plantName)
	}
	return plant{}
}

// replay plays the one schedule of -replay.
func replay(t *testing.T, dir string) {
	s, err := parseSchedule(*replayLine)
	if err != nil {
		t.Fatal(err)
	}
	w, err := begin(t, dir, s.story).play(t, s, planted(t))
	if err != nil {
		t.Fatalf("%v: %v", s, err)
	}
	t.Logf("%v: right, after %d lives with the repairs %q", s, w.tally.lives, w.plans)
}

// TestScheduleLines: a line is read as what it was written from, for schedules of every story and kind.
func TestScheduleLines(t *testing.T) {
	n := 0
	for _, st := range stories() {
		for _, u := range units(st, false) {
			for _, kind := range logFaultKinds {
				s := u.schedule
				s.faults, s.atLog = []storeFault{{crashTorn, 3}, {stuck, 12}}, &logFault{kind, 7}
				if got, err := parseSchedule(s.String()); err != nil || got.String() != s.String() || got.story != st {
					t.Errorf("%v is read as %v: %v", s, got, err)
				}
				n++
			}
		}
	}
	if n < 1000 || len(logFaultKinds) != len(logKinds) {
		t.Errorf("%d lines; %d of %d kinds", n, len(logFaultKinds), len(logKinds))
	}
	for _, bad := range []string{
		"", "story", "story=none", "story=a-first-start store=logstore face=fold order=burst max=x export=0 fault=none",
		"story=a-first-start store=logstore face=fold order=burst max=1 export=0 fault=torn", "story=a-first-start store=logstore face=fold order=burst max=1 export=0 fault=nothing@1",
	} {
		if s, err := parseSchedule(bad); err == nil {
			t.Errorf("%q is read as %v", bad, s)
		}
	}
}

// TestReplay: the line that a wrong schedule prints plays it again, in a process of its own, to the same end.
func TestReplay(t *testing.T) {
	m := mistakes[0]
	o := begin(t, scratch(t), told(t, m.story))
	var line, wrong string
	for s := range probes(o.w.story, m.export) {
		if _, err := o.play(t, s, m.plant()); err != nil {
			line, wrong = replayHint(s), err.Error()
			break
		}
	}
	if wrong == "" {
		t.Fatal("no schedule is wrong")
	}
	_, quoted, _ := strings.Cut(line, "-replay '")
	schedule := strings.TrimSuffix(quoted, "'")
	if out, err := again(t, "-replay", schedule, "-plant", m.name); err == nil || !strings.Contains(out, schedule) || !strings.Contains(out, wrong) {
		t.Errorf("%s: ended with %v, and without %q:\n%s", line, err, wrong, out)
	}
	if out, err := again(t, "-replay", schedule); err != nil {
		t.Errorf("%s: without the mistake: %v\n%s", line, err, out)
	}
}

// again runs TestSchedules in another process.
func again(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], append([]string{"-test.run", "^TestSchedules$", "-test.timeout", "4m"}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
