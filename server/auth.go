package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Verb is what a token may do in a namespace.
type Verb string

const (
	VerbRead   Verb = "read"   // records, tails, and which token fences a stream
	VerbAppend Verb = "append" // records
	VerbFence  Verb = "fence"  // install, rotate and clear fencing tokens
	VerbAdmin  Verb = "admin"  // create, trim and delete streams
)

var verbs = []Verb{VerbRead, VerbAppend, VerbFence, VerbAdmin}

// Grant is what one bearer token may do.
type Grant struct {
	// Name stands for the token in logs.
	Name string `json:"name"`
	// Token is what clients send. It is never logged.
	Token string `json:"token"`
	// Namespaces maps a namespace to verbs; "*" is every namespace.
	Namespaces map[string][]Verb `json:"namespaces"`
}

// Auth is the tokens that a server knows. It is immutable, and safe for concurrent use.
type Auth struct {
	grants []grant
}

type grant struct {
	Grant
	sum [sha256.Size]byte
}

// NewAuth checks grants and makes an Auth of them.
func NewAuth(grants ...Grant) (*Auth, error) {
	a := &Auth{}
	for i, g := range grants {
		if g.Name == "" || g.Token == "" {
			return nil, fmt.Errorf("auth: grant %d has no name or no token", i+1)
		}
		for namespace, list := range g.Namespaces {
			for _, v := range list {
				if !known(v) {
					return nil, fmt.Errorf("auth: grant %q has verb %q in namespace %q; verbs are read, append, fence and admin", g.Name, v, namespace)
				}
			}
		}
		a.grants = append(a.grants, grant{g, sha256.Sum256([]byte(g.Token))})
	}
	if len(a.grants) == 0 {
		return nil, errors.New("auth: no grant, so nobody could do anything")
	}
	return a, nil
}

func known(v Verb) bool {
	for _, k := range verbs {
		if v == k {
			return true
		}
	}
	return false
}

// LoadAuth reads a JSON file: {"grants":[{"name":…,"token":…,"namespaces":{"demo":["read","append"]}}]}.
func LoadAuth(path string) (*Auth, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	var file struct {
		Grants []Grant `json:"grants"`
	}
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		return nil, fmt.Errorf("auth: %s is no table of grants; what is wrong is not shown, since it may be a token", path)
	}
	return NewAuth(file.Grants...)
}

// caller is who sent a request; the zero one is nobody known, who may do nothing where there is an Auth.
type caller struct {
	name  string
	grant *grant
}

// who finds the caller of an Authorization header.
func (a *Auth) who(header string) (caller, error) {
	if a == nil {
		return caller{}, nil
	}
	scheme, token, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return caller{}, errUnauthenticated
	}
	sum := sha256.Sum256([]byte(token))
	var found *grant
	for i := range a.grants {
		if subtle.ConstantTimeCompare(sum[:], a.grants[i].sum[:]) == 1 {
			found = &a.grants[i]
		}
	}
	if found == nil {
		return caller{}, errUnauthenticated
	}
	return caller{name: found.Name, grant: found}, nil
}

// Knows reports whether an Authorization header has a token of the table.
func (a *Auth) Knows(header string) bool {
	_, err := a.who(header)
	return a != nil && err == nil
}

// may reports whether the caller may do something in a namespace; namespace "" is all of them.
func (c caller) may(v Verb, namespace string) bool {
	if c.grant == nil {
		return false
	}
	for _, ns := range []string{"*", namespace} {
		for _, have := range c.grant.Namespaces[ns] {
			if have == v {
				return true
			}
		}
	}
	return false
}

var (
	errUnauthenticated = errors.New("a known bearer token is needed")
	errForbidden       = errors.New("the bearer token does not allow this")
)
