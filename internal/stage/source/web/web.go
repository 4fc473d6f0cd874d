// Package web is files of HTTP servers, as a remote.Store: any server that answers
// requests of ranges, and whose folders show an index page.
package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// Scheme is what a list of sources has of it, under the name http or https.
func Scheme(name string, net *remote.Net) source.Scheme {
	return source.Scheme{Name: name, Open: func(a source.Access) (source.Source, error) {
		return remote.New(&store{net: net, access: a}, net, a), nil
	}}
}

// store is the servers of all names.
type store struct {
	net    *remote.Net
	access source.Access
	ranged sync.Map // hosts that have answered with a range
}

func (s *store) Host(name string) string {
	_, rest, _ := strings.Cut(name, "://")
	host, _, _ := strings.Cut(rest, "/")
	return host
}

func (s *store) Stat(ctx context.Context, name string) (source.Info, error) {
	resp, err := s.do(ctx, http.MethodHead, name, nil)
	if err != nil {
		return source.Info{}, err
	}
	_ = resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusOK && !strings.HasSuffix(name, "/"):
		return source.Info{Name: strings.Clone(name), Size: resp.ContentLength, Version: version(resp.Header)}, nil
	case resp.StatusCode == http.StatusOK:
		return source.Info{Name: strings.TrimSuffix(strings.Clone(name), "/"), Dir: true}, nil
	case moved(resp) && strings.HasSuffix(strings.SplitN(resp.Header.Get("Location"), "?", 2)[0], "/") && !strings.HasSuffix(name, "/"):
		return source.Info{Name: strings.Clone(name), Dir: true}, nil
	}
	return source.Info{}, s.refused(name, resp)
}

func (s *store) Read(ctx context.Context, obj source.Info, p []byte, off int64) (int, error) {
	resp, err := s.do(ctx, http.MethodGet, obj.Name, func(h http.Header) {
		h.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+int64(len(p))-1))
		if strings.HasPrefix(obj.Version, `"`) {
			h.Set("If-Match", obj.Version)
		}
	})
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusPartialContent:
		s.ranged.Store(s.Host(obj.Name), true)
	case http.StatusPreconditionFailed, http.StatusRequestedRangeNotSatisfiable:
		return 0, remote.Changed(obj, "the server answered %d", resp.StatusCode)
	case http.StatusOK:
		if _, once := s.ranged.Load(s.Host(obj.Name)); !once {
			return 0, errs.New(errs.Unsupported, "the server does not answer requests of ranges").At(errs.Where{File: strings.Clone(obj.Name)}).
				Try("download the files, and give their path")
		}
	default:
		return 0, s.refused(obj.Name, resp)
	}
	size, err := remote.Part(resp.Header, resp.StatusCode, off, int64(len(p)))
	if err != nil {
		return 0, err
	}
	if size >= 0 && size != obj.Size {
		return 0, remote.Changed(obj, "it has %d bytes, and had %d", size, obj.Size)
	}
	if v := version(resp.Header); obj.Version != "" && v != obj.Version {
		return 0, remote.Changed(obj, "its version is %s, and was %s", v, obj.Version)
	}
	return remote.Fill(ctx, obj.Name, resp.Body, p)
}

func (s *store) Page(context.Context, string, bool, string) (remote.Page, error) {
	return remote.Page{}, nil
}

func (s *store) do(ctx context.Context, method, name string, set func(http.Header)) (*http.Response, error) {
	u, err := url.Parse(name)
	if err != nil {
		return nil, errs.New(errs.Config, "this is not a URL").At(errs.Where{File: strings.Clone(name)}).Try("write spaces and other characters as %%20 and so on")
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, errs.New(errs.Config, "this is not a URL").At(errs.Where{File: strings.Clone(name)}).Because(err)
	}
	if set != nil {
		set(req.Header)
	}
	resp, err := s.net.Client().Do(req)
	if err != nil {
		return nil, remote.Failed(ctx, name, err)
	}
	return resp, nil
}

// refused is the error of an answer that is not the one that was wanted.
func (s *store) refused(name string, resp *http.Response) error {
	if f := remote.Answered(resp.Header, resp.StatusCode, ""); f != nil {
		return f
	}
	where := errs.Where{File: strings.Clone(name)}
	switch resp.StatusCode {
	case http.StatusNotFound, http.StatusGone:
		return remote.Missing(name)
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		return errs.New(errs.Denied, "the server answered %s", resp.Status).At(where).
			Try("put the user's name and password into ~/.netrc, or a bearer token into an environment variable and its name into dataset.storage.token_env")
	}
	return errs.New(errs.Unreadable, "the server answered %s", resp.Status).At(where).Try("open the address in a browser to see what it says")
}

func moved(resp *http.Response) bool {
	return resp.StatusCode >= 301 && resp.StatusCode <= 308 && resp.StatusCode != http.StatusNotModified
}

// version is what tells contents of one name apart: a strong ETag, or when it was last
// modified. A weak ETag may stay when bytes change.
func version(h http.Header) string {
	if e := h.Get("ETag"); strings.HasPrefix(e, `"`) {
		return e
	}
	if m := h.Get("Last-Modified"); m != "" {
		return "modified " + m
	}
	return ""
}
