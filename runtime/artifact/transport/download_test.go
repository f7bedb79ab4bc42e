package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/protocol"
	"github.com/typedfold/fold/runtime/repair"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
)

// TestDoctoredPayloads: what is stored under an artifact's name is taken only if it is that artifact, to the byte.
func TestDoctoredPayloads(t *testing.T) {
	e, other := export(t, spec{log: logA, rev: 5}), export(t, spec{log: logA, rev: 5, created: time.Unix(1_700_000_001, 0)})
	var good, another bytes.Buffer
	must(t, artifact.Pack(bounded(t), e.dir, e.m, &good))
	must(t, artifact.Pack(bounded(t), other.dir, other.m, &another))
	if good.Len() != another.Len() {
		t.Fatal("the two differ in more than their time")
	}
	flipped := bytes.Clone(good.Bytes())
	flipped[len(flipped)/2] ^= 1
	for what, payload := range map[string][]byte{
		"another artifact": another.Bytes(), "flipped": flipped, "truncated": good.Bytes()[:good.Len()-1],
		"longer": append(bytes.Clone(good.Bytes()), 0), "empty": {},
	} {
		t.Run(what, func(t *testing.T) {
			s := memory(t)
			tr := transportOn(t, s)
			wantPublished(t, tr, e, liveAt(logA, 1, 5))
			must(t, s.Put(bounded(t), tr.payloadKey(Name(e.m)), bytes.NewReader(payload)))
			if err := download(t, tr, e.m); !errors.Is(err, artifact.ErrInvalid) || errors.Is(err, ErrGone) {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

// TestBrokenStreamIsNoVerdict: a store that breaks off says nothing of the artifact, so it may be had at the next try.
func TestBrokenStreamIsNoVerdict(t *testing.T) {
	h := &hooked{Store: memory(t)}
	tr := transportOn(t, h)
	e := export(t, spec{log: logA, rev: 5, fill: 2 << 20})
	wantPublished(t, tr, e, liveAt(logA, 1, 5))
	errCut := errors.Join(objects.ErrUnavailable, io.ErrUnexpectedEOF)
	for left := 0; left < int(e.m.PackedSize()); left += 500_000 {
		h.call = func(op, _ string) fate {
			if op != "get" {
				return fate{}
			}
			return fate{body: func(body io.ReadCloser) io.ReadCloser {
				return &dying{ReadCloser: body, left: left, die: func() error { return errCut }}
			}}
		}
		err := download(t, tr, e.m)
		if !errors.Is(err, objects.ErrUnavailable) || errors.Is(err, artifact.ErrInvalid) || errors.Is(err, ErrGone) {
			t.Errorf("cut after %d bytes: %v", left, err)
		}
	}
	h.call = nil
	must(t, download(t, tr, e.m))
}

func TestDownloadIsCancelled(t *testing.T) {
	s := memory(t)
	e := export(t, spec{log: logA, rev: 5, fill: 3 << 20})
	wantPublished(t, transportOn(t, s), e, liveAt(logA, 1, 5))
	ctx, cancel := context.WithCancelCause(bounded(t))
	errStop := errors.New("shut down")
	var last Progress
	tr, err := New(Options{Store: s, Prefix: "fleet", Key: "routes", Progress: func(p Progress) {
		if last = p; p.Done > 1<<20 {
			cancel(errStop)
		}
	}})
	must(t, err)
	dir := t.TempDir()
	err = tr.Download(ctx, e.m, filepath.Join(dir, "a"), taken)
	if !errors.Is(err, errStop) && !errors.Is(err, context.Canceled) || errors.Is(err, artifact.ErrInvalid) {
		t.Errorf("ended with %v", err)
	}
	if last.Upload || last.Total != e.m.PackedSize() || last.Done == last.Total || last.Name != Name(e.m) {
		t.Errorf("progress %+v", last)
	}
	wantEmpty(t, dir)
}

func TestManifestsTellWhatIsCorrupt(t *testing.T) {
	s := memory(t)
	tr := transportOn(t, s)
	all := line(t, tr, 1, 2)
	put := func(name, text string) { must(t, s.Put(bounded(t), tr.manifestKey(name), strings.NewReader(text))) }
	torn, wrong := "00000000000000ff-00000000000000aa", "00000000000000ff-00000000000000bb"
	put(torn, "{")
	put(wrong, string(all[0].m.Bytes()))
	put("notes", "somebody's")
	put("00000000000000FF-00000000000000aa", "{") // not how a name is written
	got, err := tr.Manifests(bounded(t), protocol.Position{Log: logA, Revision: 2})
	must(t, err)
	if len(got) != 4 {
		t.Fatalf("got %q", names(got))
	}
	wantNames(t, names(got[:2]), all[1], all[0])
	if !got[0].Current || got[1].Current || got[0].Stored.IsZero() || got[1].Stored.IsZero() {
		t.Errorf("got %+v", got[:2])
	}
	for i, name := range []string{wrong, torn} {
		if g := got[2+i]; g.Name != name || !errors.Is(g.Err, artifact.ErrInvalid) {
			t.Errorf("%s is %q, %v", name, g.Name, g.Err)
		}
	}
	list, err := (&Source{Transport: tr}).Candidates(bounded(t))
	must(t, err)
	if len(list) != 4 || list[0].ID != Name(all[1].m) || list[0].Cursor != all[1].m.Cursor || list[3].Err == nil || !list[0].HasScope ||
		list[0].Log.CreatedUnixNano != logA || !list[0].Created.Equal(all[1].m.Created) {
		t.Errorf("the candidates are %+v", list)
	}
}

// TestManifestIsPrunedWhileListed: what goes between the listing and its reading was never there.
func TestManifestIsPrunedWhileListed(t *testing.T) {
	h := &hooked{Store: memory(t)}
	tr := transportOn(t, h)
	all := line(t, tr, 1, 2)
	h.call = func(op, key string) fate {
		if op == "get" {
			h.call = nil
			must(t, h.Store.Delete(bounded(t), key))
		}
		return fate{}
	}
	got, err := tr.Manifests(bounded(t), protocol.Position{})
	must(t, err)
	wantNames(t, names(got), all[1])
	errList := errors.New("listing failed")
	h.call = func(op, _ string) fate {
		if op == "list" {
			return fate{err: errList}
		}
		return fate{}
	}
	if _, err := tr.Manifests(bounded(t), protocol.Position{}); !errors.Is(err, errList) {
		t.Errorf("a listing that fails: %v", err)
	}
}

// TestForeignPointerOnly: a fleet that keeps no manifests beside has its newest artifact by the pointer alone.
func TestForeignPointerOnly(t *testing.T) {
	s := memory(t)
	tr := transportOn(t, s)
	e := line(t, tr, 7)[0]
	must(t, s.Delete(bounded(t), tr.manifestKey(Name(e.m))))
	all, err := tr.Manifests(bounded(t), protocol.Position{})
	must(t, err)
	wantNames(t, names(all), e)
	a, err := source(t, tr).Fetch(bounded(t), repair.Manifest{ID: Name(e.m)})
	must(t, err)
	must(t, a.Close())
	done, err := tr.Prune(bounded(t), pruneOf(liveAt(logA, 1, 7)))
	if err != nil || len(done.Names) > 0 {
		t.Errorf("pruned %+v, %v", done, err)
	}
}

func source(t *testing.T, tr *Transport) *Source {
	t.Helper()
	return &Source{Transport: tr, Artifact: taken, Scratch: t.TempDir()}
}

func TestSourceFetch(t *testing.T) {
	for _, pebble := range []bool{false, true} {
		eachStore(t, func(t *testing.T, s objects.Store) {
			tr := transportOn(t, s)
			e := export(t, spec{log: logA, rev: 5, pebble: pebble})
			wantPublished(t, tr, e, liveAt(logA, 1, 5))
			src := source(t, tr)
			list, err := src.Candidates(bounded(t))
			if err != nil || len(list) != 1 {
				t.Fatal(list, err)
			}
			a, err := src.Fetch(bounded(t), list[0])
			must(t, err)
			snap, err := a.Snapshot()
			must(t, err)
			var v store.Value
			if ok, err := snap.Get(store.AppendKey(nil, store.SpaceData, "n.a"), &v); err != nil || !ok || snap.Cursor().Revision() != 5 {
				t.Errorf("the artifact has no n.a at 5: %v, %v", ok, err)
			}
			v.Release()
			if got := a.Manifest(); got.ID != list[0].ID || got.Cursor != list[0].Cursor {
				t.Errorf("it says %+v", got)
			}
			if err := a.Close(); !errors.Is(err, store.ErrBusy) {
				t.Errorf("closed in use: %v", err)
			}
			must(t, snap.Close())
			must(t, a.Close())
			wantEmpty(t, src.Scratch)
		})
	}
}

func TestSourceFetchFails(t *testing.T) {
	s := memory(t)
	tr := transportOn(t, s)
	all := line(t, tr, 1, 2, 3)
	src := source(t, tr)
	fetch := func(id string) error {
		_, err := src.Fetch(bounded(t), repair.Manifest{ID: id})
		wantEmpty(t, src.Scratch)
		return err
	}
	for _, id := range []string{"", "../x", "0000000000000001-"} {
		if err := fetch(id); !errors.Is(err, repair.ErrArtifactInvalid) {
			t.Errorf("%q: %v", id, err)
		}
	}
	must(t, s.Delete(bounded(t), tr.payloadKey(Name(all[1].m))))
	if err := fetch(Name(all[1].m)); !errors.Is(err, repair.ErrArtifactInvalid) {
		t.Errorf("announced, and without a payload: %v", err)
	}
	if _, err := tr.Prune(bounded(t), pruneOf(liveAt(logA, 1, 3))); err != nil {
		t.Fatal(err)
	}
	if err := fetch(Name(all[0].m)); !errors.Is(err, ErrGone) || errors.Is(err, repair.ErrArtifactInvalid) {
		t.Errorf("pruned: %v", err)
	}
	src.Artifact.Kinds = []store.Kind{{Backend: "another"}}
	if err := fetch(Name(all[2].m)); !errors.Is(err, repair.ErrArtifactInvalid) || !errors.Is(err, store.ErrFormat) {
		t.Errorf("another kind of store: %v", err)
	}
	src.Artifact = taken
	must(t, fetchOnce(t, src, Name(all[2].m)))
}

// fetchOnce fetches an artifact and closes it.
func fetchOnce(t *testing.T, src *Source, id string) error {
	t.Helper()
	a, err := src.Fetch(bounded(t), repair.Manifest{ID: id})
	if err != nil {
		return err
	}
	return a.Close()
}

// TestScratchOfTheDeadIsRemoved: what a killed process fetched goes with the next fetch.
func TestScratchOfTheDeadIsRemoved(t *testing.T) {
	tr := transportOn(t, memory(t))
	e := line(t, tr, 1)[0]
	src := source(t, tr)
	dead := filepath.Join(src.Scratch, ".fold-artifact-123", "store")
	must(t, os.MkdirAll(dead, 0o700))
	a, err := src.Fetch(bounded(t), repair.Manifest{ID: Name(e.m)})
	must(t, err)
	must(t, fetchOnce(t, src, Name(e.m))) // beside a living one, which stays
	snap, err := a.Snapshot()
	must(t, err)
	must(t, snap.Close())
	must(t, a.Close())
	wantEmpty(t, src.Scratch)
}

func TestBootstrap(t *testing.T) {
	tr := transportOn(t, memory(t))
	line(t, tr, 3, 5, 9)
	dir := t.TempDir()
	dest := filepath.Join(dir, "fold")
	m, err := tr.Bootstrap(bounded(t), dest, liveAt(logA, 4, 20), taken)
	must(t, err)
	if m.Rank() != 9 {
		t.Errorf("took %d", m.Rank())
	}
	s, err := logstore.Open(dest, logstore.Options{})
	must(t, err)
	if s.Cursor() != kv.CursorAt(9) {
		t.Errorf("opened at %v", s.Cursor())
	}
	must(t, s.Close())
}

// TestBootstrapTakesAnOlderOne: the newest ones are past the log's end, damaged, and of a kind that is not taken.
func TestBootstrapTakesAnOlderOne(t *testing.T) {
	s := memory(t)
	tr := transportOn(t, s)
	all := line(t, tr, 5, 9)
	wantPublished(t, tr, export(t, spec{log: logA, rev: 10, pebble: true}), liveAt(logA, 1, 10))
	line(t, tr, 30)
	must(t, s.Delete(bounded(t), tr.payloadKey(Name(all[1].m))))
	o := taken
	o.Kinds = []store.Kind{logstore.Kind()}
	dir := t.TempDir()
	m, err := tr.Bootstrap(bounded(t), filepath.Join(dir, "fold"), liveAt(logA, 6, 20), o)
	if err != nil || m.Rank() != 5 {
		t.Errorf("took %d: %v", m.Rank(), err)
	}
	// And none, once the log has moved on.
	_, err = tr.Bootstrap(bounded(t), filepath.Join(dir, "next"), liveAt(logA, 7, 20), o)
	var none *UnusableError
	if !errors.As(err, &none) || !errors.Is(err, ErrNoneUsable) || len(none.Refused) != 4 || none.Hint() == "" {
		t.Fatalf("ended with %v", err)
	}
	for i, why := range []string{"outside the log's window, which begins at revision 7", "payload is not there", "is not taken here", "beyond the log's end at revision 20"} {
		if got := none.Refused[len(none.Refused)-1-i].String(); !strings.Contains(got, why) && !strings.Contains(err.Error(), why) {
			t.Errorf("%q does not say %q", got, why)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "next")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something is there: %v", err)
	}
	_, err = tr.Bootstrap(bounded(t), filepath.Join(dir, "next"), liveAt(logB, 1, 40), o)
	if !errors.Is(err, ErrNoneUsable) || !strings.Contains(err.Error(), "another log") {
		t.Errorf("another log's artifact: %v", err)
	}
}

// TestBootstrapIsOvertaken: the log moves past the artifact while it is downloaded, and a newer one is published; or the
// one that was chosen is pruned.
func TestBootstrapIsOvertaken(t *testing.T) {
	for _, pruned := range []bool{false, true} {
		h := &hooked{Store: memory(t)}
		tr, plain := transportOn(t, h), transportOn(t, h.Store)
		old := line(t, plain, 5)[0]
		first := uint64(1)
		live := func(ctx context.Context) (kv.LogInfo, error) { return liveAt(logA, first, 50)(ctx) }
		h.call = func(op, key string) fate {
			if op == "get" && key == tr.payloadKey(Name(old.m)) {
				h.call = nil
				line(t, plain, 40)
				if pruned {
					_, err := plain.Prune(bounded(t), pruneOf(live))
					must(t, err)
				} else {
					first = 30
				}
			}
			return fate{}
		}
		m, err := tr.Bootstrap(bounded(t), filepath.Join(t.TempDir(), "fold"), live, taken)
		if err != nil || m.Rank() != 40 {
			t.Errorf("pruned %v: took %d: %v", pruned, m.Rank(), err)
		}
	}
	// It gives up when that goes on and on.
	tr := transportOn(t, memory(t))
	line(t, tr, 5)
	reads := 0
	live := func(ctx context.Context) (kv.LogInfo, error) {
		if reads++; reads%2 == 1 {
			return liveAt(logA, 1, 50)(ctx)
		}
		return liveAt(logA, 20, 50)(ctx)
	}
	dir := t.TempDir()
	_, err := tr.Bootstrap(bounded(t), filepath.Join(dir, "fold"), live, taken)
	if !errors.Is(err, errOvertaken) || reads != 2*bootstrapTries {
		t.Errorf("after %d reads: %v", reads, err)
	}
	wantEmpty(t, dir)
}

func TestBootstrapNeedsTheLogAndAnEmptyFolder(t *testing.T) {
	tr := transportOn(t, memory(t))
	dir := t.TempDir()
	if _, err := tr.Bootstrap(bounded(t), filepath.Join(dir, "a"), unreadable, taken); !errors.Is(err, errLog) {
		t.Errorf("without the log: %v", err)
	}
	if _, err := tr.Bootstrap(bounded(t), filepath.Join(dir, "a"), liveAt(logA, 1, 5), taken); !errors.Is(err, ErrNoneUsable) {
		t.Errorf("without artifacts: %v", err)
	}
	line(t, tr, 5)
	must(t, os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600))
	if _, err := tr.Bootstrap(bounded(t), dir, liveAt(logA, 1, 5), taken); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("over somebody's files: %v", err)
	}
}
