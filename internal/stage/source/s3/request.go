package s3

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// call is a request before it has an address and a signature.
type call struct {
	object
	method string
	query  string      // encoded
	header http.Header // nil: none; it is the call's own
	whole  bool        // a GET of a whole object: its checksum is asked for, where that is usual
}

// answer is what a store says to a call. The body is open if the status is 2xx, and was
// read into problem if not.
type answer struct {
	*http.Response
	problem
	// What the request was made with. Others may have put it right since.
	account *account
	creds   aws.Credentials
	skew    time.Duration
	hosted  bool
}

const (
	moves  = 2               // to other regions, that one call follows
	wrong  = 4 * time.Minute // by which a clock may be off; S3 refuses 15 minutes
	nobody = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// unescaped signs paths as they are sent, as S3 requires.
func unescaped(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }

// ask makes a request, and makes it again where the answer says how it had to be: signed
// for another region, or with another clock. Nothing else is followed: the signature goes
// to hosts that endpoint names, and to no other.
func (s *store) ask(ctx context.Context, c call) (*answer, error) {
	for moved, set := 0, false; ; {
		a, err := s.current(ctx)
		if err != nil {
			return nil, located(err, c.name)
		}
		region := s.region(a, c.bucket)
		ans, err := s.once(ctx, a, c, region)
		if err != nil || ans.StatusCode/100 == 2 {
			return ans, err
		}
		if !set && s.setClock(a, ans) {
			set = true
			continue
		}
		if !ans.hosted && needsHost(ans.Code) && a.endpoint.hasName() {
			s.hosted.Store(true)
			s.forgetHosts()
			continue
		}
		there, ok := elsewhere(ans, region)
		switch {
		case !ok:
			return ans, nil
		case there == "" || moved == moves:
			return nil, lost(c.object, a, ans, region, there)
		}
		moved++
		s.regions.Store(strings.Clone(c.bucket), there)
		s.forgetHosts()
	}
}

// once makes a request, signs it for a region, and reads the problem of its answer.
func (s *store) once(ctx context.Context, a *account, c call, region string) (*answer, error) {
	skew, hosted := time.Duration(s.skew.Load()), s.hosted.Load()
	to := a.endpoint.of(region, c.bucket, hosted)
	path := to.path
	if c.key != "" {
		path += escape(c.key)
	} else if c.bucket != "" {
		path = strings.TrimSuffix(path, "/") // of a bucket in the path
	}
	if path == "" {
		path = "/"
	}
	plain, err := url.PathUnescape(path)
	if err != nil {
		return nil, errs.New(errs.Config, "the address of the store is not valid").At(at(c.name)).Because(err).Try("correct endpoint_url")
	}
	h := make(http.Header, 12)
	for k, v := range c.header {
		h[k] = v
	}
	h["User-Agent"] = []string{"stoker"}
	if s.storage.RequesterPays {
		h["X-Amz-Request-Payer"] = []string{"requester"}
	}
	if c.whole && a.checksums {
		h["X-Amz-Checksum-Mode"] = []string{"ENABLED"}
	}
	req := (&http.Request{
		Method: c.method, Header: h, Host: to.host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		URL: &url.URL{Scheme: to.scheme, Host: to.host, Path: plain, RawPath: path, RawQuery: c.query},
	}).WithContext(ctx)
	var creds aws.Credentials
	if a.provider != nil {
		if creds, err = s.credentials(ctx, a, c.object); err != nil {
			return nil, err
		}
		h["X-Amz-Content-Sha256"] = []string{nobody}
		if err := s.signer.SignHTTP(ctx, creds, req, nobody, "s3", region, s.net.Now().Add(skew)); err != nil {
			return nil, errs.New(errs.Bug, "a request could not be signed").At(at(c.name))
		}
	}
	resp, err := s.net.Client().Transport.RoundTrip(req) // Do would quote a Location that it cannot parse
	if err != nil {
		return nil, remote.Failed(ctx, c.name, err)
	}
	ans := &answer{Response: resp, account: a, creds: creds, skew: skew, hosted: hosted}
	if resp.StatusCode/100 != 2 {
		// What does not arrive is not missed: the status counts.
		body, _ := io.ReadAll(io.LimitReader(resp.Body, mostProblem))
		_ = resp.Body.Close()
		ans.problem = readProblem(body, creds)
	}
	return ans, nil
}

// escape encodes a key for the path of a URL as signatures want it: all but letters,
// digits, "-", "_", ".", "~" and "/".
func escape(key string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(len(key) + 16)
	for i := range len(key) {
		switch c := key[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.', c == '~', c == '/':
			b.WriteByte(c)
		default:
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

// setClock takes the time from an answer that refuses ours, and says whether that may
// help.
func (s *store) setClock(a *account, ans *answer) bool {
	if a.provider == nil || ans.StatusCode != http.StatusForbidden && ans.StatusCode != http.StatusBadRequest {
		return false
	}
	date, err := http.ParseTime(ans.Header.Get("Date"))
	if err != nil {
		return false
	}
	skew := date.Sub(s.net.Now())
	if off := skew - ans.skew; off < wrong && off > -wrong {
		return false
	}
	s.skew.Store(int64(skew))
	return true
}

// region is the region that a bucket is in, as far as is known.
func (s *store) region(a *account, bucket string) string {
	if v, ok := s.regions.Load(bucket); ok {
		return v.(string)
	}
	return a.region
}

// needsHost says whether a store refuses buckets in paths: those of Alibaba, Tencent and
// Volcengine do.
func needsHost(code string) bool {
	return code == "SecondLevelDomainForbidden" || code == "PathStyleDomainForbidden" || code == "InvalidPathAccess"
}

// elsewhere says whether an answer sends a request to another region; region is "" if it
// does not say which.
func elsewhere(ans *answer, used string) (region string, ok bool) {
	moved := ans.StatusCode/100 == 3 && ans.StatusCode != http.StatusNotModified
	if !moved && ans.StatusCode != http.StatusBadRequest {
		return "", false
	}
	for _, region := range []string{ans.Header.Get("X-Amz-Bucket-Region"), ans.Region} {
		if isRegion(region) && region != used {
			return region, true
		}
	}
	return "", moved
}

// lost is the error of a bucket that is somewhere else, nobody knows where.
func lost(o object, a *account, ans *answer, used, there string) error {
	e := errs.New(errs.Config, "the bucket is not in the region %s", used).At(at(o.name)).Because(ans.cause()).
		Try("set the bucket's region (dataset.storage.region or AWS_REGION)")
	if u, err := url.Parse(ans.Header.Get("Location")); err == nil && u.Host != "" && a.endpoint.base != nil {
		e.What = "the store sends requests to another host, " + errs.Plain(u.Hostname()) + ", to which no credentials are sent"
		return e.Try("if that is the store, set endpoint_url to its address")
	}
	if there != "" {
		e.What = "the store sends requests from one region to another in a loop: " + used + ", then " + there
		return e.Try("check the address of the store (endpoint_url)")
	}
	return e
}
