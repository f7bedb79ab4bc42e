package foldvalidate_test

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"

	fold "github.com/typedfold/fold/runtime"
	"github.com/typedfold/fold/runtime/foldvalidate"
	vtv1 "github.com/typedfold/fold/runtime/foldvalidate/internal/validatetest/gen/validatetest/v1"
	vt "github.com/typedfold/fold/runtime/foldvalidate/internal/validatetest/gen/validatetest/v1/validatetestv1fold"
	"github.com/typedfold/fold/runtime/kv/kvtest"
)

func validator(t testing.TB) *foldvalidate.Validator {
	t.Helper()
	v, err := foldvalidate.New(&vtv1.Account{}, &vtv1.Secret{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// refused is why a message is refused; nil when it is not.
func refused(t testing.TB, v *foldvalidate.Validator, m proto.Message) (*fold.Rejection, *foldvalidate.Error) {
	t.Helper()
	err := v.Validate(m)
	if err == nil {
		return nil, nil
	}
	var rej *fold.Rejection
	var e *foldvalidate.Error
	if !errors.As(err, &rej) || !errors.As(err, &e) || rej.Code != fold.Validation {
		t.Fatalf("%v is no rejection by a rule: %T", err, err)
	}
	if len(e.Violations) == 0 || rej.Field != e.Violations[0].Field {
		t.Errorf("field %q of %+v", rej.Field, e)
	}
	return rej, e
}

func TestRulesAreToldByField(t *testing.T) {
	v := validator(t)
	good := &vtv1.Account{Id: "abc", Age: 7, From: 1, To: 2, Parity: 5, Parts: []*vtv1.Part{{Size: 1}}, Named: map[string]*vtv1.Part{"x": {Size: 1}}}
	if rej, _ := refused(t, v, good); rej != nil {
		t.Errorf("a good account: %v", rej)
	}
	change := func(f func(*vtv1.Account)) *vtv1.Account {
		m := proto.CloneOf(good)
		f(m)
		return m
	}
	for _, c := range []struct {
		m                 *vtv1.Account
		field, rule, text string
	}{
		{change(func(m *vtv1.Account) { m.Id = "ab" }), "id", "string.min_len", "at least 3"},
		{change(func(m *vtv1.Account) { m.Age = 151 }), "age", "int32.gte_lte", "150"},
		{change(func(m *vtv1.Account) { m.From = 3 }), "", "account.span", "from is after to"},
		{change(func(m *vtv1.Account) { m.Parts = append(m.Parts, &vtv1.Part{}) }), "parts[1].size", "int32.gt", "greater than 0"},
		{change(func(m *vtv1.Account) { m.Parts[0].Inner = &vtv1.Part{} }), "parts[0].inner.size", "int32.gt", "greater than 0"},
		{change(func(m *vtv1.Account) { m.Named["a\"b"] = &vtv1.Part{} }), `named["a\"b"].size`, "int32.gt", "greater than 0"},
		{change(func(m *vtv1.Account) { m.Named["longer"] = &vtv1.Part{Size: 1} }), `named["longer"]`, "string.max_len", "at most 5"},
		{change(func(m *vtv1.Account) { m.Mail = "nobody" }), "mail", "mail", "nobody is no address"},
	} {
		rej, e := refused(t, v, c.m)
		if rej == nil || rej.Field != c.field || e.Violations[0].Rule != c.rule || !strings.Contains(e.Error(), c.text) || len(e.Violations) != 1 {
			t.Errorf("%v: %v, %+v; want field %q, rule %q, text %q", c.m, rej, e, c.field, c.rule, c.text)
		}
	}
	rej, e := refused(t, v, change(func(m *vtv1.Account) { m.Id, m.Age = "", -1 }))
	if rej == nil || len(e.Violations) != 2 || !strings.Contains(rej.Error(), "id: ") || !strings.Contains(rej.Error(), "; age: ") {
		t.Errorf("two rules: %v, %+v", rej, e)
	}
	rej, e = refused(t, v, change(func(m *vtv1.Account) { m.Parts = make([]*vtv1.Part, 1000) }))
	if rej == nil || len(e.Violations) != 16 || e.More != 984 || !strings.Contains(rej.Error(), "and 984 more") {
		t.Errorf("a thousand: %v", rej)
	}
	rej, e = refused(t, v, change(func(m *vtv1.Account) { m.Mail = strings.Repeat("é", 9999) }))
	if rej == nil || len(e.Error()) > 600 || strings.Contains(e.Error(), "\ufffd") {
		t.Errorf("a long text: %d bytes", len(e.Error()))
	}
	// A rule that fails on a value refuses it.
	if rej, e = refused(t, v, change(func(m *vtv1.Account) { m.Parity = 0 })); rej == nil || !strings.Contains(e.Error(), "zero") {
		t.Errorf("a rule that divides by zero: %v", rej)
	}
}

func TestSecretsAreNotTold(t *testing.T) {
	v := validator(t)
	for _, c := range []struct {
		m       *vtv1.Secret
		secrets []string
		field   string
		text    string
	}{
		{&vtv1.Secret{Password: "bad7Xw"}, []string{"7Xw"}, "password", "breaks rule password.word"},
		{&vtv1.Secret{Codes: map[string]int32{"9Kq": -5}}, []string{"9Kq", "-5"}, "codes", "breaks rule int32.gt"},
		{&vtv1.Secret{Inner: &vtv1.Secret_Inner{Text: "hush"}}, []string{"hush"}, "inner.text", "breaks rule inner.text"},
		{&vtv1.Secret{Password: "~"}, []string{"~"}, "", "breaks rule secret.length"}, // a rule of the message has its fields
		{&vtv1.Secret{Ratio: 7}, []string{"7", "key"}, "", "a rule could not be evaluated"},
		{&vtv1.Secret{Open: "x"}, nil, "open", "x is open"},
	} {
		rej, e := refused(t, v, c.m)
		if rej == nil || rej.Field != c.field || e.Error() != c.text {
			t.Errorf("%v: %v, want field %q and text %q", c.m, rej, c.field, c.text)
			continue
		}
		for _, s := range c.secrets {
			if strings.Contains(rej.Error(), s) {
				t.Errorf("%v tells %q", rej, s)
			}
		}
		if errors.As(error(rej), new(*protovalidate.ValidationError)) {
			t.Errorf("%v leads to the values", rej)
		}
	}
}

func TestRulesThatDoNotCompile(t *testing.T) {
	if _, err := foldvalidate.New(&vtv1.Account{}, &vtv1.Broken{}); err == nil || !strings.Contains(err.Error(), "validatetest.v1.Broken.Deep") || !errors.As(err, new(*protovalidate.CompilationError)) {
		t.Errorf("a rule that does not compile: %v", err)
	}
	log := kvtest.NewLog(kvtest.Options{Bucket: "test"})
	b := fold.NewBuilder(log, openStore(t), fold.Options{Validator: validator(t)})
	if _, err := vt.RegisterBroken(b); err == nil || !strings.Contains(err.Error(), "register table Broken: its validator: rules of validatetest.v1.Broken.Deep") {
		t.Errorf("a table whose rules do not compile: %v", err)
	}
	if _, err := foldvalidate.Wrap(nil); err == nil {
		t.Error("no validator at all was wrapped")
	}
}

func TestConcurrentUse(t *testing.T) {
	v, err := foldvalidate.New() // so that the rules are compiled at the first values, by all at once
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 50 {
				if err := v.Validate(&vtv1.Account{Id: "abc", Parity: 1, Age: int32(i * 30)}); (err != nil) != (i > 5) {
					t.Errorf("age %d: %v", i*30, err)
				}
			}
		})
	}
	wg.Wait()
}

// TestTableWithRules: a table judges what is written and what comes by the rules of its message, filled from its key.
func TestTableWithRules(t *testing.T) {
	v, log := validator(t), kvtest.NewLog(kvtest.Options{Bucket: "test"})
	b := fold.NewBuilder(log, openStore(t), fold.Options{Validator: v, Logger: slog.New(slog.DiscardHandler)})
	accounts, err := vt.RegisterAccount(b)
	if err != nil {
		t.Fatal(err)
	}
	f, err := b.Start(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	w, ctx := vt.NewAccountWriter(log, fold.WithValidator(v)), bounded(t)
	rev, err := w.Put(ctx, &vtv1.Account{Id: "abc", Parity: 1, Age: 7})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.WaitApplied(ctx, rev); err != nil {
		t.Fatal(err)
	}
	var rej *fold.Rejection
	if _, err := w.Put(ctx, &vtv1.Account{Id: "ab", Parity: 1}); !errors.As(err, &rej) || rej.Code != fold.Validation || rej.Field != "id" || rej.Table != "Account" || rej.Key != "account.ab" {
		t.Errorf("a short id: %v", err)
	}
	bad, err := proto.Marshal(&vtv1.Account{Age: 200, Parity: 1})
	if err != nil {
		t.Fatal(err)
	}
	log.Set("account.abc", string(bad))
	last := log.Set("account.xy", "\x40\x01") // good but for the id, which only its key has
	if err := f.WaitApplied(ctx, fold.Seq(last)); err != nil {
		t.Fatal(err)
	}
	row, ok, err := accounts.GetRow(ctx, vt.AccountKey{ID: "abc"})
	if err != nil || !ok || row.Value.Age != 7 || row.Stale == nil || row.Stale.Field != "age" || row.Stale.Code != fold.Validation {
		t.Errorf("the row under a bad value: %+v %v %v", row, ok, err)
	}
	if _, ok, err := accounts.Get(ctx, vt.AccountKey{ID: "xy"}); ok || err != nil {
		t.Errorf("a row with an id that is too short: %v %v", ok, err)
	}
	if st := f.Status(); st.Rejections != 2 {
		t.Errorf("%d rejections", st.Rejections)
	}
}

func BenchmarkValidate(b *testing.B) {
	v := validator(b)
	m := &vtv1.Account{Id: "abc", Age: 7, From: 1, To: 2, Parity: 5, Parts: []*vtv1.Part{{Size: 1}}}
	b.ReportAllocs()
	for b.Loop() {
		if err := v.Validate(m); err != nil {
			b.Fatal(err)
		}
	}
}
