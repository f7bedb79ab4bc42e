package natskv_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/natskv"
)

// viaProxy is the rig's bucket through a proxy, with little patience.
func viaProxy(t *testing.T, r *rig, p *proxy) *natskv.Bucket {
	t.Helper()
	b, err := natskv.Open(bounded(t), p.js, "b", natskv.BucketConfig{Timeout: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBatchWhoseAnswerIsLost(t *testing.T) {
	for _, n := range []int{1, 3} {
		r := newRig(t, natskv.BucketConfig{})
		r.put(t, "a", "1")
		p := newProxy(t, r)
		b := viaProxy(t, r, p)
		batch := puts("mid", "new", "end")
		batch.Ops = batch.Ops[3-n:]

		p.then(answer{subject: "$KV.b.end", forward: true})
		v, err := b.WriteBatch(bounded(t), batch)
		stored(t, r.bucket, v, err, batch)

		// Its first message was overwritten before anybody could look, and then all were.
		p.then(answer{subject: "$KV.b.end", forward: true}, answer{subject: "STREAM.MSG.GET", before: func() { r.put(t, batch.Ops[0].Key, "later") }})
		at := last(t, r.bucket)
		v, err = b.WriteBatch(bounded(t), batch)
		if n > 1 && (err != nil || v.Rank() != at+uint64(n)) {
			t.Errorf("%v, %v; want revision %d", v, err, at+uint64(n))
		}
		if n == 1 { // there is no other
			wantErr(t, err, kv.ErrOutcomeUnknown)
		}
		p.then(answer{subject: "$KV.b.end", forward: true}, answer{subject: "STREAM.MSG.GET", before: func() {
			r.put(t, batch.Ops[0].Key, "later")
			r.put(t, "end", "later")
		}})
		_, err = b.WriteBatch(bounded(t), batch)
		wantErr(t, err, kv.ErrOutcomeUnknown)
		wantErr(t, err, context.DeadlineExceeded)

		// The last message never came there.
		at = last(t, r.bucket)
		p.then(answer{subject: "$KV.b.end"})
		_, err = b.WriteBatch(bounded(t), batch)
		var unknown *natskv.OutcomeUnknownError
		if !errors.As(err, &unknown) || unknown.Key != batch.Ops[0].Key || unknown.Hint() == "" || last(t, r.bucket) != at {
			t.Errorf("%v, and the log went from %d to %d", err, at, last(t, r.bucket))
		}

		// Nor did the first one, after which no other is sent.
		if n == 1 {
			continue
		}
		p.then(answer{subject: "$KV.b.mid"})
		sent := p.count("$KV.b.end")
		_, err = b.WriteBatch(bounded(t), batch)
		wantErr(t, err, context.DeadlineExceeded)
		if errors.Is(err, kv.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "nothing stored") || p.count("$KV.b.end") != sent {
			t.Errorf("%v, and %d of the last message were sent", err, p.count("$KV.b.end")-sent)
		}
	}
}

// What a caller who gives up is told: that nothing was stored until the last message is out, and else that he can't know.
func TestBatchIsGivenUp(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{})
	p := newProxy(t, r)
	b, err := natskv.Open(bounded(t), p.js, "b", natskv.BucketConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for subject, unknown := range map[string]bool{"$KV.b.mid": false, "$KV.b.end": true} {
		ctx, cancel := context.WithCancel(bounded(t))
		p.then(answer{subject: subject, before: cancel})
		_, err := b.WriteBatch(ctx, puts("mid", "end"))
		wantErr(t, err, context.Canceled)
		if errors.Is(err, kv.ErrOutcomeUnknown) != unknown {
			t.Errorf("given up at %s: %v", subject, err)
		}
		if n := last(t, r.bucket); n != 0 {
			t.Errorf("the log is at %d", n)
		}
	}
}

func TestBatchWhoseConnectionBreaks(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{})
	p := newProxy(t, r)
	b, err := natskv.Open(bounded(t), p.js, "b", natskv.BucketConfig{})
	if err != nil {
		t.Fatal(err)
	}
	batch := puts("mid", "end")
	began := time.Now()
	p.then(answer{subject: "$KV.b.mid", before: func() {
		if err := r.DropClients(); err != nil {
			t.Error(err)
		}
	}})
	_, err = b.WriteBatch(bounded(t), batch)
	if err == nil || errors.Is(err, kv.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "nothing stored") {
		t.Errorf("%v", err)
	}
	if took := time.Since(began); took > 10*time.Second { // its timeout is 30 s
		t.Errorf("known after %v", took)
	}
	r.ready(t)
	v, err := r.bucket.WriteBatch(bounded(t), batch)
	stored(t, r.bucket, v, err, batch)
}

// Answers that a server should not give.
func TestBatchAnsweredOddly(t *testing.T) {
	for name, c := range map[string]struct {
		subject, reply string
		match          error
		unknown        bool
	}{
		"a server that knows no batches":      {"$KV.b.mid", `{"stream":"KV_b","seq":7}`, kv.ErrOutcomeUnknown, true},
		"its answer to the last":              {"$KV.b.end", `{"stream":"KV_b","seq":7}`, kv.ErrOutcomeUnknown, true},
		"no JSON":                             {"$KV.b.end", `{`, kv.ErrOutcomeUnknown, true},
		"another batch":                       {"$KV.b.end", `{"stream":"KV_b","seq":7,"batch":"x","count":2}`, kv.ErrOutcomeUnknown, true},
		"a server that fails while it stores": {"$KV.b.end", `{"error":{"code":503,"err_code":10077,"description":"error opening msg block file"}}`, kv.ErrOutcomeUnknown, true},
		"a server whose disk is full":         {"$KV.b.end", `{"error":{"code":503,"err_code":10023,"description":"insufficient resources"}}`, kv.ErrOutcomeUnknown, true},
		"a full bucket":                       {"$KV.b.end", `{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"}}`, nil, false},
		"no resources from the beginning":     {"$KV.b.mid", `{"error":{"code":503,"err_code":10023,"description":"insufficient resources"}}`, nil, false},
		"too large without a number":          {"$KV.b.end", `{"error":{"code":400,"err_code":10199,"description":"too large"}}`, nil, false},
	} {
		r := newRig(t, natskv.BucketConfig{})
		p := newProxy(t, r)
		b := viaProxy(t, r, p)
		p.then(answer{subject: c.subject, reply: c.reply})
		_, err := b.WriteBatch(bounded(t), puts("mid", "end"))
		if err == nil || c.match != nil && !errors.Is(err, c.match) || errors.Is(err, kv.ErrOutcomeUnknown) != c.unknown {
			t.Errorf("%s: %v", name, err)
		}
		if c.subject == "$KV.b.mid" && p.count("$KV.b.end") > 0 {
			t.Errorf("%s: the rest was sent all the same", name)
		}
		var size *kv.BatchSizeError
		if strings.HasPrefix(name, "too large") && (!errors.As(err, &size) || size.Limit != 0 || size.Ops != 2) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A bucket that does not take batches is asked before anything is sent: a server that does not know them would store all.
func TestBatchIsNotSentWhereItIsNotKnown(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{AtomicPublish: natskv.Off})
	p := newProxy(t, r)
	_, err := viaProxy(t, r, p).WriteBatch(bounded(t), puts("mid", "end"))
	wantErr(t, err, kv.ErrUnsupported)
	if n := p.count("$KV.b."); n != 0 {
		t.Errorf("%d messages were sent", n)
	}
}

// A refusal that nothing that can be read explains is tried again, and a while later given back.
func TestBatchRefusalIsNotBelieved(t *testing.T) {
	r := newRig(t, natskv.BucketConfig{})
	at := kv.Revision(r.put(t, "end", "1"))
	p := newProxy(t, r)
	b, err := natskv.Open(bounded(t), p.js, "b", natskv.BucketConfig{})
	if err != nil {
		t.Fatal(err)
	}
	batch := kv.Batch{Ops: []kv.BatchOp{{Kind: kv.BatchPut, Key: "mid"}, {Kind: kv.BatchUpdate, Key: "end", Value: []byte("2"), At: at}}}
	for _, code := range []string{"10071", "10164", "10210"} {
		p.then(answer{subject: "$KV.b.end", reply: `{"error":{"code":400,"err_code":` + code + `,"description":"wrong last sequence: 9"}}`})
	}
	v, err := b.WriteBatch(bounded(t), batch)
	stored(t, r.bucket, v, err, batch)

	for range 10 {
		p.then(answer{subject: "$KV.b.end", reply: `{"error":{"code":400,"err_code":10164,"description":"busy"}}`})
	}
	batch.Ops[1].At = v
	before := p.count("$KV.b.end")
	_, err = b.WriteBatch(bounded(t), batch)
	if err == nil || !strings.Contains(err.Error(), "nothing stored after 10 attempts") || p.count("$KV.b.end") != before+10 {
		t.Errorf("%v after %d attempts", err, p.count("$KV.b.end")-before)
	}
	if errors.Is(err, kv.ErrConflict) {
		t.Errorf("%v is a conflict", err)
	}
}
