package source

import (
	"context"
	"iter"
	"strings"
	"sync"
	"time"
)

// Storage is how a store is reached: dataset.storage of a Spec. It never holds a key or a
// token, because Specs are saved, shown and sent.
type Storage struct {
	EndpointURL   string `json:"endpoint_url,omitempty"` // of a store that is not its vendor's; "": as the environment says
	Region        string `json:"region,omitempty"`       // "": as the environment says, or found out
	Profile       string `json:"profile,omitempty"`      // of the shared configuration files
	Anonymous     bool   `json:"anonymous,omitempty"`    // no credentials are looked for or sent
	RequesterPays bool   `json:"requester_pays,omitempty"`
	TokenEnv      string `json:"token_env,omitempty"` // name of the environment variable that holds a bearer token
	Fresh         string `json:"fresh,omitempty"`     // always (""): listings are compared at every open; never: the index is believed
}

// Access is what a source is made with: how the store is reached and how much may be
// asked of it. The zero value is every default.
type Access struct {
	Storage     Storage
	Connections int           // most concurrent requests to a host; 0: as many as pay off
	Bandwidth   int64         // bytes per second, at most; 0: no limit
	NoHedge     bool          // no request is sent a second time because the first is slow
	Deadline    time.Duration // how long one read is retried; 0: ten minutes
	Written     *Written      // what the user named himself; nil: nothing
}

// Place is the names that a user gave, as they were given, and how their store is reached.
type Place struct {
	Names  []string // may have braces, patterns, signed queries, and users with passwords
	Access Access
}

// Written are names that a user wrote himself: the paths and the origins of a Spec, and not
// what a table, a list or a redirect names. Credentials that are not for one host only
// (Storage.TokenEnv) are sent to the hosts of these.
type Written struct {
	Names []string // not changed once Host was called

	once  sync.Once
	hosts map[string]bool // of the names, as plainHost writes them
}

// Host says whether the user named something of that scheme and host, as in
// "https://host:port". There may be many names, and each request asks.
func (w *Written) Host(origin string) bool {
	if w == nil {
		return false
	}
	w.once.Do(func() {
		w.hosts = map[string]bool{}
		for _, name := range w.Names {
			hosts, err := Braces(HostOf(OfList(name)))
			if err != nil {
				continue // whoever expands it says so
			}
			for _, h := range hosts {
				w.hosts[plainHost(h)] = true
			}
		}
	})
	return w.hosts[plainHost(origin)]
}

// plainHost is a result of HostOf, in lower case if it is of HTTP: those have no case.
func plainHost(host string) string {
	if scheme := SchemeOf(host); scheme == "http" || scheme == "https" {
		return strings.ToLower(host)
	}
	return host
}

// SameHost says whether two results of HostOf are the same.
func SameHost(a, b string) bool { return plainHost(a) == plainHost(b) }

// HostOf is the scheme and the host, bucket or container of a name, without a user:
// "https://host:port", "abfss://container@host"; "" for a local path.
func HostOf(name string) string {
	prefix, rest := CutScheme(name)
	if prefix == "" || strings.EqualFold(prefix, "file://") {
		return ""
	}
	host := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		host = rest[:end]
	}
	if scheme := strings.ToLower(prefix); scheme == "abfs://" || scheme == "abfss://" { // it is a container
		return prefix + host
	}
	return prefix + host[strings.LastIndexByte(host, '@')+1:]
}

// Link is how reads of a source that waits are best made.
type Link struct {
	Gap   int64 // bytes between two ranges that cost less to read than a request; 0: read no hole
	Part  int64 // bytes of one request, at most; longer ranges are better read in parts at once
	Conns int   // requests that are worth having at once
}

// Linked is a source whose reads take time that was measured.
type Linked interface {
	// Link is the link to the store of an object, as it is known now; false: the source
	// of that name does not wait, or nothing is known of it.
	Link(name string) (Link, bool)
}

// Walker is a source that lists all objects below a prefix at any depth at no more cost
// than those directly below it.
type Walker interface {
	// Walk yields objects, no folders, in byte order of names.
	Walk(ctx context.Context, prefix string) iter.Seq2[Info, error]
}
