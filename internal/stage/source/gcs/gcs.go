// Package gcs is buckets of Google Cloud Storage, as a remote.Store, by its JSON API. A
// version is a generation. Credentials are found as Google's own libraries find them, at
// the first request; tokens are sent to Google's host or to the endpoint that the user
// gave, and nowhere else.
package gcs

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// Scheme is its entry in a list of sources, under the name gs or gcs.
func Scheme(name string, net *remote.Net) source.Scheme {
	return source.Scheme{Name: name, Open: func(a source.Access) (source.Source, error) {
		return remote.New(newStore(name, net, a), net, a), nil
	}}
}

// home is where the API is, unless the user says otherwise.
const home = "https://storage.googleapis.com"

// store is all buckets of an endpoint.
type store struct {
	scheme string
	net    *remote.Net
	access source.Access

	once     sync.Once
	endpoint url.URL // scheme, host, and the path before /storage/v1
	from     string  // the setting that has it; "": none
	emulator bool    // the endpoint is STORAGE_EMULATOR_HOST: nobody asks who reads
	wrong    error   // what is wrong with the endpoint
	creds    *credentials
}

func newStore(scheme string, net *remote.Net, a source.Access) *store {
	return &store{scheme: scheme, net: net, access: a}
}

// setup finds the endpoint: the environment is looked at, and nothing is sent.
func (s *store) setup() {
	s.once.Do(func() {
		at, from := s.access.Storage.EndpointURL, "dataset.storage.endpoint_url"
		if at == "" {
			if at, from = os.Getenv("STORAGE_EMULATOR_HOST"), "STORAGE_EMULATOR_HOST"; at != "" {
				s.emulator = true
				if !strings.Contains(at, "://") {
					at = "http://" + at
				}
			}
		}
		if at == "" {
			at, from = home, ""
		}
		u, err := url.Parse(at)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			s.wrong = errs.New(errs.Config, "%s is not the address of a server", from).Try("write https://host or http://host:port")
			u = &url.URL{}
		}
		path := strings.TrimSuffix(strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/storage/v1"), "/")
		s.from = from
		s.endpoint = url.URL{Scheme: u.Scheme, Host: u.Host, Path: path}
		s.creds = newCredentials(s)
	})
}

// Host is remote.Store's.
func (s *store) Host(string) string {
	s.setup()
	return s.endpoint.Host
}

// Origin is remote.Origin's.
func (s *store) Origin(string) string {
	s.setup()
	return s.from
}

// object is what the API says of one.
type object struct {
	Name       string `json:"name"`
	Size       string `json:"size"`
	Generation string `json:"generation"`
}

func (o object) info(name string) (source.Info, error) {
	size, err := strconv.ParseInt(o.Size, 10, 64)
	if err != nil || size < 0 || !digits(o.Generation) {
		return source.Info{}, &remote.Fault{Kind: remote.Broken, What: fmt.Sprintf("the server reports size %[2]q and generation %[3]q for %[1]s", errs.Name(name), o.Size, o.Generation)}
	}
	return source.Info{Name: name, Size: size, Version: o.Generation}, nil
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// Stat is remote.Store's.
func (s *store) Stat(ctx context.Context, name string) (source.Info, error) {
	bucket, key := remote.Split(name)
	if bucket != "" && key != "" && !strings.HasSuffix(name, "/") {
		var o object
		err := s.ask(ctx, request{name: name, bucket: bucket, key: key, query: url.Values{"fields": {"name,size,generation"}}}, &o)
		if err == nil {
			return o.info(strings.Clone(name))
		}
		if errs.CodeOf(err) != errs.NotFound || isNoBucket(err) {
			return source.Info{}, err
		}
	}
	there, err := s.below(ctx, name, bucket, key)
	switch {
	case err != nil:
		return source.Info{}, err
	case !there:
		return source.Info{}, remote.Missing(name)
	}
	return source.Info{Name: strings.TrimRight(strings.Clone(name), "/"), Dir: true}, nil
}

// Read is remote.Store's.
func (s *store) Read(ctx context.Context, obj source.Info, p []byte, off int64) (int, error) {
	bucket, key := remote.Split(obj.Name)
	query := url.Values{"alt": {"media"}}
	if obj.Version != "" {
		query.Set("ifGenerationMatch", obj.Version)
	}
	r := request{name: obj.Name, bucket: bucket, key: key, query: query, first: off, last: off + int64(len(p)) - 1, ranged: true}
	resp, err := s.do(ctx, r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusPreconditionFailed:
		return 0, remote.Changed(obj, "its generation is no longer %s", errs.Name(obj.Version))
	case http.StatusRequestedRangeNotSatisfiable:
		return 0, remote.Changed(obj, "it is now shorter than %d bytes", obj.Size)
	case http.StatusOK, http.StatusPartialContent:
	default:
		return 0, s.refused(ctx, r, resp)
	}
	stored(resp.Header)
	switch v := resp.Header.Get("X-Goog-Generation"); {
	case obj.Version == "" || v == obj.Version:
	case resp.StatusCode == http.StatusOK: // no part: Body says so
	case v == "":
		return 0, remote.Unversioned(obj, "generation")
	default:
		return 0, remote.Changed(obj, "its generation was %[2]s and is now %[1]s", errs.Name(v), obj.Version)
	}
	return remote.Body(ctx, obj, resp, p, off, checked)
}

// stored removes the encoding that the object is stored with: these are its bytes, as it
// was uploaded. The server would decompress it ("decompressive transcoding"), of no known
// length and without ranges, for a client that does not accept gzip.
func stored(h http.Header) {
	if e := h.Get("Content-Encoding"); e != "" && e == h.Get("X-Goog-Stored-Content-Encoding") {
		h.Del("Content-Encoding")
	}
}

// checked compares a whole object with its CRC32C, which every object has: that of an MD5
// beside it would cost thirty times as much, and say no more.
func checked(name string, h http.Header, p []byte) error {
	for _, line := range h.Values("X-Goog-Hash") {
		for part := range strings.SplitSeq(line, ",") {
			sum, ok := strings.CutPrefix(strings.TrimSpace(part), "crc32c=")
			if !ok {
				continue
			}
			want, err := base64.StdEncoding.DecodeString(sum)
			if got := crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)); err != nil || len(want) != 4 || binary.BigEndian.Uint32(want) != got {
				return remote.Spoiled(name, "CRC32C", p)
			}
			return nil
		}
	}
	return nil
}

// request is one to the API: of an object if key is set, of what is in a bucket if only
// bucket is, of the buckets of a project otherwise.
type request struct {
	name        string // for errors
	bucket, key string
	query       url.Values
	ranged      bool
	first, last int64
}

// url is made without parsing: names are data.
func (s *store) url(r request) *url.URL {
	u := s.endpoint
	plain, raw := u.Path+"/storage/v1/b", u.EscapedPath()+"/storage/v1/b"
	if r.bucket != "" {
		plain, raw = plain+"/"+r.bucket+"/o", raw+"/"+url.PathEscape(r.bucket)+"/o"
	}
	if r.key != "" {
		plain, raw = plain+"/"+r.key, raw+"/"+url.PathEscape(r.key)
	}
	u.Path, u.RawPath, u.RawQuery = plain, raw, r.query.Encode()
	return &u
}

// do makes a request. A token that is not accepted is reported as expired, once by each
// reader, and another is asked for.
func (s *store) do(ctx context.Context, r request) (*http.Response, error) {
	if s.setup(); s.wrong != nil {
		return nil, remote.Located(s.wrong, r.name)
	}
	token, err := s.creds.token(ctx, r.name)
	if err != nil {
		return nil, err
	}
	if s.access.Storage.RequesterPays && r.bucket != "" {
		project, err := s.creds.project(ctx, r.name)
		if err != nil {
			return nil, err
		}
		r.query.Set("userProject", project)
	}
	req := (&http.Request{Method: http.MethodGet, URL: s.url(r), Host: s.endpoint.Host, Header: http.Header{}}).WithContext(ctx)
	if r.ranged {
		req.Header["Range"] = []string{"bytes=" + strconv.FormatInt(r.first, 10) + "-" + strconv.FormatInt(r.last, 10)}
		req.Header["Accept-Encoding"] = []string{"gzip"} // see stored
	}
	if token != "" {
		req.Header["Authorization"] = []string{"Bearer " + token}
	}
	resp, err := s.net.Client().Transport.RoundTrip(req) // Do would quote a Location that it cannot parse
	if err != nil {
		return nil, remote.Failed(ctx, r.name, err)
	}
	if resp.StatusCode == http.StatusUnauthorized {
		return nil, s.unauthorized(ctx, r.name, token, resp)
	}
	return resp, nil
}

// most bounds an answer in JSON: a page of a thousand objects has less than two MiB, if
// each has the longest name there is.
const most = 16 << 20

// ask makes a request whose answer is JSON.
func (s *store) ask(ctx context.Context, r request, into any) error {
	resp, err := s.do(ctx, r)
	if err != nil {
		return err
	}
	return remote.Document{Whose: "the server's answer", Kind: "the JSON of the API", Most: most, Decode: json.Unmarshal}.
		Read(ctx, r.name, resp, into, func() error { return s.refused(ctx, r, resp) })
}
