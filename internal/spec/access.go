package spec

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// Fetch says how much is requested from a store at once, and for how long. It changes when
// bytes arrive, never which.
type Fetch struct {
	Ahead       Bytes       `json:"ahead,omitempty"`       // most bytes requested for batches without slots; 0: as many as pay off
	Connections Connections `json:"connections,omitempty"` // most concurrent requests to a host; 0: as many as pay off
	Bandwidth   Rate        `json:"bandwidth,omitempty"`   // bytes per second, at most; 0: no limit
	Hedge       *bool       `json:"hedge,omitempty"`       // slow requests are sent a second time; nil: yes
	Deadline    Duration    `json:"deadline,omitempty"`    // how long one read is retried; 0: ten minutes
}

// Access is what the sources of a dataset are made with.
func (s Spec) Access(d Dataset) source.Access {
	return source.Access{
		Storage:     d.Storage,
		Connections: int(s.Fetch.Connections),
		Bandwidth:   int64(s.Fetch.Bandwidth),
		NoHedge:     s.Fetch.Hedge != nil && !*s.Fetch.Hedge,
		Deadline:    time.Duration(s.Fetch.Deadline),
	}
}

// Connections is a number of requests at once: a number, or "auto", which is 0.
type Connections int

// maxConnections is more than any link pays for.
const maxConnections = 4096

// ParseConnections reads a number of requests.
func ParseConnections(text string) (Connections, error) {
	if strings.TrimSpace(text) == "auto" {
		return 0, nil
	}
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 1 || n > maxConnections {
		return 0, fmt.Errorf("%q is not a number of connections: write \"auto\", or 1 to %d", text, maxConnections)
	}
	return Connections(n), nil
}

// UnmarshalJSON takes a number or text.
func (c *Connections) UnmarshalJSON(raw []byte) (err error) {
	*c, err = ParseConnections(textOf(raw))
	return err
}

// Rate is bytes per second: a number, or text such as "100MB" or "100MB/s". "none" is 0:
// no limit.
type Rate int64

// ParseRate reads bytes per second.
func ParseRate(text string) (Rate, error) {
	s := strings.ToLower(strings.TrimSpace(text))
	if s == "none" {
		return 0, nil
	}
	n, err := ParseBytes(strings.TrimSuffix(s, "/s"))
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a bandwidth: write \"none\", bytes per second, or text such as \"100MB\"", text)
	}
	return Rate(n), nil
}

// UnmarshalJSON takes a number or text.
func (r *Rate) UnmarshalJSON(raw []byte) (err error) {
	*r, err = ParseRate(textOf(raw))
	return err
}

// Duration is a time: a number of seconds, or text such as "10m" or "90s".
type Duration time.Duration

// ParseDuration reads a time.
func ParseDuration(text string) (Duration, error) {
	s := strings.TrimSpace(text)
	d, err := time.ParseDuration(s)
	if seconds, e := strconv.ParseFloat(s, 64); e == nil {
		d, err = time.Duration(seconds*float64(time.Second)), nil
		if math.IsNaN(seconds) || math.Abs(seconds) > maxDuration.Seconds() {
			d = -1
		}
	}
	if err != nil || d <= 0 || d > maxDuration {
		return 0, fmt.Errorf("%q is not a duration: write a number of seconds above 0, such as 90, or text such as \"10m\"; at most \"24h\"", text)
	}
	return Duration(d), nil
}

// maxDuration is longer than anyone waits for one read.
const maxDuration = 24 * time.Hour

// UnmarshalJSON takes a number or text.
func (d *Duration) UnmarshalJSON(raw []byte) (err error) {
	*d, err = ParseDuration(textOf(raw))
	return err
}

// MarshalJSON writes text that UnmarshalJSON reads.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// textOf is a JSON string's text, or any other value as written.
func textOf(raw []byte) string {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return string(raw)
	}
	return text
}

// Fresh are the values of dataset.storage.fresh.
const (
	FreshAlways = "always"
	FreshNever  = "never"
)

// variableName is the name of an environment variable. Lower case is refused: tokens have it,
// and a token that is written where its variable belongs must not get any further.
var variableName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)

// accessKey are the ids of AWS's keys, which look like names of variables, and so do
// tokens in capital letters: oneWord.
var (
	accessKey = regexp.MustCompile(`^(AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}$`)
	oneWord   = regexp.MustCompile(`^[A-Z0-9]{24,}$`)
)

func likeToken(name string) bool {
	return accessKey.MatchString(name) || oneWord.MatchString(name) && strings.ContainsAny(name, "0123456789")
}

// checkStorage reports what is wrong with how a store is to be reached. Values that may
// hold a secret are not repeated.
func checkStorage(p *Problems, s source.Storage, oneOf choice) {
	oneOf("dataset.storage.fresh", s.Fresh, "", FreshAlways, FreshNever)
	if s.TokenEnv != "" && (!variableName.MatchString(s.TokenEnv) || likeToken(s.TokenEnv)) {
		p.Addf("dataset.storage.token_env is not the name of an environment variable (capital letters, digits, _); give the name, not the token: set a variable, such as MY_TOKEN, to the token, and write MY_TOKEN here")
	}
	if s.Anonymous && s.TokenEnv != "" {
		p.Addf("dataset.storage.anonymous and dataset.storage.token_env exclude each other: keep one")
	}
	if s.Anonymous && s.Profile != "" {
		p.Addf("dataset.storage.anonymous and dataset.storage.profile exclude each other: keep one")
	}
	if s.EndpointURL == "" {
		return
	}
	u, err := url.Parse(s.EndpointURL)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		p.Addf("dataset.storage.endpoint_url is not the URL of a server: write https://HOST, or http://HOST:PORT")
	case u.User != nil:
		p.Addf("dataset.storage.endpoint_url has a user name or a password: leave them out, and put them into .netrc or the store's environment variables")
	case u.RawQuery != "" || u.Fragment != "":
		p.Addf("dataset.storage.endpoint_url has a query: write https://HOST, or http://HOST:PORT")
	}
}

// checkOrigins reports origins that are not prefixes of names.
func checkOrigins(p *Problems, origins []string) {
	for _, o := range origins {
		switch {
		case o == "":
			p.Addf("dataset.origins has an empty prefix, which would allow everything: write the places, such as s3://bucket/folder/")
		case strings.HasSuffix(o, "://"):
			p.Addf("dataset.origins has %q, which would allow every bucket or host: write the places, such as %sbucket/folder/", o, o)
		case strings.ContainsAny(o, "*[{"):
			p.Addf("dataset.origins has %q: its members are prefixes, without * [ {", source.Shown(o))
		}
	}
}

// SecretKey is the problem of a key of dataset.storage that holds a secret, without its
// value; "": another key. names are the paths of the dataset.
func SecretKey(at, key string, names []string) (problem, hint string) {
	do, is := Secret(key, names...)
	if !is {
		return "", ""
	}
	return fmt.Sprintf("%s.%s is refused: a Spec is saved and shown, so it holds no keys, tokens or passwords", at, key),
		fmt.Sprintf("remove it, and %s where the program runs", do)
}

// refuseSecrets finds secrets in the storage of a dataset.
func refuseSecrets(raw json.RawMessage, names []string) error {
	var keys map[string]json.RawMessage
	if len(raw) == 0 || json.Unmarshal(raw, &keys) != nil {
		return nil
	}
	for key := range keys {
		if problem, hint := SecretKey("dataset.storage", key, names); problem != "" {
			return errs.New(errs.Config, "%s", problem).Try("%s", hint)
		}
	}
	return nil
}
