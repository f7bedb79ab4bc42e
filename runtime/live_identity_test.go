package fold_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/natskv"
)

// wantChanged checks that a node stops since its log is another one, says what to do, and serves what it had.
func wantChanged(t *testing.T, tb *tables, was fold.Digest, reasons ...error) {
	t.Helper()
	ended(t, tb)
	err := tb.f.Err()
	var changed *fold.LogChangedError
	if !errors.As(err, &changed) || changed.Hint() == "" {
		t.Fatalf("stopped with %v", err)
	}
	matches := false
	for _, reason := range reasons {
		matches = matches || errors.Is(err, reason)
	}
	var refused *fold.RefusedError
	if !matches || !errors.As(err, &refused) || !strings.Contains(refused.Hint(), "AdoptNewLog") {
		t.Errorf("stopped with %v", err)
	}
	if digestOf(t, tb) != was {
		t.Error("the fold was changed")
	}
}

// adopt starts the node with AdoptNewLog, and checks that it ends as the log that is there now, and exports from it.
func (l *live) adopt(t *testing.T, name string) *fold.RepairReport {
	t.Helper()
	o := auditSoon
	o.AdoptNewLog = true
	tb := l.node(t, name, startOptions{fold: fold.Options{Repair: o}})
	tb.hydrated(t)
	l.caughtUp(t, tb)
	l.wantTruth(t, tb)
	st := owes(t, tb, "")
	if st.Repair == nil || st.Repair.Plan != "adopt" {
		t.Fatalf("repair %+v", st.Repair)
	}
	applied(t, tb, fold.Seq(l.put(t, "later", "1")))
	wantRoute(t, tb, "t", "later", "1")
	l.wantExport(t, tb)
	tb.close(t)

	tb = l.node(t, name, startOptions{}) // and it stays there
	tb.hydrated(t)
	if r := tb.f.Status().Repair; r != nil {
		t.Errorf("repaired again: %+v", r)
	}
	l.wantTruth(t, tb)
	tb.close(t)
	return st.Repair
}

// braked reports whether a repair's mass-delete brake asked for a second listing.
func braked(r *fold.RepairReport) bool {
	for _, d := range r.Decisions {
		if d.Kernel == "needs_second_listing" && d.Answer == "true" {
			return true
		}
	}
	return false
}

// fillOld writes keys, has the node fold them, and gives what it holds then.
func (l *live) fillOld(t *testing.T, n int) fold.Digest {
	t.Helper()
	for i := range n {
		l.put(t, fmt.Sprint(i), "old")
	}
	was, cursor := l.visit(t, "node", startOptions{})
	if cursor.Revision() != l.info(t).Last {
		t.Fatalf("cursor %v", cursor)
	}
	return was
}

func TestLiveBucketRecreated(t *testing.T) {
	const old = 30
	for name, n := range map[string]int{"empty": 0, "nearly empty": 1, "fewer messages": old / 2, "as many messages": old, "more messages": 2 * old} {
		t.Run(name, func(t *testing.T) {
			eachBackend(t, func(t *testing.T, b backend) {
				l := newLive(t, b, natskv.BucketConfig{})
				was := l.fillOld(t, old)
				if err := l.js.DeleteKeyValue(bounded(t), "test"); err != nil {
					t.Fatal(err)
				}
				l.bucket = openBucket(t, l.js, l.cfg)
				for i := range n {
					l.put(t, fmt.Sprint(i), "new")
				}
				tb := l.node(t, "node", startOptions{})
				wantChanged(t, tb, was, fold.ErrLogReplaced)
				wantRoute(t, tb, "t", "29", "old")
				tb.close(t)
				r := l.adopt(t, "node")
				if gone := old - min(n, old); r.Deleted != uint64(gone) || braked(r) != (gone > 10) {
					t.Errorf("%d keys were deleted, and a second listing was asked for: %v", r.Deleted, braked(r))
				}
			})
		})
	}
}

// TestLiveBucketRecreatedUnderALiveNode: the node finds out as soon as its watch ends.
func TestLiveBucketRecreatedUnderALiveNode(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		l := newLive(t, b, natskv.BucketConfig{})
		l.put(t, "a", "old")
		l.put(t, "b", "old")
		tb := l.node(t, "node", startOptions{})
		tb.hydrated(t)
		was := digestOf(t, tb)
		if err := l.js.DeleteKeyValue(bounded(t), "test"); err != nil {
			t.Fatal(err)
		}
		l.bucket = openBucket(t, l.js, l.cfg)
		for range 3 {
			l.put(t, "a", "new")
		}
		wantChanged(t, tb, was, fold.ErrLogReplaced)
		tb.close(t)
		l.adopt(t, "node")
	})
}

// TestLiveStreamRestoredFromASnapshot: the server's own backup of the stream, from before the node's cursor, is restored.
func TestLiveStreamRestoredFromASnapshot(t *testing.T) {
	for name, more := range map[string]int{"fewer messages": 1, "more messages": 20} {
		t.Run(name, func(t *testing.T) {
			eachBackend(t, func(t *testing.T, b backend) {
				l := newLive(t, b, natskv.BucketConfig{})
				for i := range 5 {
					l.put(t, fmt.Sprint(i), "old")
				}
				saved := l.backup(t)
				was := l.fillOld(t, 12)
				if err := l.js.DeleteKeyValue(bounded(t), "test"); err != nil {
					t.Fatal(err)
				}
				saved.restore(t, l.js.Conn())
				l.reconnect(t)
				if info := l.info(t); info.Last != 5 {
					t.Fatalf("log %+v", info)
				}
				for i := range more {
					l.put(t, fmt.Sprint("new", i), "new")
				}
				tb := l.node(t, "node", startOptions{})
				wantChanged(t, tb, was, fold.ErrLogReplaced, fold.ErrLogRewound)
				tb.close(t)
				l.adopt(t, "node")
			})
		})
	}
}

// streamBackup is a stream as the server saved it.
type streamBackup struct {
	Config json.RawMessage `json:"config"`
	State  json.RawMessage `json:"state"`
	data   bytes.Buffer
}

type apiAnswer struct {
	Error   *struct{ Description string } `json:"error"`
	Deliver string                        `json:"deliver_subject"`
}

func (a *apiAnswer) ok(t *testing.T, data []byte) {
	t.Helper()
	if err := json.Unmarshal(data, a); err != nil || a.Error != nil {
		t.Fatalf("%s: %v", data, err)
	}
}

func (l *live) backup(t *testing.T) *streamBackup {
	t.Helper()
	ctx, nc := bounded(t), l.js.Conn()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	answer, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.SNAPSHOT.KV_test", fmt.Appendf(nil, `{"deliver_subject":%q,"no_consumers":true}`, inbox))
	if err != nil {
		t.Fatal(err)
	}
	new(apiAnswer).ok(t, answer.Data)
	b := &streamBackup{}
	if err := json.Unmarshal(answer.Data, b); err != nil {
		t.Fatal(err)
	}
	for {
		msg, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(msg.Data) == 0 {
			return b
		}
		b.data.Write(msg.Data)
		if msg.Reply != "" {
			if err := msg.Respond(nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (b *streamBackup) restore(t *testing.T, nc *nats.Conn) {
	t.Helper()
	ctx := bounded(t)
	request := func(subject string, data []byte) []byte {
		t.Helper()
		msg, err := nc.RequestWithContext(ctx, subject, data)
		if err != nil {
			t.Fatal(err)
		}
		return msg.Data
	}
	head, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	var begun apiAnswer
	begun.ok(t, request("$JS.API.STREAM.RESTORE.KV_test", head))
	for b.data.Len() > 0 {
		request(begun.Deliver, b.data.Next(64<<10))
	}
	new(apiAnswer).ok(t, request(begun.Deliver, nil))
}

// lose has the server forget all that was written since its files were copied, as a machine does that lost its power
// before they were synced.
func (l *live) lose(t *testing.T, saved string) {
	t.Helper()
	created, last := l.info(t).Created, l.info(t).Last
	l.srv.Stop()
	if err := errors.Join(os.RemoveAll(l.files), os.CopyFS(l.files, os.DirFS(saved)), l.srv.Restart()); err != nil {
		t.Fatal(err)
	}
	l.reconnect(t)
	if info := l.info(t); !info.Created.Equal(created) || info.Last >= last {
		t.Fatalf("log %+v, was created at %v and ended at %d", info, created, last)
	}
}

// save copies the server's files.
func (l *live) save(t *testing.T) string {
	t.Helper()
	saved := filepath.Join(t.TempDir(), "saved")
	l.srv.Stop()
	if err := errors.Join(os.CopyFS(saved, os.DirFS(l.files)), l.srv.Restart()); err != nil {
		t.Fatal(err)
	}
	l.reconnect(t)
	return saved
}

// TestLiveAcknowledgedTailLost: the log lost its end and was written on. The message that the node applied last is not where
// it was.
func TestLiveAcknowledgedTailLost(t *testing.T) {
	const lost = 6
	for name, n := range map[string]int{"fewer": 2, "as many": lost, "more": 2 * lost} {
		t.Run(name, func(t *testing.T) {
			eachBackend(t, func(t *testing.T, b backend) {
				l := newLive(t, b, natskv.BucketConfig{})
				for i := range 5 {
					l.put(t, fmt.Sprint(i), "old")
				}
				saved := l.save(t)
				for i := range lost {
					l.put(t, fmt.Sprint("lost", i), "lost")
				}
				was, _ := l.visit(t, "node", startOptions{})
				l.lose(t, saved)
				for i := range n {
					l.put(t, fmt.Sprint("new", i), "new")
				}
				tb := l.node(t, "node", startOptions{})
				wantChanged(t, tb, was, fold.ErrLogRewound)
				tb.close(t)
				l.adopt(t, "node")
			})
		})
	}
}

// TestLiveLostTailThatLeftNoTrace: each message that the node could look up was superseded, so nothing tells the log from the
// one before. The node resumes, owes an audit, and that one finds a value that the log had and lost.
func TestLiveLostTailThatLeftNoTrace(t *testing.T) {
	for name, n := range map[string]int{"as many": 4, "more": 9} {
		t.Run(name, func(t *testing.T) {
			eachBackend(t, func(t *testing.T, b backend) {
				l := newLive(t, b, natskv.BucketConfig{})
				l.put(t, "long-lived", "1")
				l.put(t, "lost", "1")
				l.put(t, "hot", "1")
				saved := l.save(t)
				l.put(t, "lost", "2")
				l.put(t, "hot", "2")
				l.put(t, "hot", "3")
				_, cursor := l.visit(t, "node", startOptions{})
				l.lose(t, saved)
				for i := range n {
					l.put(t, "hot", fmt.Sprint("new", i))
				}
				if info := l.info(t); info.Last <= cursor.Revision() || info.First != 1 {
					t.Fatalf("cursor %v, log %+v", cursor, info)
				}
				tb := l.node(t, "node", startOptions{fold: fold.Options{Repair: auditNever}})
				tb.hydrated(t)
				l.caughtUp(t, tb)
				if st := tb.f.Status(); !strings.HasPrefix(st.Owed, "identity") {
					t.Fatalf("status %+v", st)
				}
				was := digestOf(t, tb)
				tb.close(t)

				tb = l.node(t, "node", startOptions{fold: fold.Options{Repair: auditSoon}})
				wantChanged(t, tb, was, fold.ErrLogRewound)
				wantRoute(t, tb, "t", "lost", "2")
				tb.close(t)
				adopt := auditSoon
				adopt.AdoptNewLog = true
				tb = l.node(t, "node", startOptions{fold: fold.Options{Repair: adopt}})
				tb.hydrated(t)
				repaired(t, tb, "adopt")
				applied(t, tb, fold.Seq(l.put(t, "later", "1"))) // with all that was listed before it
				wantRoute(t, tb, "t", "lost", "1")
				l.wantTruth(t, tb)
				owes(t, tb, "")
				l.wantExport(t, tb)
			})
		})
	}
}

// repaired waits until the node has done such a repair.
func repaired(t *testing.T, tb *tables, plan string) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	ctx := bounded(t)
	for {
		if r := tb.f.Status().Repair; r != nil && r.Plan == plan {
			return
		}
		select {
		case <-tick.C:
		case <-tb.f.Done():
			t.Fatalf("stopped with %v", tb.f.Err())
		case <-ctx.Done():
			t.Fatalf("status %+v", tb.f.Status())
		}
	}
}
