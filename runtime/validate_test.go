package fold_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	codecv1 "github.com/typedfold/fold/internal/foldtest/gen/codec/v1"
	cd "github.com/typedfold/fold/internal/foldtest/gen/codec/v1/codecv1fold"
	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/kv"
)

// adults refuses a negative age, and panics at 13.
type adults struct {
	calls    atomic.Int64
	prepared atomic.Int64
	refuse   error // Prepare's
}

type person interface {
	GetId() string
	GetAge() int32
}

func (a *adults) Validate(m proto.Message) error {
	a.calls.Add(1)
	p := m.(person)
	switch {
	case p.GetId() == "":
		return errors.New("no id")
	case p.GetAge() == 13:
		panic("thirteen")
	case p.GetAge() < -100: // what a validator says of it has another code
		return fmt.Errorf("wrapped: %w", &fold.Rejection{Code: fold.Hook, Table: "x", Field: "age", Err: errors.New("far too young")})
	case p.GetAge() < 0:
		return &fold.Rejection{Field: "age", Err: errors.New("too young")}
	}
	return nil
}

func (a *adults) Prepare(m proto.Message) error {
	a.prepared.Add(1)
	if a.refuse == nil && m.(person).GetId() != "" {
		return errors.New("not empty")
	}
	return a.refuse
}

func TestValidateOnWrite(t *testing.T) {
	log, v, ctx := newLog(), &adults{}, bounded(t)
	w := cd.NewCheckedWriter(log, fold.WithValidator(v))
	rev := must[cd.CheckedRev](t)(w.Create(ctx, &codecv1.Checked{Id: "a", Age: 1}))
	before := must[kv.LogInfo](t)(log.Info(ctx))
	bad := func(age int32) *codecv1.Checked { return &codecv1.Checked{Id: "a", Age: age} }
	writes := map[string]func(m *codecv1.Checked) error{
		"create": func(m *codecv1.Checked) error { return second(w.Create(ctx, m)) },
		"put":    func(m *codecv1.Checked) error { return second(w.Put(ctx, m)) },
		"update": func(m *codecv1.Checked) error { return second(w.Update(ctx, m, rev)) },
		"mutate": func(m *codecv1.Checked) error {
			return second(w.Mutate(ctx, cd.CheckedKey{ID: "a"}, func(*codecv1.Checked, bool) (*codecv1.Checked, error) { return m, nil }))
		},
	}
	for name, write := range writes {
		rej := wantRejected(t, name, write(bad(-1)), fold.Validation)
		if rej.Field != "age" || rej.Table != "Checked" || rej.Key != "checked.a" || rej.Err == nil || rej.Err.Error() != "too young" {
			t.Errorf("%s: %+v", name, rej)
		}
		if rej = wantRejected(t, name, write(bad(-101)), fold.Validation); rej.Field != "age" || rej.Table != "Checked" {
			t.Errorf("%s: %+v", name, rej)
		}
		err := write(bad(13))
		var p *fold.PanicError
		if wantRejected(t, name, err, fold.Validation); !errors.As(err, &p) || p.Value != "thirteen" || !strings.Contains(string(p.Stack), "Validate") {
			t.Errorf("%s of a value at which the validator panics: %v", name, err)
		}
	}
	if after := must[kv.LogInfo](t)(log.Info(ctx)); after.Last != before.Last {
		t.Errorf("refused writes were sent: %d messages", after.Last)
	}
	// A value that someone else wrote is mended.
	set(t, log, "checked.a", bad(-5))
	must[cd.CheckedRev](t)(w.Mutate(ctx, cd.CheckedKey{ID: "a"}, func(m *codecv1.Checked, ok bool) (*codecv1.Checked, error) {
		if !ok || m.Age != -5 {
			return nil, fmt.Errorf("%v %v", m, ok)
		}
		m.Age = 5
		return m, nil
	}))

	filled := cd.NewCheckedFilledWriter(log, fold.WithValidator(v))
	must[cd.CheckedFilledRev](t)(filled.Put(ctx, &codecv1.CheckedFilled{Id: "a", Age: 2}))
	wantMessage(t, log, "checkedfilled.a", `{"age":2}`, typeJSON)

	calls := v.calls.Load()
	must[cd.BinaryRev](t)(cd.NewBinaryWriter(log, fold.WithValidator(v)).Put(ctx, &codecv1.Binary{Id: "a"}))
	if v.calls.Load() != calls {
		t.Error("a table that does not validate asks the validator")
	}
}

func TestNoValidator(t *testing.T) {
	log, ctx := newLog(), bounded(t)
	var none *adults
	for name, w := range map[string]cd.CheckedWriter{"no option": cd.NewCheckedWriter(log), "nil": cd.NewCheckedWriter(log, fold.WithValidator(nil)), "nil pointer": cd.NewCheckedWriter(log, fold.WithValidator(none))} {
		err := second(w.Put(ctx, &codecv1.Checked{Id: "a"}))
		if !errors.Is(err, fold.ErrNoValidator) || !strings.Contains(fold.Hint(err), "writer with WithValidator") || !strings.Contains(err.Error(), "Checked") {
			t.Errorf("%s: put: %v (%s)", name, err, fold.Hint(err))
		}
		err = second(w.Mutate(ctx, cd.CheckedKey{ID: "a"}, func(m *codecv1.Checked, _ bool) (*codecv1.Checked, error) {
			t.Error("called, and nothing can be written")
			return m, nil
		}))
		if !errors.Is(err, fold.ErrNoValidator) {
			t.Errorf("%s: mutate: %v", name, err)
		}
		if err := w.Delete(ctx, cd.CheckedKey{ID: "a"}); err != nil {
			t.Errorf("%s: a delete has no value to judge: %v", name, err)
		}
	}
	s := openStore(t, backends[0], t.TempDir())
	defer func() { _ = s.Close() }()
	b := fold.NewBuilder(log, s, fold.Options{Logger: quiet, Validator: none})
	_, err := cd.RegisterChecked(b, fold.WithValidator(nil))
	var e *fold.NoValidatorError
	if !errors.As(err, &e) || e.Table != "Checked" || !errors.Is(err, fold.ErrNoValidator) || !strings.Contains(fold.Hint(err), "Options.Validator") {
		t.Errorf("register: %v (%s)", err, fold.Hint(err))
	}
	v := &adults{refuse: errors.New("bad rules")}
	if _, err := cd.RegisterChecked(b, fold.WithValidator(v)); !errors.Is(err, v.refuse) {
		t.Errorf("register with a validator that can't get ready: %v", err)
	}
	if _, err := cd.RegisterBinary(b, fold.WithValidator(v)); err != nil || v.prepared.Load() != 1 {
		t.Errorf("a table that does not validate: %v, prepared %d times", err, v.prepared.Load())
	}
}

// checkedFold follows Checked: checking only what comes, or decoding it.
func checkedFold(t *testing.T, log fold.Bucket, o fold.Options, opts ...fold.TableOption) codecFold[cd.CheckedKey, *codecv1.Checked] {
	t.Helper()
	return startCodec(t, log, cd.CheckedDesc, o, opts...)
}

func TestValidateOnFold(t *testing.T) {
	for name, opts := range map[string][]fold.TableOption{"stored": nil, "resident": {fold.Resident()}} {
		t.Run(name, func(t *testing.T) {
			log, v := newLog(), &adults{}
			f := checkedFold(t, log, fold.Options{Validator: v}, opts...)
			k := cd.CheckedKey{ID: "a"}
			good := &codecv1.Checked{Id: "a", Age: 1}
			set(t, log, "checked.a", good)
			f.want(t, k, good)
			for age, want := range map[int32]string{-1: "too young", -101: "far too young", 13: "validator panicked: thirteen"} {
				set(t, log, "checked.a", &codecv1.Checked{Id: "a", Age: age})
				if rej := f.wantCode(t, "checked.a", fold.Validation); rej.Err == nil || rej.Err.Error() != want || age != 13 && rej.Field != "age" {
					t.Errorf("age %d: %+v", age, rej)
				}
				row, ok := get(t, f.Table, k)
				if !ok || row.Stale == nil || !proto.Equal(row.Value, good) {
					t.Errorf("age %d: row %+v %v", age, row, ok)
				}
			}
			// What other codes say comes first: nobody asks a validator about what is no value.
			calls := v.calls.Load()
			log.Set("checked.a", "\xff")
			f.wantCode(t, "checked.a", fold.ValueDecode)
			set(t, log, "checked.a", &codecv1.Checked{Id: "b"})
			f.wantCode(t, "checked.a", fold.KeyValueMismatch)
			if v.calls.Load() != calls {
				t.Error("the validator was asked about what is no value")
			}
			set(t, log, "checked.a", good)
			f.want(t, k, good)
			if v.prepared.Load() != 1 {
				t.Errorf("prepared %d times", v.prepared.Load())
			}
			// Reads ask nobody.
			calls = v.calls.Load()
			collect(t, f.List(bounded(t), cd.CheckedAll()))
			if v.calls.Load() != calls {
				t.Error("a read validates")
			}
			if _, rej := cd.ParseChecked(fold.RawEntry{Key: "checked.a", Value: wireOf(t, &codecv1.Checked{Id: "a", Age: -1}), Op: fold.OpPut}); rej != nil {
				t.Errorf("ParseChecked has a validator: %v", rej)
			}
		})
	}
}

// The table's own validator is the one that judges, and a filled value is whole.
func TestValidatorOfTable(t *testing.T) {
	log, own, others := newLog(), &adults{}, &adults{}
	f := startCodec(t, log, cd.CheckedFilledDesc, fold.Options{Validator: others}, fold.WithValidator(own))
	k := cd.CheckedFilledKey{ID: "a"}
	log.Set("checkedfilled.a", `{"age":3}`)
	f.want(t, k, &codecv1.CheckedFilled{Id: "a", Age: 3})
	log.Set("checkedfilled.-", `{"id":"x","age":3}`)
	if rej := f.wantCode(t, "checkedfilled.-", fold.Validation); !strings.Contains(rej.Error(), "no id") {
		t.Error(rej)
	}
	log.Set("checkedfilled.a", `{"age":-3}`)
	f.wantCode(t, "checkedfilled.a", fold.Validation)
	if _, ok, _ := f.row(t, k); ok {
		t.Error("the row is there, and the table drops what is rejected")
	}
	if own.calls.Load() == 0 || others.calls.Load() != 0 {
		t.Errorf("own %d calls, others %d", own.calls.Load(), others.calls.Load())
	}
}

func TestValidateHalts(t *testing.T) {
	log := newLog()
	f := startCodec(t, log, cd.CheckedHaltDesc, fold.Options{Validator: &adults{}})
	set(t, log, "checkedhalt.a", &codecv1.CheckedHalt{Id: "a"})
	f.upToDate(t)
	last := set(t, log, "checkedhalt.a", &codecv1.CheckedHalt{Id: "a", Age: 13})
	err := f.f.WaitApplied(bounded(t), fold.Seq(last))
	var halt *fold.HaltError
	if !errors.As(err, &halt) || halt.Rejection.Code != fold.Validation || !errors.As(err, new(*fold.PanicError)) {
		t.Errorf("%v", err)
	}
}

// TestWatchDoesNotValidateAgain: a validator that changes its mind can't have a reader's events differ from its rows.
func TestWatchDoesNotValidateAgain(t *testing.T) {
	log, v := newLog(), &adults{}
	f := checkedFold(t, log, fold.Options{Validator: v})
	f.upToDate(t)
	ctx := bounded(t)
	events := make(chan int64, 1)
	ready := make(chan struct{})
	go func() {
		defer close(events)
		for ev, err := range f.Watch(ctx, nil, fold.WithInitial()) {
			if err != nil {
				return
			}
			if ev.Key.ID == "first" {
				close(ready)
				continue
			}
			events <- v.calls.Load()
			return
		}
	}()
	set(t, log, "checked.first", &codecv1.Checked{Id: "first"})
	<-ready
	set(t, log, "checked.second", &codecv1.Checked{Id: "second"})
	if calls, ok := <-events; !ok || calls != 2 {
		t.Errorf("%d calls for two updates (%v)", calls, ok)
	}
}

// nilRejection is a validator that returns a nil pointer for every value, as it is or in another error.
type nilRejection struct{ wrap bool }

func (v nilRejection) Validate(proto.Message) error {
	var rej *fold.Rejection
	if v.wrap {
		return fmt.Errorf("wrapped: %w", error(rej))
	}
	return rej
}

// TestNilRejection: a nil pointer in an error is no refusal, and in another error it is one without a panic.
func TestNilRejection(t *testing.T) {
	value := &codecv1.Checked{Id: "a", Age: 1}
	if _, err := cd.NewCheckedWriter(newLog(), fold.WithValidator(nilRejection{})).Create(bounded(t), value); err != nil {
		t.Error(err)
	}
	_, err := cd.NewCheckedWriter(newLog(), fold.WithValidator(nilRejection{wrap: true})).Create(bounded(t), value)
	var rej *fold.Rejection
	if !errors.As(err, &rej) || rej == nil || rej.Code != fold.Validation {
		t.Errorf("%#v", err)
	}
}
