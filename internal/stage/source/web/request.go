package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// address is the URL of a name. What is wrong with one is not repeated: it may be a
// password.
func address(name string) (*url.URL, error) {
	_, rest, _ := strings.Cut(name, "://")
	if end := strings.IndexAny(rest, "/?#"); end >= 0 && rest[end] == '#' {
		name = "" // what is the host of such a name is read in two ways
	}
	u, err := url.Parse(strings.ReplaceAll(name, "#", "%23")) // files have no fragments
	if err != nil || u.Host == "" {
		code := errs.Config
		if strings.ContainsAny(name, "{*[") { // a pattern, which is not there as it is written
			code = errs.NotFound
		}
		return nil, errs.New(code, "this is not the URL of a file").At(at(name)).
			Try("write https://HOST/PATH, and %%25 for a percent sign that is part of a name")
	}
	if u.Path == "" {
		u.Path = "/"
	}
	return u, nil
}

// answer is a server's answer after all redirects.
type answer struct {
	*http.Response
	url    *url.URL // that answered
	folder bool     // it is a redirect to the same name with a slash, or the page there
	sent   sent     // credentials, in the last request
	away   bool     // the last request went to another host than the name's, which gets none
}

// done ends the answer. What little may be left of it is read, so that the connection can
// be used again.
func (a *answer) done() {
	_, _ = io.CopyN(io.Discard, a.Body, 4<<10)
	_ = a.Body.Close()
}

// mostHops is how many redirects of one request are followed.
const mostHops = 5

// do makes a request, and follows redirects by hand: where they lead decides what is sent
// there. The place that a redirect led to is asked first for a while.
func (s *store) do(ctx context.Context, method, name string, header http.Header) (*answer, error) {
	name = strings.Clone(name) // connections keep what they were made with
	start, err := address(name)
	if err != nil {
		return nil, err
	}
	key := method + " " + name
	if u := s.places.get(key); u != nil {
		a, err := s.ask(ctx, method, name, start, u, header)
		var f *remote.Fault
		if errors.As(err, &f) && ctx.Err() == nil {
			s.places.forget(key) // it may be gone: the next attempt asks who led there
		}
		if err != nil || !outdated(a.StatusCode) {
			return a, err // a folder is never kept
		}
		a.done()
		s.places.forget(key)
	}
	seen := map[string]bool{}
	for u, hops := start, 0; ; hops++ {
		a, err := s.ask(ctx, method, name, start, u, header)
		if err != nil {
			return nil, err
		}
		to := a.Header.Get("Location")
		if !redirects(a.StatusCode) || to == "" {
			a.folder = a.StatusCode == http.StatusOK && strings.HasSuffix(u.Path, "/") && u.RawQuery == ""
			if hops > 0 && a.StatusCode/100 == 2 && !a.folder {
				s.places.keep(key, u)
			}
			return a, nil
		}
		next, err := follow(u, to)
		if err != nil {
			a.done()
			return nil, errs.From(err).At(at(name))
		}
		if next.Path == u.Path+"/" {
			a.folder = true
			return a, nil
		}
		a.done()
		seen[u.String()] = true
		switch {
		case seen[next.String()]:
			return nil, lost(name, "its redirects form a loop")
		case hops == mostHops:
			return nil, lost(name, fmt.Sprintf("it was redirected more than %d times", mostHops))
		}
		u = next
	}
}

// ask makes one request to u for a name whose own URL is start.
func (s *store) ask(ctx context.Context, method, name string, start, u *url.URL, header http.Header) (*answer, error) {
	if remote.LinkLocal(u.Hostname()) {
		return nil, errs.New(errs.Unreadable, "%s is a link-local address, at which clouds provide credentials to machines: nothing was sent", u.Hostname()).At(at(name)).
			Try("check the name and what it resolves to: no data is stored there")
	}
	bare := *u
	bare.User, bare.Fragment, bare.RawFragment = nil, "", ""
	req, err := http.NewRequestWithContext(ctx, method, bare.String(), nil)
	if err != nil {
		return nil, errs.New(errs.Config, "this is not the URL of a file").At(at(name)).Try("write https://HOST/PATH")
	}
	for k, v := range header {
		req.Header[k] = v
	}
	// Set explicitly: some servers compress if the header is missing.
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("User-Agent", "stoker")
	a := &answer{url: &bare, away: !sameHost(start, u)}
	if !a.away {
		if a.sent, err = s.login.of(name, start); err != nil {
			return nil, err
		}
		if a.sent.value != "" {
			req.Header.Set("Authorization", a.sent.value)
		}
	}
	// The client would look into redirects itself.
	if a.Response, err = s.net.Public().Transport.RoundTrip(req); err != nil {
		return nil, remote.Failed(ctx, name, err)
	}
	if f := remote.Answered(a.Header, a.StatusCode, ""); f != nil {
		a.done()
		return nil, f
	}
	return a, nil
}

// sameHost says whether u may be told what start is told: the same server, or the same
// host by HTTPS in place of HTTP.
func sameHost(start, u *url.URL) bool {
	if !strings.EqualFold(start.Hostname(), u.Hostname()) {
		return false
	}
	return start.Scheme == u.Scheme && port(start) == port(u) ||
		start.Scheme == "http" && u.Scheme == "https" && port(start) == "80" && port(u) == "443"
}

func port(u *url.URL) string {
	switch p := u.Port(); {
	case p != "":
		return p
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// follow is where a redirect of u leads.
func follow(u *url.URL, to string) (*url.URL, error) {
	next, err := u.Parse(to)
	if err != nil || next.Host == "" || next.Scheme != "http" && next.Scheme != "https" {
		return nil, lost("", "it was redirected to something that is not the URL of a file")
	}
	if u.Scheme == "https" && next.Scheme == "http" {
		return nil, lost("", "it was redirected from https to http, where anybody could change the data")
	}
	next.User = nil // not the user's
	return next, nil
}

func lost(name, what string) error {
	return errs.New(errs.Unreadable, "%s", what).At(at(name)).Try("check the address, or ask whoever runs the server; curl -IL shows the redirects")
}

func redirects(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// outdated says whether the place of a redirect that was remembered may be no longer valid:
// signatures in URLs expire, and servers say so in many ways.
func outdated(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone:
		return true
	}
	return redirects(status)
}

// refused is the error of an answer that is not the one that was wanted.
func (a *answer) refused(name string) error {
	switch a.StatusCode {
	case http.StatusNotFound, http.StatusGone:
		return remote.Missing(name)
	case http.StatusUnauthorized, http.StatusForbidden:
		return a.denied(name)
	case http.StatusProxyAuthRequired:
		return remote.NoProxyAccess(name)
	}
	return errs.New(errs.Unreadable, "the server answered %d %s", a.StatusCode, http.StatusText(a.StatusCode)).At(at(name)).
		Try("open the address in a browser, or with curl -i, to see what it says")
}

// denied says which credentials were sent, never their value.
func (a *answer) denied(name string) error {
	what := fmt.Sprintf("the server answered %d %s to a request %s", a.StatusCode, http.StatusText(a.StatusCode), a.sent.describe())
	hint := "check " + a.sent.what + ", and whether it may read this file"
	switch {
	case a.away:
		what = fmt.Sprintf("the server answered %d %s; it was redirected to %s, to which no credentials are sent", a.StatusCode, http.StatusText(a.StatusCode), errs.Name(a.url.Host))
		hint = "give the address of the file there, and credentials for that host"
	case a.sent.value == "":
		hint = "put a user name and a password into ~/.netrc (machine HOST login USER password PASSWORD), or a bearer token into an environment variable, and set dataset.storage.token_env to the name of the variable"
		switch {
		case strings.Contains(name, "?"):
			hint = "if the query is a signature, it may have expired: make a new one; otherwise " + hint
		case path.Ext(name) == "":
			hint = "if this is a folder, the server may show no index page: name the files; otherwise " + hint
		}
	}
	return errs.New(errs.Denied, "%s", what).At(at(name)).Try("%s", hint)
}

const (
	placeKept  = 5 * time.Minute // how long the place of a redirect is asked first
	mostPlaces = 1 << 16
)

// places are where redirects led. Nobody says how long such a place is valid.
type places struct {
	mu sync.Mutex
	of map[string]place // by method and name
}

type place struct {
	url   *url.URL
	until time.Time
}

func (p *places) get(key string) *url.URL {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, ok := p.of[key]; ok && time.Now().Before(at.until) {
		return at.url
	}
	return nil
}

func (p *places) keep(key string, u *url.URL) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil || len(p.of) >= mostPlaces {
		p.of = map[string]place{}
	}
	p.of[key] = place{u, time.Now().Add(placeKept)}
}

func (p *places) forget(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, key)
}

// unlisted is the error of a page that could not be read as an index. Of an answer that
// says how long it is, all has come.
func (a *answer) unlisted(ctx context.Context, dir string, err error) error {
	unbounded := a.ContentLength < 0 && len(a.TransferEncoding) == 0
	var wrong *pageError
	switch {
	case err == nil, err == errNoEnd && !unbounded:
		return nil
	case !errors.As(err, &wrong):
		return remote.Failed(ctx, dir, err)
	case wrong.cut && unbounded:
		return &remote.Fault{Kind: remote.Unreachable, What: wrong.what}
	}
	return errs.New(errs.Unreadable, "this folder cannot be listed: %s", wrong.what).At(at(dir)).Try("%s", wrong.hint)
}
