package objects

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

var (
	// ErrNotFound: there is no such object or pointer.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the pointer is not the one that the swap expected; nothing was stored.
	ErrConflict = errors.New("another pointer stands there")
	// ErrUnsupported: the store has no conditional write, or one that does not hold.
	ErrUnsupported = errors.New("no atomic conditional write")
	// ErrUnavailable: the store gave no answer, or none that settles anything. A write may have happened or may yet.
	ErrUnavailable = errors.New("store unavailable")
	// ErrNoBucket: the bucket or container is not there.
	ErrNoBucket = errors.New("no such bucket")
	// ErrDenied: the store refused the credentials, or they don't reach that far.
	ErrDenied = errors.New("access denied")
	// ErrBadKey: the key is one that CheckKey refuses.
	ErrBadKey = errors.New("bad key")
	// ErrTooLarge: a pointer is over Options.MaxPointer.
	ErrTooLarge = errors.New("pointer too large")
	// ErrOrder: the store does not list in the order of keys, so a listing could not be trusted to be whole.
	ErrOrder = errors.New("listed out of order")
	// ErrChanged: an object was replaced while it was read. Read it again from its beginning.
	ErrChanged = errors.New("replaced while it was read")
	// ErrNoRanges: the store opens objects at their beginning only.
	ErrNoRanges = errors.New("no ranges of objects")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("store is closed")
)

// Error says which operation on what failed. It matches one of the errors above, or the end of a context, or what a
// reader failed with. Its text has no credentials: of a URL it shows neither the user nor the query's values. The
// causes that it wraps come from the store's own library and may show more; print the Error.
type Error struct {
	Op    string
	Store string // the store's name, without credentials
	Key   string // the key or prefix
	Err   error
}

func (e *Error) Error() string {
	return fmt.Sprintf("objects: %s %q in %s: %s", e.Op, e.Key, e.Store, redact(e.Err.Error()))
}

func (e *Error) Unwrap() error { return e.Err }

// Hint says what a person can do; "" if there is nothing to say.
func (e *Error) Hint() string {
	switch {
	case errors.Is(e.Err, ErrUnsupported):
		return "publish to a store with conditional writes (S3, GCS, Azure, a local directory), or allow the non-atomic fallback where one process alone publishes"
	case errors.Is(e.Err, ErrDenied):
		return "check the credentials, and that they may read, write, list and delete under the prefix"
	case errors.Is(e.Err, ErrUnavailable):
		return "check the store's address and that it is up; the next round tries again"
	}
	return ""
}

var urls = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>]+`)

func redact(text string) string { return urls.ReplaceAllStringFunc(text, RedactURL) }

// plain are the parameters of a store's URL whose values are no secrets.
var plain = map[string]bool{
	"region": true, "prefix": true, "use_path_style": true, "anonymous": true, "protocol": true, "localemu": true,
	"domain": true, "profile": true, "endpoint": true, "x-id": true,
}

// RedactURL is the URL without its user, its fragment and the values of its query, but for those known to be harmless.
func RedactURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		scheme, _, _ := strings.Cut(raw, ":")
		return scheme + "://***"
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if u.Opaque != "" {
		shown.Path = "***"
	}
	text := shown.String()
	if u.User != nil {
		text = strings.Replace(text, "://", "://***@", 1)
	}
	sign := "?"
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		decoded, err := url.QueryUnescape(value)
		switch {
		case err != nil || !plain[name]:
			value = "***"
		case strings.Contains(decoded, "://"):
			value = RedactURL(decoded)
		}
		text += sign + name + "=" + value
		sign = "&"
	}
	return text
}
