// Package azure is containers of Azure Blob Storage, as a remote.Store, by its REST API. A
// version is an ETag. Accounts, keys and signatures are found where Azure's own tools look
// for them, tokens by azidentity, all at the first request; each goes to the account that
// it is of, and nowhere else.
package azure

import (
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/xml"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// Scheme is its entry in a list of sources, under the name az, azure, abfs or abfss.
func Scheme(name string, net *remote.Net) source.Scheme {
	return source.Scheme{Name: name, Open: func(a source.Access) (source.Source, error) {
		return signed{remote.New(&store{scheme: name, net: net, access: a}, net, a)}, nil
	}}
}

// signed is the source of names that may have a shared access signature as their query, as
// mux.Mux passes them on. The store gets it by the context of a request, so that no name
// in an error has one; what is found has that of what was looked for.
type signed struct{ *remote.Source }

type sasKey struct{}

// cut cuts a name from its signature; sas is "" where there is none.
func cut(name string) (plain, sas string) {
	at := strings.LastIndexByte(name, '?')
	if at < 0 || !strings.Contains("&"+name[at+1:], "&sig=") {
		return name, ""
	}
	return name[:at], name[at+1:]
}

func with(ctx context.Context, sas string) context.Context {
	if sas == "" {
		return ctx
	}
	return context.WithValue(ctx, sasKey{}, sas)
}

func found(it source.Info, sas string) source.Info {
	if sas != "" && it.Name != "" {
		it.Name += "?" + sas
	}
	return it
}

// Stat is source.Source's.
func (s signed) Stat(ctx context.Context, name string) (source.Info, error) {
	name, sas := cut(name)
	it, err := s.Source.Stat(with(ctx, sas), name)
	return found(it, sas), err
}

// ReadAt is source.Source's.
func (s signed) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	name, sas := cut(obj.Name)
	obj.Name = name
	return s.Source.ReadAt(with(ctx, sas), obj, p, off)
}

// List is source.Source's.
func (s signed) List(ctx context.Context, prefix string) iter.Seq2[source.Info, error] {
	return each(ctx, prefix, s.Source.List)
}

// Walk is source.Walker's.
func (s signed) Walk(ctx context.Context, prefix string) iter.Seq2[source.Info, error] {
	return each(ctx, prefix, s.Source.Walk)
}

// Begin is source.Prefixer's.
func (s signed) Begin(ctx context.Context, prefix string) iter.Seq2[source.Info, error] {
	return each(ctx, prefix, s.Source.Begin)
}

// Head is source.Header's.
func (s signed) Head(ctx context.Context, name string, p []byte) (int, error) {
	name, sas := cut(name)
	return s.Source.Head(with(ctx, sas), name, p)
}

func each(ctx context.Context, prefix string, list func(context.Context, string) iter.Seq2[source.Info, error]) iter.Seq2[source.Info, error] {
	prefix, sas := cut(prefix)
	all := list(with(ctx, sas), prefix)
	if sas == "" {
		return all
	}
	return func(yield func(source.Info, error) bool) {
		for it, err := range all {
			if !yield(found(it, sas), err) {
				return
			}
		}
	}
}

// Link is source.Linked's.
func (s signed) Link(name string) (source.Link, bool) {
	name, _ = cut(name)
	return s.Source.Link(name)
}

// store is all containers of all accounts.
type store struct {
	scheme string
	net    *remote.Net
	access source.Access

	once  sync.Once
	env   environment
	creds *credentials
	ahead atomic.Int64 // of this clock, the store's, in nanoseconds; signatures have a date
}

func (s *store) setup() {
	s.once.Do(func() {
		s.env = readEnvironment()
		s.env.bind(s.access)
		s.creds = newCredentials(s)
	})
}

// Host is remote.Store's.
func (s *store) Host(name string) string {
	s.setup()
	p, err := s.locate(name)
	if err != nil {
		return s.scheme
	}
	return p.base.Host
}

// Origin is remote.Origin's.
func (s *store) Origin(name string) string {
	s.setup()
	switch p, err := s.locate(name); {
	case err != nil:
		return ""
	case s.access.Storage.EndpointURL != "":
		return "dataset.storage.endpoint_url"
	case s.env.endpoint != nil && p.base.Host == s.env.endpoint.Host:
		return "AZURE_STORAGE_CONNECTION_STRING"
	}
	return ""
}

// apiVersion is that in which listings encode names that XML cannot hold (2021-02-12), and
// tell folders of hierarchical accounts.
const apiVersion = "2021-12-02"

// Stat is remote.Store's.
func (s *store) Stat(ctx context.Context, name string) (source.Info, error) {
	p, err := s.locate(name)
	if err != nil {
		return source.Info{}, err
	}
	if p.key != "" && !strings.HasSuffix(name, "/") {
		resp, err := s.do(ctx, request{place: p, method: http.MethodHead})
		if err != nil {
			return source.Info{}, err
		}
		_ = resp.Body.Close()
		switch {
		case resp.StatusCode != http.StatusOK:
			if err := s.refused(ctx, request{place: p, method: http.MethodHead}, resp); errs.CodeOf(err) != errs.NotFound || isNoContainer(err) {
				return source.Info{}, err
			}
		case isFolder(resp.Header):
			return source.Info{Name: strings.Clone(name), Dir: true}, nil
		default:
			size, err := strconv.ParseInt(resp.Header.Get("Content-Length"), 10, 64)
			if err != nil || size < 0 {
				return source.Info{}, &remote.Fault{Kind: remote.Broken, What: "the server does not report the size of the blob"}
			}
			return source.Info{Name: strings.Clone(name), Size: size, Version: version(resp.Header.Get("ETag"))}, nil
		}
	}
	there, err := s.below(ctx, p)
	switch {
	case err != nil:
		return source.Info{}, err
	case !there:
		return source.Info{}, remote.Missing(name)
	}
	return source.Info{Name: strings.TrimRight(strings.Clone(name), "/"), Dir: true}, nil
}

// isFolder says whether a blob is what makes a folder: an object of its own in a
// hierarchical namespace, an empty blob with a mark elsewhere.
func isFolder(h http.Header) bool {
	return strings.EqualFold(h.Get("X-Ms-Meta-Hdi_isfolder"), "true") || h.Get("X-Ms-Resource-Type") == "directory"
}

// version is an ETag without its quotes; "" for a weak one, or if there is none.
func version(etag string) string {
	etag = strings.Trim(etag, `"`)
	if strings.Contains(etag, `"`) || len(etag) > 200 || strings.ContainsFunc(etag, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return ""
	}
	return etag
}

// Read is remote.Store's.
func (s *store) Read(ctx context.Context, obj source.Info, p []byte, off int64) (int, error) {
	at, err := s.locate(obj.Name)
	if err != nil {
		return 0, err
	}
	r := request{place: at, method: http.MethodGet, first: off, last: off + int64(len(p)) - 1, ranged: true, match: obj.Version}
	resp, err := s.do(ctx, r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusPreconditionFailed:
		// An emulator says this of a blob that is gone, too.
		if _, err := s.Stat(ctx, obj.Name); err != nil {
			return 0, err
		}
		return 0, remote.Changed(obj, "its ETag is no longer %s", errs.Name(obj.Version))
	case http.StatusRequestedRangeNotSatisfiable:
		return 0, remote.Changed(obj, "it is now shorter than %d bytes", obj.Size)
	case http.StatusOK, http.StatusPartialContent:
	default:
		return 0, s.refused(ctx, r, resp)
	}
	v := version(resp.Header.Get("ETag"))
	switch {
	case obj.Version != "" && v == "":
		return 0, remote.Unversioned(obj, "ETag")
	case obj.Version != "" && v != obj.Version:
		return 0, remote.Changed(obj, "its ETag was %[2]s and is now %[1]s", errs.Name(v), errs.Name(obj.Version))
	}
	if v != "" && resp.Header.Get("X-Ms-Blob-Type") != "" {
		// A blob may say that its bytes are encoded; the store sends them as they are. What
		// encodes answers on the way has no strong ETag, or no ranges.
		resp.Header.Del("Content-Encoding")
	}
	return remote.Body(ctx, obj, resp, p, off, checked)
}

// checked compares a whole blob with its MD5, if it has one. Checksums of ranges are not
// requested: they cost the store and this process as much as all else of a request, and
// TLS has one already.
func checked(name string, h http.Header, p []byte) error {
	sum := h.Get("X-Ms-Blob-Content-Md5")
	if sum == "" {
		return nil
	}
	want, err := base64.StdEncoding.DecodeString(sum)
	if got := md5.Sum(p); err != nil || string(want) != string(got[:]) {
		return remote.Spoiled(name, "MD5", p)
	}
	return nil
}

// request is one to a place: to a blob, or to its container if the place has no key.
type request struct {
	place
	method      string
	query       url.Values
	ranged      bool
	first, last int64
	match       string // the version that is wanted; "": any
}

// do makes a request. Credentials that are not accepted are reported as expired, once by
// each reader, if others can be had.
func (s *store) do(ctx context.Context, r request) (*http.Response, error) {
	u := r.url()
	req := (&http.Request{Method: r.method, URL: u, Host: u.Host, Header: http.Header{}}).WithContext(ctx)
	h := req.Header
	h["X-Ms-Version"] = []string{apiVersion}
	if r.ranged {
		h["X-Ms-Range"] = []string{"bytes=" + strconv.FormatInt(r.first, 10) + "-" + strconv.FormatInt(r.last, 10)}
	}
	if r.match != "" {
		h["If-Match"] = []string{`"` + r.match + `"`}
	}
	used, err := s.creds.put(ctx, req, r)
	if err != nil {
		return nil, err
	}
	resp, err := s.net.Client().Transport.RoundTrip(req) // Do would quote a Location that it cannot parse
	if err != nil {
		return nil, remote.Failed(ctx, r.name, err)
	}
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		if err := s.renewed(ctx, r, used, resp); err != nil {
			return nil, err
		}
	}
	return resp, nil
}

// late is how far a clock may be off before it is taken for the reason of a refusal: the
// store accepts fifteen minutes.
const late = 10 * time.Minute

// renewed says what of a refusal another attempt may mend: a token is asked for again, a
// clock is corrected. nil: nothing. The answer is read then.
func (s *store) renewed(ctx context.Context, r request, used used, resp *http.Response) error {
	switch {
	case used.token != "" && resp.StatusCode == http.StatusUnauthorized && s.creds.renewable():
		s.creds.bearer.Refused(used.token)
		return &remote.Fault{Kind: remote.Expired, Status: resp.StatusCode, What: "the token was not accepted", Final: s.refused(ctx, r, resp)}
	case used.key && resp.Header.Get("X-Ms-Error-Code") == "AuthenticationFailed":
		// What counts is the date of this request: another one may have corrected the clock
		// since it was signed.
		theirs, err1 := http.ParseTime(resp.Header.Get("Date"))
		ours, err2 := http.ParseTime(resp.Request.Header.Get("X-Ms-Date"))
		if off := theirs.Sub(ours); err1 == nil && err2 == nil && off.Abs() > late {
			s.ahead.Store(int64(theirs.Sub(s.net.Now())))
			return &remote.Fault{Kind: remote.Expired, Status: resp.StatusCode, What: "the clock of this machine is " + errs.InSeconds(off.Abs()) + " off", Final: s.refused(ctx, r, resp)}
		}
	}
	return nil
}

// most bounds an answer in XML: a page of five thousand blobs with long names and metadata.
const most = 64 << 20

// ask makes a request whose answer is XML.
func (s *store) ask(ctx context.Context, r request, into any) error {
	resp, err := s.do(ctx, r)
	if err != nil {
		return err
	}
	return remote.Document{Whose: "the server's answer", Kind: "the XML of the API", Most: most, Decode: xml.Unmarshal}.
		Read(ctx, r.name, resp, into, func() error { return s.refused(ctx, r, resp) })
}
