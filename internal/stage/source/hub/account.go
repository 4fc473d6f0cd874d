package hub

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// home is where the Hub is, unless the user says otherwise.
const home = "https://huggingface.co"

// account is where the Hub is and who asks, found as huggingface_hub finds them, at the
// first request.
type account struct {
	once     sync.Once
	endpoint url.URL // scheme, host, and the path before /api
	from     string  // the setting that has it; "": none
	wrong    error   // what is wrong with the endpoint, or with the token

	mu    sync.Mutex
	token token
}

// token identifies the user. Its value is in no error.
type token struct {
	value string // "": nobody
	from  string // where it was found
}

func (a *account) setup(s *store) {
	a.once.Do(func() {
		at, from := s.access.Storage.EndpointURL, "dataset.storage.endpoint_url"
		if at == "" {
			at, from = os.Getenv("HF_ENDPOINT"), "HF_ENDPOINT"
		}
		if at == "" {
			at, from = home, ""
		}
		u, err := url.Parse(at)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			a.wrong = errs.New(errs.Config, "%s is not the address of a server", from).Try("write https://host or http://host:port")
			u = &url.URL{}
		}
		a.from = from
		a.endpoint = url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimRight(u.Path, "/")}
		if truth(os.Getenv("HF_HUB_OFFLINE")) || truth(os.Getenv("TRANSFORMERS_OFFLINE")) && os.Getenv("HF_HUB_OFFLINE") == "" {
			a.wrong = errs.New(errs.Config, "HF_HUB_OFFLINE forbids requests to the Hub").
				Try("unset it, or give the folder of a downloaded copy (hf download)")
		}
		if a.wrong == nil {
			a.token, a.wrong = s.findToken()
		}
	})
}

// host is the endpoint's.
func (a *account) host(s *store) string {
	a.setup(s)
	return a.endpoint.Host
}

// truth says whether huggingface_hub takes a value as true.
func truth(v string) bool {
	switch strings.ToUpper(v) {
	case "1", "ON", "YES", "TRUE":
		return true
	}
	return false
}

// findToken looks for a token in the order of huggingface_hub, except in notebooks.
func (s *store) findToken() (token, error) {
	clean := func(v string) string { return strings.TrimSpace(strings.NewReplacer("\r", "", "\n", "").Replace(v)) }
	switch env := s.access.Storage.TokenEnv; {
	case s.access.Storage.Anonymous:
		return token{}, nil
	case env != "":
		v := clean(os.Getenv(env))
		if v == "" {
			return token{}, errs.New(errs.Config, "dataset.storage.token_env names %s, which is not set", errs.Name(env)).
				Try("set it to a token from https://huggingface.co/settings/tokens")
		}
		return token{v, env}, nil
	case truth(os.Getenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")):
		return token{}, nil
	}
	for _, env := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"} {
		if v := clean(os.Getenv(env)); v != "" {
			return token{v, env}, nil
		}
	}
	file := tokenFile()
	if file == "" {
		return token{}, nil
	}
	// An unreadable file counts as missing, as for huggingface_hub: public data needs no token.
	data, err := os.ReadFile(file)
	if v := clean(string(data)); err == nil && v != "" {
		return token{v, "the file " + file}, nil
	}
	return token{}, nil
}

// tokenFile is where `hf auth login` puts the token; "": there is no such place.
func tokenFile() string {
	if f := os.Getenv("HF_TOKEN_PATH"); f != "" {
		return expand(f)
	}
	if dir := os.Getenv("HF_HOME"); dir != "" {
		return filepath.Join(expand(dir), "token")
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(expand(dir), "huggingface", "token")
	}
	dir, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, ".cache", "huggingface", "token")
}

// expand fills in variables and a "~" at the beginning.
func expand(name string) string {
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		if dir, err := os.UserHomeDir(); err == nil {
			name = filepath.Join(dir, rest)
		}
	}
	return os.ExpandEnv(name)
}

// who returns the token of the next request.
func (a *account) who() token {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.token
}

// renewed looks for a token again after one was refused, and says whether there is
// another now: it may have been written into the file since.
func (a *account) renewed(s *store, refused token) bool {
	t, err := s.findToken()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token == refused && err == nil && t.value != "" {
		a.token = t
	}
	return a.token != refused
}

// mostHops is how many redirects of one request are followed.
const mostHops = 5

// get makes a request to the endpoint, with the token. It follows redirects that stay
// there, as those of a renamed repository do, and returns any other as the answer; u is
// what answered. path begins with a slash and is escaped.
func (s *store) get(ctx context.Context, name, path string, query url.Values, header http.Header) (resp *http.Response, u *url.URL, err error) {
	a := &s.account
	if a.setup(s); a.wrong != nil {
		return nil, nil, remote.Located(a.wrong, name)
	}
	who := a.who()
	base := a.endpoint
	u, err = base.Parse(base.EscapedPath() + path)
	if err != nil {
		return nil, nil, remote.Missing(name)
	}
	u.RawQuery = query.Encode()
	for hops := 0; ; hops++ {
		auth := ""
		if who.value != "" && remote.Private(u) {
			auth = "Bearer " + who.value
		}
		if resp, err = s.send(ctx, name, u, auth, header); err != nil {
			return nil, nil, err
		}
		if resp.StatusCode == http.StatusUnauthorized && invalid(resp.Header) {
			if hops == mostHops || auth == "" || !a.renewed(s, who) {
				return nil, nil, s.badToken(name, who, resp)
			}
			drain(resp)
			who = a.who()
			continue
		}
		to, ok := location(u, resp)
		if !ok || to.Scheme != a.endpoint.Scheme || to.Host != a.endpoint.Host {
			return resp, u, nil
		}
		drain(resp)
		if hops == mostHops {
			return nil, nil, errs.New(errs.Unreadable, "the Hub redirects in a loop").At(at(name)).Try("check HF_ENDPOINT and any proxies")
		}
		u = to
	}
}

// location is where an answer redirects to; false: it does not.
func location(u *url.URL, resp *http.Response) (*url.URL, bool) {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return nil, false
	}
	to, err := u.Parse(resp.Header.Get("Location"))
	if err != nil || to.Host == "" || resp.Header.Get("Location") == "" {
		return nil, false
	}
	to.Fragment, to.User = "", nil
	return to, true
}

// send makes one request.
func (s *store) send(ctx context.Context, name string, u *url.URL, auth string, header http.Header) (*http.Response, error) {
	if remote.LinkLocal(u.Hostname()) {
		return nil, linkLocal(name, u)
	}
	req := (&http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: http.Header{}}).WithContext(ctx)
	for k, v := range header {
		req.Header[k] = v
	}
	// Set explicitly: some servers compress if the header is missing.
	req.Header["Accept-Encoding"] = []string{"identity"}
	req.Header["User-Agent"] = []string{"stoker"}
	if auth != "" {
		req.Header["Authorization"] = []string{auth}
	}
	// The client would look into redirects itself.
	resp, err := s.net.Public().Transport.RoundTrip(req)
	if err != nil {
		return nil, remote.Failed(ctx, name, err)
	}
	return resp, nil
}

func linkLocal(name string, u *url.URL) error {
	return errs.New(errs.Unreadable, "the Hub redirects to %s, a link-local address: nothing was sent", u.Hostname()).At(at(name)).
		Try("check HF_ENDPOINT and any proxies")
}

// drain reads the little that an answer may have, so that the connection can be used again.
func drain(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	_ = resp.Body.Close()
}

// mostAnswer bounds an answer in JSON: a page has at most a thousand entries.
const mostAnswer = 16 << 20

// ask makes a request of the API about a repository, whose answer is JSON.
func (s *store) ask(ctx context.Context, name string, r *repo, path string, query url.Values, into any) (http.Header, error) {
	resp, _, err := s.get(ctx, name, path, query, nil)
	if err != nil {
		return nil, err
	}
	return resp.Header, remote.Document{Whose: "the Hub's answer", Kind: "the JSON of its API", Most: mostAnswer, Decode: json.Unmarshal}.
		Read(ctx, name, resp, into, func() error { return s.refused(ctx, name, r, resp) })
}
