package fold_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	indexedv1 "github.com/typedfold/fold/internal/foldtest/gen/indexed/v1"
	ix "github.com/typedfold/fold/internal/foldtest/gen/indexed/v1/indexedv1fold"
	fold "github.com/typedfold/fold/runtime"
)

// indexed are tables with secondary indexes.
type indexed struct {
	f      *fold.Fold
	hosts  ix.HostTable
	notes  ix.HostNoteTable
	tagged ix.TaggedTable
	leases ix.LeaseTable
	mode   ix.ModeTable
	plain  ix.PlainTable
	legacy ix.LegacyTable
}

func startIndexed(ctx context.Context, bucket fold.Bucket, s fold.Store, o fold.Options, tagged ...fold.TableOption) (*indexed, error) {
	if o.Logger == nil {
		o.Logger = quiet
	}
	b := fold.NewBuilder(bucket, s, o)
	var tb indexed
	var errs [7]error
	tb.hosts, errs[0] = ix.RegisterHost(b)
	tb.notes, errs[1] = ix.RegisterHostNote(b)
	tb.tagged, errs[2] = ix.RegisterTagged(b, tagged...)
	tb.leases, errs[3] = ix.RegisterLease(b)
	tb.mode, errs[4] = ix.RegisterMode(b)
	tb.plain, errs[5] = ix.RegisterPlain(b)
	tb.legacy, errs[6] = ix.RegisterLegacy(b)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	var err error
	tb.f, err = b.Start(ctx)
	return &tb, err
}

func mustStartIndexed(t testing.TB, bucket fold.Bucket, s fold.Store, o fold.Options) *indexed {
	t.Helper()
	tb, err := startIndexed(bounded(t), bucket, s, o)
	if err != nil {
		_ = s.Close()
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tb.f.Close() })
	return tb
}

// indexedMessages are the descriptors of the tables.
var indexedMessages = []protoreflect.MessageDescriptor{
	(&indexedv1.Host{}).ProtoReflect().Descriptor(), (&indexedv1.HostNote{}).ProtoReflect().Descriptor(),
	(&indexedv1.Tagged{}).ProtoReflect().Descriptor(), (&indexedv1.Lease{}).ProtoReflect().Descriptor(),
	(&indexedv1.Mode{}).ProtoReflect().Descriptor(), (&indexedv1.Plain{}).ProtoReflect().Descriptor(),
	(&indexedv1.Legacy{}).ProtoReflect().Descriptor(),
}

// lookup is one index as a test sees it: the tuples that a row has, and the generated methods.
type lookup[T comparable, K fold.Key, V proto.Message] struct {
	name   string
	tuples func(V) []T
	list   func(context.Context, T, ...fold.ReadOption) iter.Seq2[fold.Row[K, V], error]
	count  func(context.Context, T) (uint64, error)
	// get is of a unique index, which has neither list nor count.
	get func(context.Context, T) (fold.Row[K, V], bool, error)
}

// check compares the index with what a walk over the rows finds.
func (l lookup[T, K, V]) check(ctx context.Context, rows []fold.Row[K, V], others ...T) error {
	want := map[T][]fold.Row[K, V]{}
	for _, other := range others {
		want[other] = nil
	}
	for _, row := range rows {
		seen := map[T]bool{}
		for _, tuple := range l.tuples(row.Value) {
			if !seen[tuple] {
				seen[tuple] = true
				want[tuple] = append(want[tuple], row)
			}
		}
	}
	for tuple, rows := range want {
		var err error
		if l.get != nil {
			err = l.checkUnique(ctx, tuple, rows)
		} else {
			err = l.checkTuple(ctx, tuple, rows)
		}
		if err != nil {
			return fmt.Errorf("index %s at %v: %w", l.name, tuple, err)
		}
	}
	return nil
}

func (l lookup[T, K, V]) checkTuple(ctx context.Context, tuple T, want []fold.Row[K, V]) error {
	backwards := slices.Clone(want)
	slices.Reverse(backwards)
	keys := slices.Clone(want)
	for i := range keys {
		var none V
		keys[i].Value = none
	}
	some := min(len(want), 2)
	for _, read := range []struct {
		how  string
		want []fold.Row[K, V]
		opts []fold.ReadOption
	}{
		{"all", want, nil},
		{"reverse", backwards, []fold.ReadOption{fold.Reverse()}},
		{"limit", want[:some], []fold.ReadOption{fold.Limit(2)}},
		{"reverse limit", backwards[:some], []fold.ReadOption{fold.Reverse(), fold.Limit(2)}},
		{"keys only", keys, []fold.ReadOption{fold.KeysOnly()}},
	} {
		var got []fold.Row[K, V]
		for row, err := range l.list(ctx, tuple, read.opts...) {
			if err != nil {
				return fmt.Errorf("%s: %w", read.how, err)
			}
			got = append(got, row)
		}
		same := func(a, b fold.Row[K, V]) bool {
			if read.how == "keys only" {
				return a.Key == b.Key && a.Rev == b.Rev && any(a.Value) == any(b.Value)
			}
			return sameRow(a, b)
		}
		if !slices.EqualFunc(got, read.want, same) {
			return fmt.Errorf("%s: lists %+v, want %+v", read.how, got, read.want)
		}
	}
	if n, err := l.count(ctx, tuple); err != nil || n != uint64(len(want)) {
		return fmt.Errorf("counts %d (%v), want %d", n, err, len(want))
	}
	return nil
}

func (l lookup[T, K, V]) checkUnique(ctx context.Context, tuple T, want []fold.Row[K, V]) error {
	row, ok, err := l.get(ctx, tuple)
	if len(want) < 2 {
		if err != nil || ok != (len(want) == 1) || ok && !sameRow(row, want[0]) {
			return fmt.Errorf("gets %+v %v %v, want %+v", row, ok, err, want)
		}
		return nil
	}
	keys := make([]string, len(want))
	for i := range want {
		keys[i] = fold.KeyString(want[i].Key)
	}
	var not *fold.NotUniqueError
	more := len(keys) > fold.MaxNotUniqueKeys
	if ok || !errors.Is(err, fold.ErrNotUnique) || !errors.As(err, &not) || !slices.Equal(not.Keys, keys[:min(len(keys), fold.MaxNotUniqueKeys)]) || not.More != more {
		return fmt.Errorf("gets %+v %v %v, want an error with %q", row, ok, err, keys)
	}
	return nil
}

func listAll[K fold.Key, V proto.Message](ctx context.Context, t *fold.Table[K, V], p fold.Prefix[K], err *error) (rows []fold.Row[K, V]) {
	for row, rowErr := range t.List(ctx, p) {
		if rowErr != nil {
			*err = errors.Join(*err, rowErr)
			return nil
		}
		rows = append(rows, row)
	}
	return rows
}

type pair[A, B comparable] struct {
	a A
	b B
}

func tupleIf[T any](ok bool, v T) []T {
	if !ok {
		return nil
	}
	return []T{v}
}

func instant(t *timestamppb.Timestamp) (fold.Time, bool) {
	return fold.Time{Seconds: t.GetSeconds(), Nanos: t.GetNanos()}, t != nil && t.Nanos >= 0 && t.Nanos < 1e9
}

func length(d *durationpb.Duration) (fold.Span, bool) {
	if d == nil || d.Nanos <= -1e9 || d.Nanos >= 1e9 || d.Seconds > 0 && d.Nanos < 0 || d.Seconds < 0 && d.Nanos > 0 {
		return fold.Span{}, false
	}
	if d.Nanos < 0 {
		return fold.Span{Seconds: d.Seconds - 1, Nanos: d.Nanos + 1e9}, true
	}
	return fold.Span{Seconds: d.Seconds, Nanos: d.Nanos}, true
}

// check compares every index of every table with the rows, by three ways: the generated methods against a walk over
// the rows, and the two verifiers.
func (tb *indexed) check(ctx context.Context) error {
	snap, err := tb.f.Snapshot()
	if err != nil {
		return err
	}
	err = errors.Join(tb.checkHosts(ctx, tb.hosts), tb.checkHosts(ctx, tb.hosts.At(snap)), tb.checkOthers(ctx))
	report, verifyErr := tb.f.VerifyIndexes(ctx)
	if err = errors.Join(err, snap.Close(), verifyErr); verifyErr == nil {
		err = errors.Join(err, report.Err())
	}
	return err
}

func (tb *indexed) checkHosts(ctx context.Context, t ix.HostTable) (err error) {
	rows := listAll(ctx, t.Table, ix.HostAll(), &err)
	return errors.Join(err,
		lookup[string, ix.HostKey, *indexedv1.Host]{
			name: "by_node", tuples: func(h *indexedv1.Host) []string { return []string{h.NodeId} }, list: t.ListByNode, count: t.CountByNode,
		}.check(ctx, rows, "", "n1", "absent", "n", "a.b"),
		lookup[pair[uint32, indexedv1.State], ix.HostKey, *indexedv1.Host]{
			name: "by_rack_state",
			tuples: func(h *indexedv1.Host) []pair[uint32, indexedv1.State] {
				return []pair[uint32, indexedv1.State]{{h.Rack, h.State}}
			},
			list: func(ctx context.Context, p pair[uint32, indexedv1.State], o ...fold.ReadOption) iter.Seq2[ix.HostRow, error] {
				return t.ListByRackState(ctx, p.a, p.b, o...)
			},
			count: func(ctx context.Context, p pair[uint32, indexedv1.State]) (uint64, error) {
				return t.CountByRackState(ctx, p.a, p.b)
			},
		}.check(ctx, rows, pair[uint32, indexedv1.State]{7, -3}),
		lookup[string, ix.HostKey, *indexedv1.Host]{
			name: "by_owner", tuples: func(h *indexedv1.Host) []string { return tupleIf(h.Spec != nil, h.Spec.GetOwner()) },
			list: t.ListByOwner, count: t.CountByOwner,
		}.check(ctx, rows, "", "o1"),
		lookup[pair[fold.Time, fold.Span], ix.HostKey, *indexedv1.Host]{
			name: "by_seen",
			tuples: func(h *indexedv1.Host) []pair[fold.Time, fold.Span] {
				at, ok := instant(h.Seen)
				d, ok2 := length(h.Drain)
				return tupleIf(ok && ok2, pair[fold.Time, fold.Span]{at, d})
			},
			list: func(ctx context.Context, p pair[fold.Time, fold.Span], o ...fold.ReadOption) iter.Seq2[ix.HostRow, error] {
				return t.ListBySeen(ctx, p.a, p.b, o...)
			},
			count: func(ctx context.Context, p pair[fold.Time, fold.Span]) (uint64, error) {
				return t.CountBySeen(ctx, p.a, p.b)
			},
		}.check(ctx, rows, pair[fold.Time, fold.Span]{}),
		lookup[string, ix.HostKey, *indexedv1.Host]{
			name: "cert", tuples: func(h *indexedv1.Host) []string { return tupleIf(h.Cert != nil, string(h.Cert)) },
			get: func(ctx context.Context, cert string) (ix.HostRow, bool, error) {
				return t.GetByCert(ctx, []byte(cert))
			},
		}.check(ctx, rows, "", "\x00\xff", "absent"),
		lookup[string, ix.HostKey, *indexedv1.Host]{
			name: "by_choice",
			tuples: func(h *indexedv1.Host) []string {
				c, ok := h.Choice.(*indexedv1.Host_Word)
				return tupleIf(ok, func() string {
					if ok {
						return c.Word
					}
					return ""
				}())
			},
			list: t.ListByChoice, count: t.CountByChoice,
		}.check(ctx, rows, ""),
	)
}

func (tb *indexed) checkOthers(ctx context.Context) (err error) {
	notes := listAll(ctx, tb.notes.Table, ix.HostNoteAll(), &err)
	tagged := listAll(ctx, tb.tagged.Table, ix.TaggedAll(), &err)
	legacy := listAll(ctx, tb.legacy.Table, ix.LegacyAll(), &err)
	var leases []ix.LeaseRow
	for row, rowErr := range tb.leases.List(ctx, ix.LeaseAll()) {
		if err = errors.Join(err, rowErr); rowErr == nil {
			leases = append(leases, row)
		}
	}
	mode := listAll(ctx, tb.mode.Table, ix.ModeAll(), &err)
	type idUser = pair[string, string]
	type tag = pair[string, string]
	type inner = pair[string, int64]
	return errors.Join(err,
		lookup[string, ix.HostNoteKey, *indexedv1.HostNote]{
			name: "notes by_node", tuples: func(m *indexedv1.HostNote) []string { return []string{m.NodeId} },
			list: tb.notes.ListByNode, count: tb.notes.CountByNode,
		}.check(ctx, notes, "", "n1"),
		lookup[tag, ix.TaggedKey, *indexedv1.Tagged]{
			name: "by_tag",
			tuples: func(m *indexedv1.Tagged) (tags []tag) {
				for _, s := range m.Tags {
					tags = append(tags, tag{m.Kind, s})
				}
				return tags
			},
			list: func(ctx context.Context, p tag, o ...fold.ReadOption) iter.Seq2[ix.TaggedRow, error] {
				return tb.tagged.ListByTag(ctx, p.a, p.b, o...)
			},
			count: func(ctx context.Context, p tag) (uint64, error) { return tb.tagged.CountByTag(ctx, p.a, p.b) },
		}.check(ctx, tagged, tag{"", ""}),
		lookup[int32, ix.TaggedKey, *indexedv1.Tagged]{
			name: "by_port", tuples: func(m *indexedv1.Tagged) []int32 { return m.Ports }, list: tb.tagged.ListByPort, count: tb.tagged.CountByPort,
		}.check(ctx, tagged, 0, -9),
		lookup[idUser, ix.LeaseKey, *indexedv1.Lease]{
			name: "by_id", tuples: func(m *indexedv1.Lease) []idUser { return []idUser{{string(m.Id), m.User}} },
			list: func(ctx context.Context, p idUser, o ...fold.ReadOption) iter.Seq2[ix.LeaseRow, error] {
				return tb.leases.ListByID(ctx, []byte(p.a), p.b, o...)
			},
			count: func(ctx context.Context, p idUser) (uint64, error) {
				return tb.leases.CountByID(ctx, []byte(p.a), p.b)
			},
		}.check(ctx, leases, idUser{"", ""}),
		lookup[fold.Span, ix.LeaseKey, *indexedv1.Lease]{
			name: "by_at",
			tuples: func(m *indexedv1.Lease) []fold.Span {
				at, ok := length(m.At)
				return tupleIf(ok, at)
			},
			list: tb.leases.ListByAt, count: tb.leases.CountByAt,
		}.check(ctx, leases, fold.Span{Seconds: 99}),
		lookup[string, ix.LeaseKey, *indexedv1.Lease]{
			name: "by_shelf", tuples: func(m *indexedv1.Lease) []string { return tupleIf(m.Spec != nil, m.Spec.GetShelf()) },
			list: tb.leases.ListByShelf, count: tb.leases.CountByShelf,
		}.check(ctx, leases, "", "s"),
		lookup[bool, ix.ModeKey, *indexedv1.Mode]{
			name: "by_on", tuples: func(m *indexedv1.Mode) []bool { return tupleIf(m.On != nil, m.GetOn()) },
			list: tb.mode.ListByOn, count: tb.mode.CountByOn,
		}.check(ctx, mode, true, false),
		lookup[indexedv1.Shade, ix.LegacyKey, *indexedv1.Legacy]{
			name: "by_shade", tuples: func(m *indexedv1.Legacy) []indexedv1.Shade { return tupleIf(m.Shade != nil, m.GetShade()) },
			list: tb.legacy.ListByShade, count: tb.legacy.CountByShade,
		}.check(ctx, legacy, indexedv1.Shade_SHADE_LIGHT, 9),
		lookup[inner, ix.LegacyKey, *indexedv1.Legacy]{
			name: "by_inner",
			tuples: func(m *indexedv1.Legacy) []inner {
				return tupleIf(m.Inner != nil && m.Inner.Code != nil, inner{string(m.Inner.GetCode()), m.GetPlain()})
			},
			list: func(ctx context.Context, p inner, o ...fold.ReadOption) iter.Seq2[ix.LegacyRow, error] {
				return tb.legacy.ListByInner(ctx, []byte(p.a), p.b, o...)
			},
			count: func(ctx context.Context, p inner) (uint64, error) {
				return tb.legacy.CountByInner(ctx, []byte(p.a), p.b)
			},
		}.check(ctx, legacy, inner{"", 0}),
	)
}

// someValue is a random key with a random value of some table: good, or one that the table refuses.
func someValue(r *rand.Rand) (key, value string) {
	pick := func(values ...string) string { return values[r.IntN(len(values))] }
	text := func() string { return pick("", "n1", "n2", "n", "a.b", "ü\x00") }
	var m proto.Message
	switch r.IntN(12) {
	case 0, 1, 2, 3:
		h := &indexedv1.Host{Region: pick("eu", "u.s"), Name: pick("a", "b", "c"), NodeId: text(), Rack: uint32(r.IntN(2)), State: indexedv1.State(r.IntN(5) - 3)}
		if r.IntN(3) > 0 {
			h.Spec = &indexedv1.Host_Spec{Owner: pick("", "o1")}
		}
		if r.IntN(3) > 0 {
			h.Seen = &timestamppb.Timestamp{Seconds: int64(r.IntN(3) - 1), Nanos: int32(r.IntN(3)-1) * 500_000_000}
		}
		if r.IntN(3) > 0 {
			h.Drain = &durationpb.Duration{Seconds: int64(r.IntN(3) - 1), Nanos: int32(r.IntN(3)-1) * 500_000_000}
		}
		if r.IntN(2) > 0 {
			h.Cert = []byte(pick("", "\x00\xff", "c"))
		}
		switch r.IntN(4) {
		case 0:
			h.Choice = &indexedv1.Host_Word{Word: pick("", "w")}
		case 1:
			h.Choice = &indexedv1.Host_Number{Number: 3}
		}
		key, m = ix.HostKey{Region: h.Region, Name: h.Name}.String(), h
	case 4:
		n := &indexedv1.HostNote{Region: pick("eu", "u.s"), Name: pick("a", "b"), NodeId: text()}
		key, m = ix.HostNoteKey{Region: n.Region, Name: n.Name}.String(), n
	case 5, 6, 7:
		g := &indexedv1.Tagged{Id: uint32(r.IntN(4)), Kind: pick("", "k")}
		for range r.IntN(4) {
			g.Tags, g.Ports = append(g.Tags, text()), append(g.Ports, int32(r.IntN(3)-1))
		}
		key, m = ix.TaggedKey{ID: g.Id}.String(), g
	case 8, 9:
		l := &indexedv1.Lease{User: pick("", "u")}
		if r.IntN(2) > 0 {
			l.Spec = &indexedv1.Lease_Spec{Shelf: pick("", "s")}
		}
		id := [16]byte{15: byte(r.IntN(2))}
		key, m = ix.LeaseKey{SpecZone: int64(r.IntN(3) - 1), ID: id, At: fold.Span{Seconds: int64(r.IntN(2) - 1), Nanos: 5}}.String(), l
	case 10:
		if key, m = "mode", (&indexedv1.Mode{}); r.IntN(2) > 0 {
			m = &indexedv1.Mode{On: proto.Bool(r.IntN(2) > 0)}
		}
		if r.IntN(3) == 0 {
			key, m = ix.PlainKey{ID: 3}.String(), &indexedv1.Plain{Id: 3}
		}
	default:
		l := &indexedv1.Legacy{Id: proto.Uint32(uint32(r.IntN(2))), Plain: int64(r.IntN(3) - 1)}
		if r.IntN(2) > 0 {
			l.Shade = indexedv1.Shade(1 + r.IntN(2)).Enum()
		}
		if r.IntN(2) > 0 {
			if l.Inner = (&indexedv1.Legacy_Inner{}); r.IntN(2) > 0 {
				l.Inner.Code = []byte(pick("", "\xff."))
			}
		}
		key, m = ix.LegacyKey{Shard: uint32(r.IntN(2)), ID: l.GetId()}.String(), l
	}
	b, err := proto.MarshalOptions{AllowPartial: true}.Marshal(m)
	if err != nil {
		panic(err)
	}
	switch r.IntN(9) {
	case 0:
		b = []byte("\xff")
	case 1:
		b = append(b, make([]byte, 300)...)
	case 2: // the field comes twice
		b = append(append(append([]byte{}, b...), 0x1a, 2), "n9"...)
	case 3:
		key += ".zFF" // of no table, or a token that is not written so
	}
	return key, string(b)
}
