package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// link is where the bytes of a file are. Files of Git LFS are in a storage that is not the
// Hub's own server: a signed URL leads there, is good for about an hour, and is shared by
// all reads. Other files come from the Hub itself.
type link struct {
	repo *repo
	path string
	gate gate // of asking where it is

	mu      sync.Mutex
	direct  bool     // it comes from the Hub
	url     *url.URL // nil: not known
	version string   // what the Hub said is there
	until   time.Time
	last    string // host of url, when it was last known
}

// mostLinks is how many links a store keeps. Datasets of many small files have more, and
// read each of them once.
const mostLinks = 4096

func (s *store) link(ctx context.Context, name string) (*link, error) {
	s.mu.Lock()
	l := s.links[name]
	s.mu.Unlock()
	if l != nil {
		return l, nil
	}
	repo, r, err := s.find(ctx, name)
	if err != nil {
		return nil, err
	}
	if r.path == "" || name != source.Clean(name) {
		return nil, remote.Missing(name)
	}
	name = strings.Clone(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.links[name] == nil {
		for other := range s.links { // any
			if len(s.links) < mostLinks {
				break
			}
			delete(s.links, other)
		}
		s.links[name] = &link{repo: repo, path: strings.Clone(r.path)}
	}
	return s.links[name], nil
}

// host is that of the storage; "": none is known.
func (l *link) host() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// now is the URL that is good; nil: the Hub has to be asked. direct means that it is asked
// for the bytes themselves.
func (l *link) now() (u *url.URL, version string, direct bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.url == nil || !l.until.IsZero() && time.Now().After(l.until) {
		return nil, "", l.direct
	}
	return l.url, l.version, false
}

// leads keeps where the Hub redirected to.
func (l *link) leads(u *url.URL, version string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.url, l.version, l.until, l.last, l.direct = u, version, expiry(u.Query(), time.Now()), u.Host, false
}

func (l *link) straight() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.url, l.last, l.direct = nil, "", true
}

// forget drops a URL that was refused, unless there is another already.
func (l *link) forget(u *url.URL) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.url == u {
		l.url = nil
	}
}

// expiry is when a signed URL is asked for anew, a little before it ends: those of S3 say
// when they were made and for how many seconds, those of CloudFront the second of their
// end. Zero: it does not say. The lifetime counts from now, so that the clock of this
// machine does not matter for the first kind.
func expiry(q url.Values, now time.Time) time.Time {
	var life time.Duration
	if s, err := strconv.ParseInt(q.Get("X-Amz-Expires"), 10, 32); err == nil && s > 0 {
		life = time.Duration(s) * time.Second
	} else if s, err := strconv.ParseInt(q.Get("Expires"), 10, 64); err == nil && s > 0 && s < 1<<40 {
		if life = time.Unix(s, 0).Sub(now); life <= 0 {
			return time.Time{} // the clock is wrong, or it was never good: the storage will say
		}
	} else {
		return time.Time{}
	}
	return now.Add(life - min(time.Minute, life/10))
}

// Read is remote.Store's.
func (s *store) Read(ctx context.Context, obj source.Info, p []byte, off int64) (int, error) {
	l, err := s.link(ctx, obj.Name)
	if err != nil {
		return 0, err
	}
	header := http.Header{"Range": {"bytes=" + strconv.FormatInt(off, 10) + "-" + strconv.FormatInt(off+int64(len(p))-1, 10)}}
	resp, u, err := s.open(ctx, l, obj, header)
	if err == nil && resp == nil {
		resp, err = s.stored(ctx, l, obj, u, header)
	}
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusRequestedRangeNotSatisfiable:
		return 0, remote.Changed(obj, "it is now shorter than %d bytes", obj.Size)
	case http.StatusOK:
		if !s.hasRanges(resp.Request.URL.Host, false) {
			return 0, errs.New(errs.Config, "%s does not support range requests", errs.Plain(resp.Request.URL.Host)).At(at(obj.Name)).
				Try("download the dataset (hf download --repo-type dataset %s), and give its folder", l.repo.id)
		}
	}
	size, err := remote.Part(resp.Header, resp.StatusCode, off, int64(len(p)))
	if err != nil {
		return 0, err
	}
	s.hasRanges(resp.Request.URL.Host, true)
	if size >= 0 && size != obj.Size {
		return 0, remote.Changed(obj, "it has %d bytes, and had %d", size, obj.Size)
	}
	n, err := remote.Fill(ctx, obj.Name, resp.Body, p)
	if err == nil && int64(n) == obj.Size && !holds(obj.Version, p) {
		return 0, remote.Spoiled(obj.Name, "its hash on the Hub", p)
	}
	return n, err
}

// open asks the Hub for the bytes of a file, unless it is known where they are stored: the
// answer that has them, or where that is. Of many that want the same file, one asks.
func (s *store) open(ctx context.Context, l *link, obj source.Info, header http.Header) (*http.Response, *url.URL, error) {
	u, version, direct := l.now()
	if u == nil && !direct {
		var resp *http.Response
		var to *url.URL
		err := l.gate.answered(ctx, func() bool {
			u, version, direct = l.now()
			return u != nil || direct || resp != nil || to != nil
		}, func() (err error) {
			resp, to, err = s.resolve(ctx, l, obj, header)
			return err
		})
		if err != nil || resp != nil || to != nil {
			return resp, to, err
		}
	}
	if u != nil {
		if obj.Version != "" && version != obj.Version {
			return nil, nil, changed(obj, version)
		}
		return nil, u, nil
	}
	return s.resolve(ctx, l, obj, header)
}

// resolve asks the Hub.
func (s *store) resolve(ctx context.Context, l *link, obj source.Info, header http.Header) (*http.Response, *url.URL, error) {
	r := l.repo
	resp, from, err := s.get(ctx, obj.Name, "/datasets/"+escaped(r.id)+"/resolve/"+r.commit+"/"+escaped(l.path), nil, header)
	if err != nil {
		return nil, nil, err
	}
	to, leads := location(from, resp)
	ok := leads || resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent
	switch {
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		return resp, nil, nil
	case !ok:
		err := s.refused(ctx, obj.Name, r, resp)
		if none, is := err.(gone); is { // it was there, and the token was good for it
			return nil, nil, errs.New(errs.NotFound, "the Hub no longer shows the dataset %s", r.id).At(at(obj.Name)).Because(none).
				Try("see %s; %s", s.page("datasets/"+r.id), s.sent())
		}
		return nil, nil, err
	}
	version, err := told(resp.Header, r, obj)
	switch {
	case leads && remote.LinkLocal(to.Hostname()): // whatever else is said
		err = linkLocal(obj.Name, to)
	case err != nil:
	case !leads:
		l.straight()
		return resp, nil, nil
	case from.Scheme == "https" && to.Scheme != "https":
		err = errs.New(errs.Unreadable, "the Hub redirects from HTTPS to %s, which is not encrypted", to.Scheme).At(at(obj.Name)).
			Try("check HF_ENDPOINT and any proxies")
	default:
		l.leads(to, version)
	}
	drain(resp)
	return nil, to, err
}

// told is the version that an answer of the Hub's says a file has; an error if that, or
// what else it says, is not what was opened.
func told(h http.Header, r *repo, obj source.Info) (version string, err error) {
	if c := h.Get("X-Repo-Commit"); c != "" && c != r.commit {
		return "", &remote.Fault{Kind: remote.Broken, What: "the answer is of the commit " + errs.Name(c) + ", and " + r.commit + " was requested"}
	}
	if version = h.Get("X-Linked-Etag"); version == "" {
		version = h.Get("ETag")
	}
	version = strings.Trim(strings.TrimPrefix(version, "W/"), `"`) // of a hash, a weak one says as much
	switch {
	case obj.Version != "" && version == "":
		return "", &remote.Fault{Kind: remote.Broken, What: "the answer has no hash of the file"}
	case obj.Version != "" && version != obj.Version:
		return "", changed(obj, version)
	}
	if size := h.Get("X-Linked-Size"); size != "" && size != strconv.FormatInt(obj.Size, 10) {
		return "", remote.Changed(obj, "it has %s bytes, and had %d", errs.Name(size), obj.Size)
	}
	return version, nil
}

func changed(obj source.Info, version string) error {
	return remote.Changed(obj, "its hash was %[2]s and is now %[1]s", errs.Name(version), errs.Name(obj.Version))
}

// stored asks the storage for a range, without the token. A URL that is no longer good is
// forgotten, and the Hub asked for another, once for each read.
func (s *store) stored(ctx context.Context, l *link, obj source.Info, u *url.URL, header http.Header) (*http.Response, error) {
	for at, hops := u, 0; ; hops++ {
		resp, err := s.send(ctx, obj.Name, at, "", header)
		if err != nil {
			if ctx.Err() == nil {
				l.forget(u) // it may be gone: the next attempt asks the Hub again
			}
			return nil, err
		}
		to, leads := location(at, resp)
		if leads && hops < mostHops && (at.Scheme != "https" || to.Scheme == "https") {
			drain(resp)
			at = to
			continue
		}
		switch status := resp.StatusCode; status {
		case http.StatusOK, http.StatusPartialContent, http.StatusRequestedRangeNotSatisfiable:
			return resp, nil
		default:
			drain(resp)
			if f := remote.Answered(resp.Header, status, ""); f != nil {
				return nil, f
			}
			l.forget(u)
			return nil, s.refusedThere(obj, resp)
		}
	}
}

// refusedThere is a refusal of the storage's. What it says is not repeated: it may have
// the signature.
func (s *store) refusedThere(obj source.Info, resp *http.Response) error {
	what := "the Hub's storage at " + errs.Plain(resp.Request.URL.Host) + " answered " + strconv.Itoa(resp.StatusCode)
	return &remote.Fault{
		Kind: remote.Expired, Status: resp.StatusCode, What: what,
		Final: errs.New(errs.Denied, "%s, even for a new URL", what).At(at(obj.Name)).
			Try("see whether the file can be downloaded with `hf download`, and check any proxies"),
	}
}

// hasRanges notes that a host has answered with a range, and says whether it ever has: a
// server without ranges does not get them by waiting.
func (s *store) hasRanges(host string, now bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now && !s.ranged[host] {
		s.ranged[strings.Clone(host)] = true
	}
	return s.ranged[host]
}

// holds says whether these are the bytes of a version. It costs half a second of a core
// for each GB, and only of files that are read by one request.
func holds(version string, p []byte) bool {
	switch len(version) {
	case 2 * sha256.Size:
		sum := sha256.Sum256(p)
		return version == hex.EncodeToString(sum[:])
	case 2 * sha1.Size: // as Git hashes a file
		h := sha1.New()
		_, _ = fmt.Fprintf(h, "blob %d\x00", len(p))
		_, _ = h.Write(p)
		return version == hex.EncodeToString(h.Sum(nil))
	}
	return true // it is not watched
}
