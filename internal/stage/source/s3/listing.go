package s3

import (
	"bytes"
	"context"
	"encoding/xml"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
)

// mostListing is the largest page that is read, in bytes: a thousand keys of a thousand
// bytes, encoded, have a quarter.
const mostListing = 16 << 20

// Page is remote.Store's. The listing of s3:// itself is that of all buckets.
func (s *store) Page(ctx context.Context, dir string, flat bool, token string) (remote.Page, error) {
	return s.page(ctx, dir, "", flat, token)
}

// Begin is remote.Prefixed's.
func (s *store) Begin(ctx context.Context, dir, letters, token string) (remote.Page, error) {
	return s.page(ctx, dir, letters, false, token)
}

func (s *store) page(ctx context.Context, dir, letters string, flat bool, token string) (remote.Page, error) {
	if isRoot(dir) {
		return s.buckets(ctx, dir)
	}
	o, err := parse(dir)
	if err != nil {
		return remote.Page{}, err
	}
	q := url.Values{}
	if token != "" {
		q.Set("continuation-token", token)
	}
	if !flat {
		q.Set("delimiter", "/")
	}
	body, err := s.list(ctx, o, letters, q)
	if err != nil {
		return remote.Page{}, err
	}
	return readListing(body, o, flat)
}

// below says whether there are objects below a name; for a bucket, whether it exists.
func (s *store) below(ctx context.Context, o object) (bool, error) {
	body, err := s.list(ctx, o, "", url.Values{"max-keys": {"1"}})
	if err != nil {
		return false, err
	}
	l, err := parseListing(body, o.name)
	return err == nil && len(l.Contents)+len(l.CommonPrefixes) > 0, err
}

// list is the XML of ListObjectsV2 for what is below a name and begins with letters.
func (s *store) list(ctx context.Context, o object, letters string, q url.Values) ([]byte, error) {
	q.Set("list-type", "2")
	q.Set("encoding-type", "url") // XML has no way to write most control characters
	if prefix := remote.Prefix(o.name, letters); prefix != "" {
		q.Set("prefix", prefix)
	}
	bucket := o
	bucket.key = ""
	return s.document(ctx, call{method: http.MethodGet, object: bucket, query: q.Encode()})
}

// document is the body of an answer, which is not long.
func (s *store) document(ctx context.Context, c call) ([]byte, error) {
	ans, err := s.ask(ctx, c)
	if err != nil {
		return nil, err
	}
	defer ans.Body.Close()
	if ans.StatusCode != http.StatusOK {
		return nil, s.refused(c.object, ans)
	}
	body, err := io.ReadAll(io.LimitReader(ans.Body, mostListing+1))
	switch {
	case err != nil:
		return nil, remote.Failed(ctx, c.name, err)
	case len(body) > mostListing:
		return nil, unlisted(c.name, "a page has more than %d bytes", mostListing)
	}
	return body, nil
}

// listing is ListBucketResult.
type listing struct {
	XMLName               xml.Name `xml:"ListBucketResult"`
	EncodingType          string
	IsTruncated           bool
	NextContinuationToken string
	Contents              []listed
	CommonPrefixes        []common
}

type listed struct {
	Key, ETag, LastModified string
	Size                    int64
}

type common struct{ Prefix string }

// parseListing reads the XML and decodes its names. There is no document type in it whose
// entities could grow: the decoder knows XML's own five.
func parseListing(body []byte, name string) (l listing, err error) {
	l, ok := scan(body)
	if !ok {
		l = listing{}
		if err := xml.NewDecoder(bytes.NewReader(body)).Decode(&l); err != nil {
			return l, remote.Foreign(name, "the answer is not a listing", err, body)
		}
	}
	if l.EncodingType != "url" {
		return l, nil
	}
	for i := range l.Contents {
		if l.Contents[i].Key, err = url.QueryUnescape(l.Contents[i].Key); err != nil {
			return l, unlisted(name, "a key is wrongly encoded")
		}
	}
	for i := range l.CommonPrefixes {
		if l.CommonPrefixes[i].Prefix, err = url.QueryUnescape(l.CommonPrefixes[i].Prefix); err != nil {
			return l, unlisted(name, "a prefix is wrongly encoded")
		}
	}
	return l, nil
}

// readListing is the page of what is below dir. Objects and folders come as two lists,
// which become one, in the order of both: whether each is in order, remote checks.
//
// Keys that end in a slash are left out: they mark folders. So are folders without a name
// ("a//b" has one), which no path can lead to; a flat listing has what is in them.
func readListing(body []byte, dir object, flat bool) (remote.Page, error) {
	l, err := parseListing(body, dir.name)
	if err != nil {
		return remote.Page{}, err
	}
	prefix := remote.Prefix(dir.name, "")
	page := remote.Page{Entries: make([]source.Info, 0, len(l.Contents)+len(l.CommonPrefixes))}
	for objects, folders := l.Contents, l.CommonPrefixes; len(objects) > 0 || len(folders) > 0; {
		if len(folders) == 0 || len(objects) > 0 && objects[0].Key < folders[0].Prefix {
			it := objects[0]
			objects = objects[1:]
			rest, ok := strings.CutPrefix(it.Key, prefix)
			switch {
			case !ok || it.Size < 0 || !flat && strings.Contains(strings.TrimSuffix(rest, "/"), "/"):
				return remote.Page{}, unlisted(dir.name, "it has %s of %d bytes", errs.Name(it.Key), it.Size)
			case rest == "" || strings.HasSuffix(rest, "/"):
				continue
			}
			page.Entries = append(page.Entries, source.Info{Name: dir.name + "/" + rest, Size: it.Size, Version: it.version()})
			continue
		}
		rest, ok := strings.CutPrefix(folders[0].Prefix, prefix)
		rest, slash := strings.CutSuffix(rest, "/")
		if !ok || !slash || flat || strings.Contains(rest, "/") {
			return remote.Page{}, unlisted(dir.name, "it contains the folder %s", errs.Name(folders[0].Prefix))
		}
		folders = folders[1:]
		if rest != "" {
			page.Entries = append(page.Entries, source.Info{Name: dir.name + "/" + rest, Dir: true})
		}
	}
	if l.IsTruncated {
		if page.Next = l.NextContinuationToken; page.Next == "" {
			return remote.Page{}, unlisted(dir.name, "it is incomplete, but does not say how to request the rest")
		}
	}
	return page, nil
}

// version is that which the headers of an answer give: times of listings have fractions of
// seconds, the header Last-Modified has none.
func (it *listed) version() string {
	if v := version(it.ETag, ""); v != "" {
		return v
	}
	t, err := time.Parse(time.RFC3339Nano, it.LastModified)
	if err != nil {
		return ""
	}
	return version("", t.UTC().Format(http.TimeFormat))
}

// buckets is all buckets of the account, as one page.
func (s *store) buckets(ctx context.Context, dir string) (remote.Page, error) {
	body, err := s.document(ctx, call{method: http.MethodGet, object: object{name: dir}})
	if err != nil {
		return remote.Page{}, err
	}
	var l struct {
		XMLName xml.Name `xml:"ListAllMyBucketsResult"`
		Names   []string `xml:"Buckets>Bucket>Name"`
	}
	if err := xml.Unmarshal(body, &l); err != nil {
		return remote.Page{}, remote.Foreign("s3://", "the answer is not a listing of buckets", err, body)
	}
	slices.Sort(l.Names)
	var page remote.Page
	for _, name := range l.Names {
		page.Entries = append(page.Entries, source.Info{Name: dir + "/" + name, Dir: true})
	}
	return page, nil
}

// unlisted is the error of a listing that is not one.
func unlisted(name, format string, a ...any) error {
	return errs.New(errs.Unreadable, "the listing is not of this folder: "+format, a...).At(at(name)).
		Try("check the store and any proxies: other names may be missing too")
}
