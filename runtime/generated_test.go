package fold

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"
)

type hopFuncs Hooks[hopKey, *wrapperspb.StringValue]

type hopHooks interface {
	load(context.Context, Rows[hopKey, *wrapperspb.StringValue]) error
	apply(context.Context, []Event[hopKey, *wrapperspb.StringValue]) error
}

func (f hopFuncs) load(ctx context.Context, rows Rows[hopKey, *wrapperspb.StringValue]) error {
	return CallHook(ctx, f.Load, rows)
}

func (f hopFuncs) apply(ctx context.Context, events []Event[hopKey, *wrapperspb.StringValue]) error {
	return CallHook(ctx, f.Apply, events)
}

// A func that is nil is no hook, so that a table without it need not make its arguments; a method always is one.
func TestHooksOf(t *testing.T) {
	hooks := func(h hopHooks) Hooks[hopKey, *wrapperspb.StringValue] {
		var o tableOptions
		o.apply([]TableOption{HooksOf[hopFuncs](h, hopHooks.load, hopHooks.apply)})
		return o.hooks.(Hooks[hopKey, *wrapperspb.StringValue])
	}
	want := errors.New("called")
	apply := func(context.Context, []Event[hopKey, *wrapperspb.StringValue]) error { return want }
	for _, c := range []struct {
		name        string
		hooks       hopHooks
		load, apply bool
	}{
		{"none", nil, false, false},
		{"no funcs", hopFuncs{}, false, false},
		{"one func", hopFuncs{Apply: apply}, false, true},
		{"methods", struct{ hopFuncs }{hopFuncs{Apply: apply}}, true, true},
	} {
		h := hooks(c.hooks)
		if (h.Load != nil) != c.load || (h.Apply != nil) != c.apply {
			t.Errorf("%s: Load %v, Apply %v", c.name, h.Load != nil, h.Apply != nil)
		}
		if h.Load != nil && h.Load(t.Context(), nil) != nil {
			t.Errorf("%s: Load fails", c.name)
		}
		if h.Apply != nil && h.Apply(t.Context(), nil) != want {
			t.Errorf("%s: Apply is another", c.name)
		}
	}
}
