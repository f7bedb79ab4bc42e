package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/natskv"

	"github.com/typedfold/fold/examples/internal/quickstart"
	routesv1 "github.com/typedfold/fold/examples/routes/gen/routes/v1"
	"github.com/typedfold/fold/examples/routes/gen/routes/v1/routesv1fold"
	"github.com/typedfold/fold/examples/routes/router"
)

// controlFlags are the flags of the commands that write and read the bucket. They need no fold.
type controlFlags struct {
	nats     quickstart.NATS
	timeout  time.Duration
	create   bool
	rev      uint64
	weight   uint
	disabled bool
	node     string
	token    string
}

func control(ctx context.Context, name string, args []string, stdout, stderr io.Writer) error {
	c := controlFlags{nats: quickstart.NATS{Name: "routes-" + name}}
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(stderr)
	c.nats.Flags(fs)
	fs.Lookup("server").Usage = "NATS `URL` (required)"
	fs.DurationVar(&c.timeout, "timeout", 10*time.Second, "how long the command may take")
	switch name {
	case "put":
		fs.BoolVar(&c.create, "create", false, "only when there is no such route")
		fs.UintVar(&c.weight, "weight", 0, "share of requests, in parts of 100; 0 is all")
		fs.StringVar(&c.node, "node", "", "the `ID` of the node that runs the origin")
		fs.BoolVar(&c.disabled, "disabled", false, "keep the route's place and answer 503")
		fallthrough
	case "delete":
		fs.Uint64Var(&c.rev, "rev", 0, "only when the route is still at this `revision`, as list shows it")
	}
	if name != "list" {
		fs.StringVar(&c.token, "fencing-token", "", "the `token` to present: the write is stored only while that one is installed")
	}
	if err := fs.Parse(args); err != nil {
		return err
	}
	if c.nats.Server == "" {
		return errors.New("--server is required; a router without one prints the address of its own")
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	session, err := c.nats.Start(ctx, slog.New(slog.NewTextHandler(stderr, nil)))
	if err != nil {
		return err
	}
	err = c.run(ctx, session, name, fs.Args(), stdout)
	return errors.Join(err, session.Close(ctx))
}

func (c controlFlags) run(ctx context.Context, session *quickstart.Session, name string, args []string, stdout io.Writer) error {
	js, err := session.JetStream()
	if err != nil {
		return err
	}
	bucket, err := natskv.Open(ctx, js, router.Bucket, natskv.BucketConfig{})
	if err != nil {
		return err
	}
	want := map[string]string{"put": "TENANT DOMAIN ORIGIN", "move": "TENANT DOMAIN ORIGIN", "delete": "TENANT DOMAIN"}[name]
	if name != "list" && len(args) != len(strings.Fields(want)) {
		return fmt.Errorf("%s: want %s, after the flags", name, want)
	}
	if name == "list" {
		return list(ctx, bucket, args, stdout)
	}
	return withFenceHint(c.write(ctx, routesv1fold.NewRouteWriter(bucket, fold.WithFencingToken(c.token)), name, args, stdout))
}

func (c controlFlags) write(ctx context.Context, w routesv1fold.RouteWriter, name string, args []string, stdout io.Writer) (err error) {
	var rev routesv1fold.RouteRev
	switch name {
	case "put":
		rev, err = c.put(ctx, w, args)
	case "move":
		rev, err = move(ctx, w, args)
	case "delete":
		return c.delete(ctx, w, routesv1fold.RouteKey{Tenant: args[0], Domain: args[1]})
	}
	if err == nil {
		fmt.Fprintf(stdout, "%s %s at revision %d\n", rev.Key().Tenant, rev.Key().Domain, rev.Seq())
	}
	return err
}

// put writes a whole route. Which call it is depends on what the caller knows of the row: nothing (Put), that there is
// none (Create), or its revision (Update).
func (c controlFlags) put(ctx context.Context, w routesv1fold.RouteWriter, args []string) (routesv1fold.RouteRev, error) {
	route := &routesv1.Route{Tenant: args[0], Domain: args[1], Origin: args[2], Enabled: !c.disabled, Weight: uint32(min(c.weight, 1000)), NodeId: c.node}
	if err := router.Validate(route); err != nil {
		return routesv1fold.RouteRev{}, err
	}
	key, err := routesv1fold.RouteKeyOf(route)
	switch {
	case err != nil:
		return routesv1fold.RouteRev{}, err
	case c.create && c.rev != 0:
		return routesv1fold.RouteRev{}, errors.New("--create and --rev exclude each other: a new route has no revision")
	case c.create:
		return w.Create(ctx, route)
	case c.rev != 0:
		return w.Update(ctx, route, fold.NewRev(key, c.rev))
	}
	return w.Put(ctx, route)
}

// move changes one field and leaves the others as whoever wrote them last wants them, so it is a read and a write that
// nobody comes between.
func move(ctx context.Context, w routesv1fold.RouteWriter, args []string) (routesv1fold.RouteRev, error) {
	key := routesv1fold.RouteKey{Tenant: args[0], Domain: args[1]}
	return w.Mutate(ctx, key, func(route *routesv1.Route, exists bool) (*routesv1.Route, error) {
		if !exists {
			return nil, fmt.Errorf("tenant %s has no route for %s; put makes one", key.Tenant, key.Domain)
		}
		route.Origin = args[2]
		return route, router.Validate(route)
	})
}

func (c controlFlags) delete(ctx context.Context, w routesv1fold.RouteWriter, key routesv1fold.RouteKey) error {
	if c.rev != 0 {
		return w.Delete(ctx, key, fold.At(fold.NewRev(key, c.rev)))
	}
	return w.Delete(ctx, key)
}

// list reads the bucket itself, through the table's own parser.
func list(ctx context.Context, bucket fold.Bucket, args []string, stdout io.Writer) error {
	prefix := routesv1fold.RouteAll()
	if len(args) > 0 {
		prefix = routesv1fold.RouteByTenant(args[0])
	}
	scope, err := fold.Prefixes(prefix.String())
	if err != nil {
		return err
	}
	var routes []routesv1fold.RouteEvent
	var rejected []*fold.Rejection
	for entry, err := range bucket.Scan(ctx, scope) {
		if err != nil {
			return err
		}
		if route, rej := routesv1fold.ParseRoute(entry.Update); rej != nil {
			rejected = append(rejected, rej)
		} else {
			routes = append(routes, route)
		}
	}
	slices.SortFunc(routes, func(a, b routesv1fold.RouteEvent) int {
		return strings.Compare(a.Key.String(), b.Key.String())
	})
	t := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TENANT\tDOMAIN\tORIGIN\tENABLED\tWEIGHT\tREVISION")
	for _, r := range routes {
		fmt.Fprintf(t, "%s\t%s\t%s\t%t\t%d\t%d\n", r.Key.Tenant, r.Key.Domain, r.New.GetOrigin(), r.New.GetEnabled(), r.New.GetWeight(), r.Rev.Seq())
	}
	for _, r := range rejected {
		fmt.Fprintf(t, "rejected: %v\n", r)
	}
	return t.Flush()
}
