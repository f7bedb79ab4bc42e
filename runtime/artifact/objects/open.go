package objects

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
)

// Opener opens the store that a URL names, with all that its path says. It keeps credentials out of its errors.
type Opener func(ctx context.Context, u *url.URL, o Options) (Store, error)

// Openers opens stores by the scheme of their URLs. A program fills it with the stores it links in:
//
//	objects.Openers{"file": dir.OpenURL, "s3": s3.OpenURL}
type Openers map[string]Opener

// Open opens the store that the URL names.
func (openers Openers) Open(ctx context.Context, rawURL string, o Options) (Store, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	known := slices.Sorted(maps.Keys(openers))
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("objects: open %s: not a URL; the stores here are %q", RedactURL(rawURL), known)
	}
	opener := openers[u.Scheme]
	if opener == nil {
		return nil, fmt.Errorf("objects: open %s: no store for scheme %q; the stores here are %q", RedactURL(rawURL), u.Scheme, known)
	}
	s, err := opener(ctx, u, o)
	if err != nil {
		return nil, &Error{Op: "open", Store: RedactURL(rawURL), Err: err}
	}
	return s, nil
}
