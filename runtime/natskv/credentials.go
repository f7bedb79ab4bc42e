package natskv

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// errCreds never says what was in them.
var errCreds = errors.New("the Creds option is not the base64 of a .creds file")

// decodeCreds reads the content of a .creds file from base64 and checks both its halves.
func decodeCreds(text string) ([]byte, error) {
	text = strings.TrimRight(strings.Join(strings.Fields(text), ""), "=")
	creds, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return nil, errCreds
	}
	if _, err := nkeys.ParseDecoratedJWT(creds); err != nil {
		return nil, errCreds
	}
	pair, err := nkeys.ParseDecoratedUserNKey(creds)
	if err != nil {
		return nil, errCreds
	}
	pair.Wipe()
	return creds, nil
}

// splitCredentials takes the credentials out of a list of URLs, so that no URL that goes on holds any.
func splitCredentials(list string) (servers string, credentials nats.Option, err error) {
	var plain []string
	var seen *url.Userinfo
	for i, text := range splitURLs(list) {
		u, err := parseServerURL(text)
		if err != nil { // the parser's own error would show the URL
			return "", nil, fmt.Errorf("server URL %d of %q can't be parsed", i+1, redactURLs(list))
		}
		if u.User != nil {
			if seen != nil && seen.String() != u.User.String() {
				return "", nil, errors.New("the server URLs hold different credentials; they must be the same, or come as Creds")
			}
			seen, u.User = u.User, nil
		}
		plain = append(plain, u.String())
	}
	if len(plain) == 0 {
		return "", nil, errors.New("no server URL")
	}
	servers = strings.Join(plain, ",")
	if seen == nil {
		return servers, nil, nil
	}
	if password, ok := seen.Password(); ok {
		return servers, nats.UserInfo(seen.Username(), password), nil
	}
	return servers, nats.Token(seen.Username()), nil
}

func splitURLs(list string) []string {
	var out []string
	for text := range strings.SplitSeq(list, ",") {
		if text = strings.TrimSpace(text); text != "" {
			out = append(out, text)
		}
	}
	return out
}

func parseServerURL(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "nats://" + text
	}
	return url.Parse(text)
}

// redactURLs is a list of URLs with whatever may be credentials left out, parsable or not: from each scheme to the last
// @ before the next one, and what comes behind a question mark.
func redactURLs(list string) string {
	parts := strings.Split(list, "://")
	for i, part := range parts {
		next := "" // the comma and the next one's scheme
		if comma := strings.LastIndexByte(part, ','); comma >= 0 && i < len(parts)-1 {
			part, next = part[:comma], part[comma:]
		}
		query, at := strings.IndexByte(part, '?'), strings.LastIndexByte(part, '@')
		switch {
		case query >= 0 && at > query:
			part = "***"
		case query >= 0:
			part = part[:query+1] + "***"
		}
		if at >= 0 && part != "***" {
			part = "***" + part[at:]
		}
		parts[i] = part + next
	}
	return strings.Join(parts, "://")
}

// String shows the options without secrets.
func (o ConnectOptions) String() string {
	creds := "none"
	switch {
	case o.Creds != "":
		creds = "***"
	case o.CredsFile != "":
		creds = "file " + o.CredsFile
	case strings.Contains(o.URL, "@"):
		creds = "of the URL"
	}
	return fmt.Sprintf("{URL:%s Name:%s Domain:%s Creds:%s}", redactURLs(o.URL), o.Name, o.Domain, creds)
}

// Format makes every verb show what String does.
func (o ConnectOptions) Format(f fmt.State, _ rune) { formatAs(f, o.String()) }

// MarshalText makes encoders show what String does.
func (o ConnectOptions) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Format makes every verb show the options without secrets.
func (c *Conn) Format(f fmt.State, _ rune) { formatAs(f, "natskv.Conn"+c.about) }

func formatAs(w io.Writer, text string) {
	// A formatter has no way to report an error.
	_, _ = io.WriteString(w, text)
}
