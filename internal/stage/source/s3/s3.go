// Package s3 is objects of S3, and of all stores that speak its protocol, as a
// remote.Store. Credentials are found by AWS's library, as all of AWS's tools find them;
// requests are written here (docs/decisions/remote-clients.md).
//
// Names are s3://bucket/key. A key is bytes: it is neither cleaned nor decoded.
package s3

import (
	"context"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// Scheme is its entry in a list of sources.
func Scheme(net *remote.Net) source.Scheme {
	return source.Scheme{Name: "s3", Open: func(a source.Access) (source.Source, error) {
		s := &store{net: net, storage: a.Storage, signer: v4.NewSigner(unescaped)}
		s.forgetHosts()
		return remote.New(s, net, a), nil
	}}
}

// store is all buckets that one account reaches. Nothing is read or looked up before the
// first request.
type store struct {
	net     *remote.Net
	storage source.Storage
	signer  *v4.Signer

	setting sync.Mutex              // the account up
	account atomic.Pointer[account] // nil: not set up yet, or to be set up anew
	// hosts are those of buckets, as account, regions and hosted say; forgotten when one of
	// these changes. Each read asks twice.
	hosts  atomic.Pointer[map[string]string]
	had    atomic.Bool  // credentials were found once
	skew   atomic.Int64 // nanoseconds by which the store's clock is ahead of ours
	hosted atomic.Bool  // the store wants buckets in its host's name
	// loose are the buckets for which conditions are not sent, because their store refused
	// what had not changed. versitygw compares If-Unmodified-Since with fractions of a
	// second, which its own answers leave out. Answers say of which version they are, and
	// are checked anyway. AWS knows its own ETags: there, none is loose.
	loose   sync.Map // string to true
	regions sync.Map // of buckets that are elsewhere than account.region: string to string
}

// object is a parsed name. key is "" for the bucket itself.
type object struct{ name, bucket, key string }

// parse takes a name apart. What a bucket may be called is checked, since it becomes a
// part of the host's name.
func parse(name string) (object, error) {
	_, rest, _ := strings.Cut(name, "://")
	bucket, key, _ := strings.Cut(rest, "/")
	switch {
	case strings.HasPrefix(bucket, "arn:"), strings.HasSuffix(bucket, "--x-s3"):
		return object{}, errs.New(errs.Unsupported, "access points and directory buckets are not supported").At(at(name)).
			Try("give the name of a general purpose bucket, or an access point's alias (it ends in -s3alias)")
	case strings.Contains(bucket, "@"):
		return object{}, errs.New(errs.Config, "a name in S3 has no user and no password").At(at(name)).
			Try("write s3://bucket/key, and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	case strings.Contains(bucket, "{"): // no bucket has braces in its name: NotFound lets the pattern expand them
		return object{}, errs.New(errs.NotFound, "%s is not the name of a bucket", errs.Name(bucket)).At(at(name)).Try("write s3://bucket/key")
	case bucket == "":
		return object{}, errs.New(errs.Config, "the name has no bucket").At(at(name)).Try("write s3://bucket/key")
	case len(bucket) > 255 || strings.IndexFunc(bucket, notOfBucket) >= 0:
		return object{}, errs.New(errs.Config, "%s is not the name of a bucket", errs.Name(bucket)).At(at(name)).Try("write s3://bucket/key")
	}
	return object{name, bucket, key}, nil
}

func notOfBucket(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_'
}

// isRoot says whether a name is that of all buckets: s3://, with or without its slashes.
func isRoot(name string) bool { return strings.HasSuffix(strings.TrimRight(name, "/"), ":") }

// Host is remote.Store's.
func (s *store) Host(name string) string {
	o, err := parse(name)
	if err != nil && !isRoot(name) {
		return name
	}
	known := s.hosts.Load()
	if host, ok := (*known)[o.bucket]; ok {
		return host
	}
	a, err := s.current(context.Background())
	if err != nil {
		return o.bucket
	}
	host := a.endpoint.of(s.region(a, o.bucket), o.bucket, s.hosted.Load()).host
	if len(*known) < mostHosts {
		next := maps.Clone(*known)
		next[strings.Clone(o.bucket)] = host
		s.hosts.CompareAndSwap(known, &next) // unless it was forgotten since
	}
	return host
}

// mostHosts is how many hosts of buckets are kept.
const mostHosts = 1000

// forgetHosts says that buckets may be at other hosts now.
func (s *store) forgetHosts() { s.hosts.Store(&map[string]string{}) }

// Origin is remote.Origin's.
func (s *store) Origin(string) string {
	a, err := s.current(context.Background())
	if err != nil || a.endpoint.base == nil {
		return ""
	}
	return a.endpoint.from
}

// Stat is remote.Store's: one request for an object, a second one for a folder.
func (s *store) Stat(ctx context.Context, name string) (source.Info, error) {
	if isRoot(name) {
		return source.Info{Name: strings.Clone(name), Dir: true}, nil
	}
	o, err := parse(strings.TrimRight(name, "/"))
	if err != nil {
		return source.Info{}, err
	}
	folder := source.Info{Name: strings.Clone(o.name), Dir: true}
	if o.key == "" || strings.HasSuffix(name, "/") {
		there, err := s.below(ctx, o)
		switch {
		case err != nil:
			return source.Info{}, err
		case !there && o.key != "":
			return source.Info{}, remote.Missing(name)
		}
		return folder, nil
	}
	info, err := s.head(ctx, o)
	if c := errs.CodeOf(err); err != nil && (c == errs.NotFound || c == errs.Denied) {
		// A user who may only list a folder is denied what is not in it.
		there, err2 := s.below(ctx, o)
		switch {
		case there:
			return folder, nil
		case err2 != nil && (c == errs.NotFound || ctx.Err() != nil):
			return source.Info{}, err2 // the bucket is missing, or it cannot be known
		}
	}
	return info, err
}

// head asks for an object's size and version. The answer to a HEAD has no body, so that a
// refusal does not say why; then a GET of one byte does.
func (s *store) head(ctx context.Context, o object) (source.Info, error) {
	ans, err := s.ask(ctx, call{method: http.MethodHead, object: o})
	if err != nil {
		return source.Info{}, err
	}
	info := source.Info{Name: strings.Clone(o.name), Size: ans.ContentLength}
	switch {
	case ans.StatusCode == http.StatusOK && info.Size < 0:
		return source.Info{}, &remote.Fault{Kind: remote.Broken, What: "the answer does not report the size of the object"}
	case ans.StatusCode == http.StatusOK:
	case ans.StatusCode == http.StatusBadRequest, ans.StatusCode == http.StatusForbidden:
		ans, err = s.ask(ctx, call{method: http.MethodGet, object: o, header: http.Header{"Range": {"bytes=0-0"}}})
		if err != nil {
			return source.Info{}, err
		}
		defer ans.Body.Close()
		if ans.StatusCode != http.StatusPartialContent {
			return source.Info{}, s.refused(o, ans)
		}
		if info.Size, err = remote.Part(ans.Header, ans.StatusCode, 0, 1); err != nil {
			return source.Info{}, err
		}
	default:
		return source.Info{}, s.refused(o, ans)
	}
	info.Version = version(ans.Header.Get("ETag"), ans.Header.Get("Last-Modified"))
	return info, nil
}

// modified begins the version of an object that has no strong ETag: when it was written.
const modified = "modified "

// version distinguishes contents of one key: a strong ETag, or when it was last
// modified, which is text as in an HTTP header. A weak ETag may stay when bytes change.
func version(etag, last string) string {
	if tag := strings.Trim(etag, `"`); tag != "" && !strings.HasPrefix(etag, "W/") {
		return `"` + tag + `"`
	}
	if last != "" {
		return modified + last
	}
	return ""
}

// Read is remote.Store's.
func (s *store) Read(ctx context.Context, obj source.Info, p []byte, off int64) (int, error) {
	o, err := parse(obj.Name)
	if err != nil {
		return 0, err
	}
	h := http.Header{"Range": {"bytes=" + strconv.FormatInt(off, 10) + "-" + strconv.FormatInt(off+int64(len(p))-1, 10)}}
	_, loose := s.loose.Load(o.bucket)
	sure := !loose
	if last, ok := strings.CutPrefix(obj.Version, modified); ok && sure {
		h["If-Unmodified-Since"] = []string{last}
	} else if obj.Version != "" && sure {
		h["If-Match"] = []string{obj.Version}
	}
	whole := off == 0 && int64(len(p)) == obj.Size
	ans, err := s.ask(ctx, call{method: http.MethodGet, object: o, header: h, whole: whole})
	if err != nil {
		return 0, err
	}
	defer ans.Body.Close()
	switch ans.StatusCode {
	case http.StatusPartialContent, http.StatusOK:
	case http.StatusPreconditionFailed, http.StatusRequestedRangeNotSatisfiable:
		err := s.changed(ctx, o, obj, ans.StatusCode)
		if err == nil && sure && obj.Version != "" && ans.StatusCode == http.StatusPreconditionFailed && !ans.account.endpoint.isAWS() {
			s.loose.Store(strings.Clone(o.bucket), true)
			return s.Read(ctx, obj, p, off)
		}
		if err == nil {
			err = &remote.Fault{Kind: remote.Broken, Status: ans.StatusCode, What: "the store answered " + strconv.Itoa(ans.StatusCode) + ", but the object has not changed"}
		}
		return 0, err
	default:
		return 0, s.refused(o, ans)
	}
	if ans.Header.Get("Content-Length") == strconv.Itoa(len(p)) {
		// A property of the object, which the store keeps as it got it. What a proxy
		// has encoded on the way has another length, or none.
		ans.Header.Del("Content-Encoding")
	}
	size, err := remote.Part(ans.Header, ans.StatusCode, off, int64(len(p)))
	if err != nil {
		return 0, err
	}
	v := version(ans.Header.Get("ETag"), ans.Header.Get("Last-Modified"))
	tagged := obj.Version != "" && !strings.HasPrefix(obj.Version, modified)
	switch {
	case size >= 0 && size != obj.Size:
		return 0, remote.Changed(obj, "it had %d bytes and now has %d", obj.Size, size)
	case v == obj.Version, obj.Version == "":
	case tagged && (v == "" || strings.HasPrefix(v, modified)):
		return 0, remote.Unversioned(obj, "ETag")
	case v == "":
		return 0, remote.Unversioned(obj, "Last-Modified")
	default:
		return 0, remote.Changed(obj, "it was %s and is now %s", obj.Version, v)
	}
	n, err := remote.Fill(ctx, obj.Name, ans.Body, p)
	if err == nil && whole {
		err = compare(ans.Header, p, obj.Name)
	}
	if err != nil && n == len(p) {
		n = 0
	}
	return n, err
}

// changed is the error of an answer that says that the object is not the one that was
// opened: it is asked what it is now. nil: it is the same.
func (s *store) changed(ctx context.Context, o object, was source.Info, status int) error {
	now, err := s.head(ctx, o)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && errs.CodeOf(err) == errs.NotFound:
		return err
	case err != nil:
		return remote.Changed(was, "the store answered %d", status)
	case now.Size == was.Size && (was.Version == "" || now.Version == was.Version):
		return nil
	}
	return remote.Changed(was, "it was %s of %d bytes and is now %s of %d", was.Version, was.Size, now.Version, now.Size)
}

func at(name string) errs.Where { return errs.Where{File: strings.Clone(name)} }
