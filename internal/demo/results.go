package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// results are what a run measured, and what of it held.
type results struct {
	OK      bool    `json:"ok"`
	Checks  []check `json:"checks"`
	Seconds float64 `json:"seconds"`
	// Head is the log's last revision, Messages how many messages the bucket holds, Rows how many routes the writer left.
	Head     uint64      `json:"head"`
	Messages uint64      `json:"messages"`
	Rows     uint64      `json:"rows"`
	Kill     killResult  `json:"kill"`
	Delta    deltaResult `json:"delta"`
	Full     fullResult  `json:"full_replay"`
	// Back counts commits whose cursor was before the one before, in all processes.
	Back uint64     `json:"cursors_back"`
	A    nodeResult `json:"a"`
	B    nodeResult `json:"b"`
	C    nodeResult `json:"c"`
}

// check is one promise.
type check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// killResult is what was known of router b when it was killed, and what it found when it came back.
type killResult struct {
	Killed    bool   `json:"killed"`
	HeldFirst uint64 `json:"held_first"`
	HeldLast  uint64 `json:"held_last"`
	Applied   uint64 `json:"applied"`
	Durable   uint64 `json:"durable"`
	Resumed   uint64 `json:"resumed"`
}

// deltaResult is what router b received to catch up after its restart.
type deltaResult struct {
	Updates uint64 `json:"updates"`
	// Replayed are those of them that its fold had already.
	Replayed uint64 `json:"replayed"`
	// ServingMillis is from the start of the process to its first request, Millis to having caught up.
	ServingMillis int64 `json:"serving_ms"`
	Millis        int64 `json:"ms"`
}

// fullResult is what router c received, which had no fold.
type fullResult struct {
	Updates uint64 `json:"updates"`
	Millis  int64  `json:"ms"`
}

// nodeResult is a router at the end.
type nodeResult struct {
	Cursor uint64 `json:"cursor"`
	Rows   uint64 `json:"rows"`
	Digest string `json:"digest"`
	// Served and Failed count the requests sent to it while it ran.
	Served int64 `json:"served"`
	Failed int64 `json:"failed"`
}

// judge holds the figures against what a fold promises.
func (r *results) judge() {
	k := &r.Kill
	r.Checks = nil
	r.check("killed in mid-batch", k.Killed && k.HeldFirst > k.Applied,
		"SIGKILL between the hooks and the commit of revisions %s to %s", count(k.HeldFirst), count(k.HeldLast))
	r.check("cursor never claims what was not applied", k.Resumed > 0 && k.Resumed <= k.Applied && k.Resumed < k.HeldFirst,
		"resumed at %s; %s was applied, %s was not", count(k.Resumed), count(k.Applied), count(k.HeldFirst))
	r.check("cursor did not go back", k.Resumed >= k.Durable && r.Back == 0,
		"resumed at %s; %s was durable", count(k.Resumed), count(k.Durable))
	r.check("only the delta arrived", r.Delta.Updates > 0 && r.Delta.Updates < r.Full.Updates && r.Delta.Replayed == 0,
		"%s updates; a full replay is %s", count(r.Delta.Updates), count(r.Full.Updates))
	r.check("all at the head", r.A.Cursor == r.Head && r.B.Cursor == r.Head && r.C.Cursor == r.Head,
		"a, b and c at revision %s", count(r.Head))
	r.check("equal digests", r.A.Digest != "" && r.A.Digest == r.B.Digest && r.B.Digest == r.C.Digest,
		"a %.16s, b %.16s, c %.16s", r.A.Digest, r.B.Digest, r.C.Digest)
	r.check("nothing lost, nothing risen", r.A.Rows == r.Rows && r.B.Rows == r.Rows && r.C.Rows == r.Rows,
		"%s routes on each; the writer left %s", count(r.B.Rows), count(r.Rows))
	r.check("every request served", r.A.Failed == 0 && r.B.Failed == 0 && r.A.Served > 0 && r.B.Served > 0,
		"a %s, b %s, failed %d", count(r.A.Served), count(r.B.Served), r.A.Failed+r.B.Failed)
	r.OK = r.err() == nil
}

func (r *results) check(name string, ok bool, format string, args ...any) {
	r.Checks = append(r.Checks, check{Name: name, OK: ok, Detail: fmt.Sprintf(format, args...)})
}

// err names each check that did not hold.
func (r *results) err() error {
	var errs []error
	for _, c := range r.Checks {
		if !c.OK {
			errs = append(errs, fmt.Errorf("%s: does not hold: %s", c.Name, c.Detail))
		}
	}
	return errors.Join(errs...)
}

func (r *results) print(w io.Writer, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	fmt.Fprintf(w, "\nafter the kill %s updates arrived, in place of %s\n\n", count(r.Delta.Updates), count(r.Full.Updates))
	for _, c := range r.Checks {
		mark := "ok"
		if !c.OK {
			mark = "NOT"
		}
		fmt.Fprintf(w, "%-4s%-42s%s\n", mark, c.Name, c.Detail)
	}
	_, err := fmt.Fprintf(w, "\n%.1f s\n", r.Seconds)
	return err
}
