package rounds_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	ft "github.com/typedfold/fold/internal/foldtest/gen/foldtest/v1/foldtestv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/artifact"
	"github.com/typedfold/fold/runtime/artifact/objects"
	"github.com/typedfold/fold/runtime/artifact/objects/dir"
	"github.com/typedfold/fold/runtime/artifact/objects/s3"
	"github.com/typedfold/fold/runtime/artifact/rounds"
	"github.com/typedfold/fold/runtime/artifact/transport"
	"github.com/typedfold/fold/runtime/kv"
	"github.com/typedfold/fold/runtime/lease"
	"github.com/typedfold/fold/runtime/natskv"
	"github.com/typedfold/fold/runtime/repair"
	"github.com/typedfold/fold/runtime/store"
	"github.com/typedfold/fold/runtime/store/logstore"
	"github.com/typedfold/fold/runtime/store/pebblestore"
)

// nodeTask, as JSON in the environment variable nodeEnv, has a re-executed test binary be a node until it is killed.
type nodeTask struct {
	Server, Objects, Backend string
	// Home has the node's store and its scratch folder.
	Home string
	// Clock is the leases' time in Unix seconds, later than any that was used before.
	Clock int64
	// Empty: a missing store begins empty, and the fold restores it, in place of an import.
	Empty bool
}

const (
	nodeEnv   = "ROUNDS_TEST_NODE"
	nodeLimit = 10 * time.Minute // of one life

	storeFolder, scratchFolder = "store", "scratch"
	roundTTL                   = time.Minute
)

// Steps of a node, as it tells them. It begins with stepStart.
const (
	stepStart   = "start"
	stepImport  = "import"
	stepOpen    = "open"
	stepRestore = "restore"
	stepIdle    = "idle" // caught up, waits for a command
	stepLease   = "lease"
	stepExport  = "export"
	stepUpload  = "upload"
	stepPrune   = "prune"
)

// Commands to a node. The end of its stdin asks it to close its fold and to end.
const (
	commandRound = "round"
	commandCheck = "check" // and a revision
)

// nodeState is what a node holds at a revision, as it answers a check.
type nodeState struct {
	Revision uint64
	Digest   string
	Rows     uint64
}

const (
	sawStep  = "step "
	sawState = "state "
)

var nodeStores = map[string]func(dir string) (store.Store, error){
	"logstore": func(dir string) (store.Store, error) { return logstore.Open(dir, logstore.Options{}) },
	"pebble":   func(dir string) (store.Store, error) { return pebblestore.Open(dir, pebblestore.Options{}) },
}

func openObjects(ctx context.Context, url string) (objects.Store, error) {
	return objects.Openers{"file": dir.OpenURL, "s3": s3.OpenURL}.Open(ctx, url, objects.Options{})
}

// beNode is the node's whole life, when this process is one; else it does nothing.
func beNode() {
	env := os.Getenv(nodeEnv)
	if env == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), nodeLimit)
	defer cancel()
	n := &killedNode{}
	err := json.Unmarshal([]byte(env), &n.task)
	if err == nil {
		err = n.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

type killedNode struct {
	task      nodeTask
	clock     int64
	bucket    *natskv.Bucket
	transport *transport.Transport
	fold      *fold.Fold
	routes    ft.RouteTable
	round     *rounds.Round
}

func (n *killedNode) path(name string) string { return filepath.Join(n.task.Home, name) }

// at tells the parent, before the step begins, in one write.
func (n *killedNode) at(step string) { fmt.Println(sawStep + step) }

func (n *killedNode) run(ctx context.Context) error {
	for _, folder := range []string{n.task.Home, n.path(scratchFolder)} {
		if err := artifact.CleanStages(folder); err != nil {
			return err
		}
	}
	if err := n.connect(ctx); err != nil {
		return err
	}
	if err := n.importMissing(ctx); err != nil {
		return err
	}
	n.at(stepOpen)
	if err := n.start(ctx); err != nil {
		return err
	}
	if err := n.fold.WaitHydrated(ctx); err != nil {
		return err
	}
	n.at(stepIdle)
	return n.obey(ctx)
}

func (n *killedNode) connect(ctx context.Context) error {
	nc, err := nats.Connect(n.task.Server)
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	// The dead nodes' consumers are not to burden the server for long.
	cfg := natskv.BucketConfig{Watch: natskv.WatchConfig{InactiveThreshold: 2 * time.Second}}
	if n.bucket, err = natskv.Bind(ctx, js, "test", cfg); err != nil {
		return err
	}
	leases, err := natskv.Bind(ctx, js, "leases", natskv.BucketConfig{})
	if err != nil {
		return err
	}
	s, err := openObjects(ctx, n.task.Objects)
	if err != nil {
		return err
	}
	if n.transport, err = transport.New(transport.Options{Store: s, Prefix: "folds", Key: "routes"}); err != nil {
		return err
	}
	n.clock = n.task.Clock
	l, err := lease.New(lease.Options{
		Bucket: toldLeases{leases, n.at}, Key: "export.routes", Holder: "node", Now: func() time.Time { return time.Unix(n.clock, 0) },
	})
	n.round = &rounds.Round{Lease: l, TTL: roundTTL, Export: n.export, Transport: n.transport, Scratch: n.path(scratchFolder), Live: n.bucket.Info}
	return err
}

func (n *killedNode) importMissing(ctx context.Context) error {
	_, err := os.Lstat(n.path(storeFolder))
	switch missing := errors.Is(err, fs.ErrNotExist); {
	case missing && n.task.Empty:
		return nil
	case !missing:
		return err
	}
	n.at(stepImport)
	_, err = n.transport.Bootstrap(ctx, n.path(storeFolder), n.bucket.Info, taken)
	return err
}

func (n *killedNode) start(ctx context.Context) error {
	s, err := nodeStores[n.task.Backend](n.path(storeFolder))
	if err != nil {
		return err
	}
	source := &transport.Source{Transport: n.transport, Artifact: taken, Scratch: n.path(scratchFolder)}
	b := fold.NewBuilder(n.bucket, s, fold.Options{
		Repair: fold.RepairOptions{Source: toldSource{source, n.at}, Scratch: n.path(scratchFolder), Chunk: 32},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if n.routes, err = ft.RegisterRoute(b); err != nil {
		return err
	}
	n.fold, err = b.Start(ctx)
	return err
}

// export is the fold's, with a word before and after it.
func (n *killedNode) export(ctx context.Context, dir string) (artifact.Manifest, error) {
	n.at(stepExport)
	m, err := n.fold.Export(ctx, dir)
	n.at(stepUpload)
	return m, err
}

// obey carries out the parent's commands until it closes stdin, or is gone.
func (n *killedNode) obey(ctx context.Context) error {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var rev uint64
		err := errors.New("an unknown command")
		switch _, no := fmt.Sscanf(in.Text(), commandCheck+" %d", &rev); {
		case no == nil:
			err = n.check(ctx, rev)
		case in.Text() == commandRound:
			err = n.publish(ctx)
			n.at(stepIdle)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", in.Text(), err)
		}
	}
	return n.fold.Close()
}

// publish runs a round, and prunes without the grace that other publishers need: there are none meanwhile.
func (n *killedNode) publish(ctx context.Context) error {
	res, err := n.round.Run(ctx)
	n.clock += int64(2 * roundTTL / time.Second) // what was acquired expires
	if err != nil {
		return err
	}
	if newest := res.Ending == rounds.Superseded && res.By.Revision >= res.Manifest.Rank(); res.Ending != rounds.Published && !newest {
		return fmt.Errorf("the round ended %v", res.Ending)
	}
	n.at(stepPrune)
	_, err = n.transport.Prune(ctx, transport.PruneOptions{Live: n.bucket.Info})
	return errors.Join(err, res.Problems(), res.Unread)
}

// check answers with what the fold holds at the revision, which is the log's last one.
func (n *killedNode) check(ctx context.Context, rev uint64) error {
	if err := n.fold.WaitApplied(ctx, fold.Seq(rev)); err != nil {
		return err
	}
	snap, err := n.fold.Snapshot()
	if err != nil {
		return err
	}
	d, err := snap.Digest(ctx)
	if err != nil {
		return err
	}
	rows, err := n.routes.Count(ctx, ft.RouteAll())
	if err != nil {
		return err
	}
	line, err := json.Marshal(nodeState{Revision: snap.Cursor().Revision(), Digest: d.String(), Rows: rows})
	fmt.Println(sawState + string(line))
	return errors.Join(err, snap.Close())
}

// toldSource tells that a repair asks for artifacts.
type toldSource struct {
	*transport.Source
	at func(step string)
}

func (s toldSource) Candidates(ctx context.Context) ([]repair.Manifest, error) {
	s.at(stepRestore)
	return s.Source.Candidates(ctx)
}

// toldLeases tells that a lease is stolen, which begins a round, or completed, which ends an upload.
type toldLeases struct {
	lease.Bucket
	at func(step string)
}

func (b toldLeases) Update(ctx context.Context, key string, value []byte, v kv.Version, o kv.PutOptions) (kv.Version, error) {
	b.at(stepLease)
	return b.Bucket.Update(ctx, key, value, v, o)
}
